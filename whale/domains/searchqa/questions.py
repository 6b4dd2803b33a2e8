"""Questions with one answer each: single-hop from one passage, two-hop over a city or a discoverer."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from whale.domains.searchqa.facts import Country, Element, Facts, load_templates
from whale.domains.searchqa.normalisation import normalise
from whale.domains.searchqa.passages import stable_choice

TWO_HOP = frozenset(
    ("capital_of_city", "domain_of_city", "currency_of_city", "code_of_city", "symbol_of_discoverer",
     "number_of_discoverer")
)  # fmt: skip
AMBIGUOUS_SYMBOLS = frozenset(("as", "at", "be", "he", "i", "in", "no", "am", "os"))
"""Symbols that are English words: neither retrieval nor a text search can tell them from the word."""
MIN_CODE = 119
"""Calling codes up to the highest atomic number would be one string for two things."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question, what it is about, and every form of its answer (the first is canonical)."""

    id: str
    relation: str
    subject: str
    text: str
    answers: tuple[str, ...]
    entity: str
    """The country or element that it is about: all questions on one stay in one split."""

    @property
    def group(self) -> str:
        """How many passages it takes: "1-hop" or "2-hop"."""
        return "2-hop" if self.relation in TWO_HOP else "1-hop"

    @property
    def keys(self) -> frozenset[str]:
        """Normal forms of the subject, of every answer and of the entity: the strings no split may share."""
        return frozenset(normalise(name) for name in (self.subject, self.entity, *self.answers))


def write_questions(facts: Facts) -> tuple[Question, ...]:
    """All questions that have exactly one answer, in a fixed order.

    Left out: a question that already contains its answer ("the capital of Singapore"), a two-hop question
    whose answer stands in the name between the hops (the Leone of Sierra Leone), and every question whose
    relation and subject lead to two different answers.
    """
    currencies = Counter(normalise(country.currency) for country in facts.countries if country.currency)
    people = Counter(element.discoverer for element in facts.elements)
    written: list[Question] = []
    for country in facts.countries:
        written += _about_country(country, currencies)
    for element in facts.elements:
        written += _about_element(element, people)
    canonical: dict[tuple[str, str], set[str]] = {}
    for question in written:
        key = (question.relation, normalise(question.subject))
        canonical.setdefault(key, set()).add(normalise(question.answers[0]))
    return tuple(
        question
        for question in written
        if len(canonical[question.relation, normalise(question.subject)]) == 1 and not _given_away(question)
    )


def _given_away(question: Question) -> bool:
    text = question.text if question.group == "1-hop" else f"{question.text} {question.entity}"
    return any(f" {normalise(answer)} " in f" {normalise(text)} " for answer in question.answers)


def _ask(relation: str, subject: str, answers: tuple[str, ...], entity: str, kind: str = "") -> Question:
    slug = normalise(subject).replace(" ", "-")
    wording = stable_choice(load_templates()["questions"][relation], relation, subject)
    return Question(
        f"{relation}:{slug}", relation, subject, wording.format(subject=subject, kind=kind), answers, entity
    )


def _about_country(country: Country, currencies: Counter[str]) -> Iterator[Question]:
    kind, entity = country.kind, country.name
    names = (country.name, *country.aliases)
    properties = {"capital": (country.capital, *country.capital_aliases)}
    if country.domain:
        properties["domain"] = (country.domain,)
    if country.code and int(country.code) >= MIN_CODE:
        properties["code"] = (country.code,)
    if country.currency and currencies[normalise(country.currency)] == 1:
        properties["currency"] = (country.currency, *country.currency_aliases)
    for name, values in properties.items():
        yield _ask(name, country.name, values, entity, kind)
        yield _ask(f"country_of_{name}", values[0], names, entity, kind)
    for city in country.cities:
        yield _ask("country_of_city", city.name, names, entity, kind)
        for name, values in properties.items():
            yield _ask(f"{name}_of_city", city.name, values, entity, kind)


def _about_element(element: Element, people: Counter[str | None]) -> Iterator[Question]:
    entity = element.name
    names = (element.name, *element.aliases)
    number = (str(element.number),)
    clear = element.symbol.lower() not in AMBIGUOUS_SYMBOLS
    person = element.discoverer
    yield _ask("number", element.name, number, entity)
    yield _ask("element_of_number", number[0], names, entity)
    if clear:
        yield _ask("symbol", element.name, (element.symbol,), entity)
        yield _ask("element_of_symbol", element.symbol, names, entity)
    if person is None:
        return
    yield _ask("discoverer", element.name, (person, person.split()[-1]), entity)
    if people[person] == 1:
        yield _ask("element_of_discoverer", person, names, entity)
        yield _ask("number_of_discoverer", person, number, entity)
        if clear:
            yield _ask("symbol_of_discoverer", person, (element.symbol,), entity)
