from pathlib import Path

from whale.search.mutation import CROSSOVERS, OPERATORS

DOCS = Path(__file__).parents[2] / "docs" / "mutation.md"


def test_the_documentation_lists_every_operator_as_it_is() -> None:
    text = DOCS.read_text()
    rows = [f"| `{o.name}` | {o.summary} | {o.expects} |" for o in OPERATORS]
    rows += [f"| `{c.name}` | {c.summary} | {c.expects} |" for c in CROSSOVERS]
    assert [row for row in text.splitlines() if row.startswith("| `")] == rows


def test_operator_names_are_unique_and_can_stand_in_an_axis_label() -> None:
    names = [o.name for o in OPERATORS] + [c.name for c in CROSSOVERS]
    assert len(set(names)) == len(names)
    assert all("+" not in name and name == name.lower() for name in names)
