"""What a GEPA session pays: its reflections and rollouts, each recorded once, counted, and within the budget."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from whale.rollout.types import Trajectory
from whale.search.agentic.budget import Budget, Prices
from whale.search.agentic.service import ServiceModel
from whale.search.agentic.types import Block, Clock, SessionResult, Suspended, Usage, Workbench
from whale.search.gepa.adapter import NoText, OverBudget
from whale.search.types import Proposal


class Left(BaseException):
    """Carries an exception of ours past GEPA, which catches every Exception around a reflection and goes on."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


class Ledger:
    """The one way to the model and to rollouts."""

    def __init__(
        self,
        model: ServiceModel,
        bench: Workbench,
        budget: Budget,
        prices: Prices,
        system: str,
        key: str,
        clock: Clock,
    ) -> None:
        self.model = model
        self.bench = bench
        self.budget = budget
        self.prices = prices
        self.system = system
        self.key = key
        self.clock = clock
        self.used = Usage()
        self.dollars = 0.0
        self.seconds = 0.0
        self.turn = 0
        self.trials = 0
        self.batches = 0
        self.refused = False
        self.lines: list[dict[str, Any]] = [{"system": system}] if system else []

    def reflect(self, prompt: Any) -> str:
        """One reply of the model: GEPA's `reflection_lm`."""
        try:
            return self._reflect(str(prompt))
        except Exception as error:
            raise Left(error) from error

    def _reflect(self, prompt: str) -> str:
        self.check()
        self.turn += 1
        message: Block = {"role": "user", "content": [{"type": "text", "text": prompt}]}
        paid = self.bench.recorded(self.turn)
        if paid is None:
            if self.bench.leave():
                raise Suspended
            started = self.clock()
            reply = self.model.reply(self.system, [message], [], self.bench)
            took = self.clock() - started
            self.bench.record(self.turn, reply, self.prices.of(reply.usage), took)
        else:
            reply, took = paid
        self.seconds += took
        self.used, self.dollars = self.used.plus(reply.usage), self.dollars + self.prices.of(reply.usage)
        self.lines += [message, {"role": "assistant", "content": reply.content, "stop_reason": reply.stop_reason}]
        self.refused = reply.stop_reason == "refusal"
        text = "\n".join(block["text"] for block in reply.content if block["type"] == "text")
        # Half a text is no text, and words around none are no prompt.
        if reply.stop_reason in ("max_tokens", "refusal") or text.count("```") < 2:
            raise NoText(reply.stop_reason)
        return text

    def rollouts(self, files: Mapping[str, bytes], tasks: Sequence[str]) -> Sequence[Trajectory]:
        """Rollouts on training tasks; recorded under a key that a replay finds again."""
        self.trials += len(tasks)
        self.batches += 1
        started = self.clock()
        found = self.bench.rollouts(f"{self.key}/try/{self.batches:04d}", files, tasks)
        self.seconds += self.clock() - started
        self.note({"tasks": list(tasks), "rewards": [trajectory.reward for trajectory in found]})
        return found

    def check(self, trials: int = 0) -> None:
        """Raise OverBudget if one is used up, or if so many rollouts are no longer in it.

        Asked before a step and before its reflection: what a paid reply wrote is always tried.
        """
        if self.trials + trials > self.budget.trials > 0:
            raise OverBudget("trials")
        over = self.budget.over(self.dollars, self.used.total, self.batches, self.seconds)
        if over:
            raise OverBudget(over)

    def note(self, fact: dict[str, Any]) -> None:
        """A line of the transcript."""
        self.lines.append(fact)

    def result(self, proposals: tuple[Proposal, ...], outcome: str) -> SessionResult:
        """How the session ended; a batch of rollouts counts as a call of a tool."""
        text = "".join(json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n" for line in self.lines)
        transcript = text.encode("utf-8", "backslashreplace")
        return SessionResult(proposals, outcome, self.turn, self.batches, self.used, self.dollars, transcript)
