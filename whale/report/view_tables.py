"""The read models as SQL tables: what a dashboard or a notebook asks for, one row a thing.

They are views. Nothing in WHALE reads them to decide anything, and `whale events rebuild` makes them anew
from the log at any time.
"""

from sqlalchemy import JSON, Column, Text
from sqlmodel import Field, SQLModel


class RunView(SQLModel, table=True):
    """A run as its fold is at `position`."""

    __tablename__ = "view_runs"

    run: str = Field(primary_key=True)
    position: int
    """The newest event that all tables hold; `hash` is that event's."""
    hash: str
    status: str
    cycle: int
    phase: str | None
    accepted: str | None
    accepted_tree: str
    initial_weights: str
    weights: str
    checkpoint: str | None
    candidates: int
    rollouts: int
    generated_tokens: int
    prompt_tokens: int
    interventions: int
    forked_from: str | None
    selected_cycle: int | None
    config: str = Field(sa_type=Text)
    """JSON."""


class CycleView(SQLModel, table=True):
    """A cycle: what became of its search, and the held-out success of its pair. Cycle 0 is (θ0, h0)."""

    __tablename__ = "view_cycles"

    run: str = Field(primary_key=True)
    cycle: int = Field(primary_key=True)
    started: int
    """Position of its first event."""
    weights: str
    harness: str | None
    search: str
    """"accepted", "retained", or empty while the phase is open."""
    steps: int
    iterations: int
    validation: float | None = None
    validation_low: float | None = None
    validation_high: float | None = None
    validation_n: int | None = None
    test: float | None = None
    test_low: float | None = None
    test_high: float | None = None
    test_n: int | None = None


class HarnessView(SQLModel, table=True):
    """A candidate with its newest score."""

    __tablename__ = "view_harnesses"

    run: str = Field(primary_key=True)
    candidate: str = Field(primary_key=True)
    number: int
    """In order of proposal, from 1."""
    tree: str
    parents: list[str] = Field(sa_column=Column(JSON))
    proposer: str
    cycle: int
    iteration: int
    title: str = Field(sa_type=Text)
    hypothesis: str = Field(sa_type=Text)
    axis: str = Field(sa_type=Text)
    changes: str = Field(sa_type=Text)
    valid: bool | None
    reason: str = Field(sa_type=Text)
    duplicate_of: str | None
    scores: int
    """How often it was scored, under different weights."""
    score: float | None
    low: float | None
    high: float | None
    n: int | None
    scored_under: str | None
    """Digest of the weights of the newest score."""


class RolloutView(SQLModel, table=True):
    """One counted rollout; its trajectory lies in the artifact."""

    __tablename__ = "view_rollouts"

    run: str = Field(primary_key=True)
    position: int = Field(primary_key=True)
    number: int = Field(primary_key=True)
    """Within its micro-batch, from 0."""
    batch: str
    purpose: str
    candidate: str
    weights: str
    artifact: str
    task: str
    sample: int
    reward: float
    status: str
    turns: int
    generated_tokens: int
    prompt_tokens: int
    truncated: bool
    fabricated: bool


class StepView(SQLModel, table=True):
    """One step of a weight phase."""

    __tablename__ = "view_steps"

    run: str = Field(primary_key=True)
    cycle: int = Field(primary_key=True)
    step: int = Field(primary_key=True)
    position: int
    rollouts: int
    passed: int
    kept: int
    trained_tokens: int
    updates: int
    loss: float | None
    weights: str


TABLES: tuple[type[SQLModel], ...] = (RunView, CycleView, HarnessView, RolloutView, StepView)
