"""The proposer `gepa`: one iteration is some of GEPA's steps over the prompts of the archive's harnesses.

GEPA's loop is kept and its parts are spread over ours. Its feedback set is D_weight: a step draws a parent from the
Pareto front and a minibatch, runs the parent, reflects on the rollouts and runs the rewritten harness on the same
tasks and seeds. Its Pareto set is D_harness: a rewritten harness that did better on its minibatch is handed over,
and the search's own scoring is GEPA's full evaluation. So the pool is the archive itself, which outlives a crash.
"""

import random
import time
from pathlib import Path
from typing import Any, Literal

from whale.errors import UsageError
from whale.search.agentic.anthropic_model import AnthropicModel
from whale.search.agentic.connection import ModelOptions, connect, parse
from whale.search.agentic.openai_model import OpenAIModel
from whale.search.agentic.proposers import read_text, session_key
from whale.search.agentic.service import ServiceModel
from whale.search.agentic.types import Clock, SessionResult, Workbench
from whale.search.gepa.ledger import Ledger
from whale.search.gepa.pool import pool
from whale.search.gepa.steps import Steps
from whale.search.types import Archive

TEMPLATE = Path(__file__).parent / "reflection.md"

_PROTOCOLS: dict[str, tuple[type[ServiceModel], str]] = {
    "anthropic": (AnthropicModel, "ANTHROPIC_API_KEY"),
    "openai": (OpenAIModel, "OPENAI_API_KEY"),
}


class GepaOptions(ModelOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[search.options] of the proposer `gepa`."""

    protocol: Literal["anthropic", "openai"] = "anthropic"
    """How the model that reflects is spoken to."""
    minibatch: int = 3
    """Training tasks of a step, as in GEPA's own default."""
    steps: int = 10
    """Steps of an iteration, at most."""
    test: bool = True
    """Hand over only what did better on its minibatch, as GEPA does; false: hand over every rewritten harness."""
    template: str = ""
    """Path of a reflection prompt of your own, with <curr_param>, <side_info>, and FENCE for the session's word."""


class GepaProposer:
    """GEPA over the prompts."""

    name = "gepa"

    def __init__(self, **options: Any) -> None:
        self.options = chosen = parse(options, GepaOptions)
        if chosen.minibatch < 1 or chosen.steps < 1:
            raise ValueError("minibatch and steps must be at least 1")
        try:
            import gepa  # noqa: F401
        except ImportError:
            raise UsageError('the proposer "gepa" needs the package: pip install "whale-evolve[gepa]"') from None
        make, key_env = _PROTOCOLS[chosen.protocol]
        self.model = connect(chosen, make, key_env)
        self.template = read_text(chosen.template) if chosen.template else TEMPLATE.read_text(encoding="utf-8")
        self.system = read_text(chosen.system) if chosen.system else ""
        for placeholder in ("<curr_param>", "<side_info>"):
            if placeholder not in self.template:
                raise ValueError(f"the template {chosen.template} has no {placeholder}")

    def preflight(self) -> None:
        """Look whether the service answers and takes the key."""
        self.model.preflight()

    def session(
        self,
        archive: Archive,
        bench: Workbench,
        *,
        count: int,
        seed: int,
        cycle: int,
        iteration: int,
        clock: Clock = time.monotonic,
    ) -> SessionResult:
        """Make steps until `count` harnesses are handed over (see `SessionProposer`).

        Everything but the model's replies and the rollouts follows from the seed, and those are recorded: a session
        that was left is played again up to where it was.
        """
        options = self.options
        fence = bench.fence()
        ledger = Ledger(
            self.model, bench, options.budget, options.prices, self.system, session_key(cycle, iteration), clock
        )
        found = pool(archive)
        if found is None:
            return ledger.result((), "no harness has a prompt that could be rewritten")
        if not bench.training_tasks():
            return ledger.result((), "D_weight has no task on which a text could be tried")
        steps = Steps(
            found,
            ledger,
            bench,
            template=self.template.replace("FENCE", fence),
            fence=fence,
            minibatch=options.minibatch,
            test=options.test,
            rng=random.Random(seed),
        )
        outcome = steps.run(count, options.steps)
        return ledger.result(steps.proposals(count), outcome)
