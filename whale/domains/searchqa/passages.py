"""The encyclopedia: one short passage an entity, written by our own templates from the facts."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from whale.domains.searchqa.facts import Country, Element, Facts, load_templates

MAX_WORDS = 60


@dataclass(frozen=True, slots=True)
class Passage:
    """One document of the retrieval corpus."""

    title: str
    text: str


def stable_choice(options: Sequence[str], *key: str) -> str:
    """Pick one option by a hash of the key, so that wording varies but never changes between runs."""
    digest = hashlib.sha256("\x1f".join(key).encode("utf-8")).digest()
    return options[int.from_bytes(digest[:8], "big") % len(options)]


def write_passages(facts: Facts) -> tuple[Passage, ...]:
    """All passages in a fixed order: countries, capitals, cities, elements, discoverers."""
    passages = [_country(country) for country in facts.countries]
    passages += [_capital(country) for country in facts.countries if country.capital != country.name]
    passages += [
        _write("city", city.name, city=city.name, people=f"{city.population:,}", name=country.name)
        for country in facts.countries
        for city in country.cities
    ]
    passages += [_element(element) for element in facts.elements]
    found: dict[str, list[Element]] = defaultdict(list)
    for element in facts.elements:
        if element.discoverer is not None:
            found[element.discoverer].append(element)
    passages += [_discoverer(person, elements) for person, elements in sorted(found.items())]
    return tuple(passages)


def _write(kind: str, title: str, /, **fields: str) -> Passage:
    return Passage(title, _sentence(kind, title, **fields))


def _sentence(kind: str, key: str, /, **fields: str) -> str:
    options = load_templates()["passages"][kind]
    return stable_choice(options, kind, key).format(**fields)


def _country(country: Country) -> Passage:
    name = country.name
    money = net = ""
    if country.currency:
        money = _sentence("money", name, currency=country.currency)
    if country.domain:
        net = _sentence("domain", name, domain=country.domain)
    if country.code:
        net += _sentence("code", name, code=country.code)
    return _write(
        "country",
        name,
        name=name,
        kind=country.kind,
        continent=country.continent,
        capital=country.capital,
        money=money,
        net=net,
        population=f"{country.population:,}",
        area=f"{country.area:,}",
    )


def _capital(country: Country) -> Passage:
    return _write(
        "capital",
        country.capital,
        capital=country.capital,
        name=country.name,
        kind=country.kind,
        continent=country.continent,
    )


def _element(element: Element) -> Passage:
    known = _sentence("known", element.name)
    if element.year is not None:
        known = _sentence("known_since", element.name, year=str(element.year))
    return _write(
        "element",
        element.name,
        name=element.name,
        symbol=element.symbol,
        number=str(element.number),
        known=known,
    )


def _discoverer(person: str, elements: Sequence[Element]) -> Passage:
    finds = [_sentence("find", person, element=e.name, year=str(e.year)) for e in elements]
    kind = "discoverer" if len(finds) == 1 else "discoverer_many"
    listed = finds[0] if len(finds) == 1 else ", ".join(finds[:-1]) + " and " + finds[-1]
    return _write(kind, person, person=person, finds=listed)
