"""The card of an exported pair: what it is, what it scored with which uncertainty, where it comes from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from whale.alternation.state import State
from whale.pair.choice import Pair, lineage
from whale.report.tables import percent
from whale.search.scoring import PairedGain


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a card says beside the pair itself."""

    name: str
    model: str
    """The base model's name, without a path of this machine."""
    domain: str
    position: int
    head: str
    """Hash of the log's newest event, which vouches for all before it."""
    model_licence: str
    data_licence: str
    licences: Sequence[str]
    """Files in licences/."""


def render(pair: Pair, state: State, provenance: Provenance, adapter: str = "") -> str:
    """README.md of the exported folder; `adapter` says what its adapters are, where it has some."""
    chain = lineage(state, pair.candidate)
    evaluated = [e for e in state.evaluations if e.split == "validation"]
    text: str = _template().render(
        name=provenance.name,
        run=state.name,
        pair=pair,
        complete=state.status == "completed",
        domain=provenance.domain,
        own_domain=".py:" in str(state.config.get("domain", "")),
        model=provenance.model,
        initial=state.model,
        steps=max((i for i, step in enumerate(state.steps, start=1) if step.weights == pair.weights), default=0),
        position=provenance.position,
        head=provenance.head,
        selected_on_validation=any(row.selected for row in pair.rows) and len(evaluated) > 1,
        pairs=len(evaluated),
        tested=any(e.split == "test" for e in state.evaluations),
        interventions=[cell(line) for line in state.interventions],
        lineage=chain,
        origins=list(reversed(state.origins)),
        proposers=sorted({candidate.proposer for candidate in chain}),
        model_licence=provenance.model_licence,
        data_licence=provenance.data_licence,
        licences=provenance.licences,
        adapter=adapter,
        percent=percent,
        interval=interval,
        points=points,
        cell=cell,
    )
    return text


def interval(low: float, high: float) -> str:
    """An interval of a rate, in per cent."""
    return f"[{100 * low:.1f}, {100 * high:.1f}]"


def points(gain: PairedGain) -> str:
    """A paired gain with its interval, in points."""
    return f"{100 * gain.gain:+z.1f} [{100 * gain.low:+z.1f}, {100 * gain.high:+z.1f}]"


def cell(text: str) -> str:
    """Text of a proposer, as one cell of a Markdown table."""
    flat = " ".join(text.split())
    for mark in "\\`|<>[]*_":
        flat = flat.replace(mark, f"\\{mark}")
    return flat


@cache
def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    source = files("whale.pair").joinpath("card.md").read_text(encoding="utf-8")
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # Markdown
    return environment.from_string(source)
