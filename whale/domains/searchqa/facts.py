"""The shipped facts as records, read from facts.json (its sources: LICENSE-DATA.md)."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class City:
    """A larger city that is not a capital; its name stands for one country only."""

    name: str
    population: int


@dataclass(frozen=True, slots=True)
class Country:
    """A country or territory. None where the source has no value that is the country's own."""

    name: str
    kind: str
    continent: str
    capital: str
    currency: str | None
    domain: str | None
    """The internet's top-level domain with its dot, such as ".fr"."""
    code: str | None
    """The calling code, digits only."""
    area: int
    """Square kilometres."""
    population: int
    aliases: tuple[str, ...]
    capital_aliases: tuple[str, ...]
    currency_aliases: tuple[str, ...]
    cities: tuple[City, ...]


@dataclass(frozen=True, slots=True)
class Element:
    """A chemical element; `discoverer` only where the source names one person."""

    name: str
    symbol: str
    number: int
    discoverer: str | None
    year: int | None
    place: str | None
    aliases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """All that passages and questions are made from."""

    countries: tuple[Country, ...]
    elements: tuple[Element, ...]


@cache
def load_facts() -> Facts:
    """Read the shipped facts once per process."""
    raw = json.loads(files("whale.domains.searchqa").joinpath("facts.json").read_text("utf-8"))
    listed = ("aliases", "capital_aliases", "currency_aliases")
    countries = [
        Country(
            **{
                **row,
                **{key: tuple(row[key]) for key in listed},
                "cities": tuple(City(**city) for city in row["cities"]),
            }
        )
        for row in raw["countries"]
    ]
    elements = [Element(**{**row, "aliases": tuple(row["aliases"])}) for row in raw["elements"]]
    return Facts(tuple(countries), tuple(elements))


@cache
def load_templates() -> dict[str, dict[str, list[str]]]:
    """The sentence templates for passages and questions, ours."""
    text = files("whale.domains.searchqa").joinpath("templates.json").read_text("utf-8")
    templates: dict[str, dict[str, list[str]]] = json.loads(text)
    return templates
