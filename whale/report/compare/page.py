"""A comparison as one HTML file: no script, no font, no request; it opens from disk."""

from collections.abc import Sequence
from pathlib import Path

from whale.report.compare.layout import Table
from whale.report.compare.plots import curves_of, forest_of
from whale.report.compare.systems import Grouped


def as_html(grouped: Grouped, tables: Sequence[Table], notes: Sequence[str] = ()) -> str:
    """The page: the figures of each domain, then the tables."""
    from jinja2 import Environment  # 0.1 s that no other form needs

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    folder = Path(__file__).parent
    domains = grouped.by_domain()
    drawn = [(domain, forest_of(domain, systems), curves_of(domain, systems)) for domain, systems in domains.items()]
    return environment.from_string((folder / "page.html").read_text(encoding="utf-8")).render(
        style=(folder / "page.css").read_text(encoding="utf-8"),
        drawn=drawn,
        tables=tables,
        notes=notes,
        runs=sum(len(system.runs) for system in grouped.systems),
        domains=list(domains),
    )
