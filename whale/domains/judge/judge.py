"""The judge: rubric, question, verdict.

A judge that cannot be reached is a fault of ours: `VerifierFault` rises through the rollout path, nothing of the
micro-batch is recorded, and a resumed run asks again; the verdicts that came are in the cache. A reply that is
no verdict, asked for twice, is a verdict against the answer, or one answer could stop a run for good; several
such replies in a row are a broken judge, and a fault.
"""

import hashlib
import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from whale.domains.judge.cache import CachedVerdict, VerdictCache
from whale.domains.judge.options import JudgeOptions
from whale.domains.judge.providers import Answer, JudgeModel, connect
from whale.rollout.errors import VerifierFault
from whale.rollout.models import cache_folder

MAX_UNCLEAR = 5
"""Answers in a row to which the judge gives no verdict; then it is the judge that is broken."""
MAX_CHARACTERS = 2000
"""Of each field of the question."""
_VERDICT = re.compile(r"\W*(correct|incorrect)\b", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its price, which is the same whether it came from the cache or not."""

    correct: bool
    input_tokens: int
    output_tokens: int
    unclear: bool = False
    """The judge did not say; `correct` is False."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What this process has paid the judge."""

    asked: int
    cached: int
    input_tokens: int
    output_tokens: int
    dollars: float


class Judge:
    """Judges answers; may be asked from several threads."""

    def __init__(self, options: JudgeOptions, model: JudgeModel | None = None) -> None:
        self.options = options
        self._model = model or connect(options)
        self._rubric = files("whale.domains.judge").joinpath("rubric.md").read_text(encoding="utf-8")
        self._cache = VerdictCache(Path(options.cache).expanduser() if options.cache else cache_folder() / "judge")
        self._lock = threading.Lock()
        self._unclear = 0
        self._asked = self._cached = self._input = self._output = 0

    @property
    def identity(self) -> dict[str, object]:
        """What decides a verdict, beside the question: it belongs into a fingerprint."""
        options = self.options
        return {
            "rubric": hashlib.sha256(self._rubric.encode()).hexdigest(),
            "provider": options.provider,
            "model": options.model,
            "server": options.base_url,
            "temperature": 0,
            "max_tokens": options.max_tokens,
        }

    def judge(self, question: str, answers: Sequence[str], given: str) -> Judgement:
        """Whether `given` means one of `answers`. Raises VerifierFault where there is no verdict to be had."""
        asked = {"question": question, "answers": list(answers), "given": given}
        key = self._cache.key({**self.identity, **asked})
        known = self._cache.get(key)
        if known is not None:
            with self._lock:
                self._cached += 1
            return Judgement(known.correct, known.input_tokens, known.output_tokens)
        prompt = self._prompt(question, answers, given)
        first = self._ask(prompt)
        verdict, tokens = read_verdict(first.text), (first.input_tokens, first.output_tokens)
        if verdict is None:
            second = self._ask(prompt)
            verdict = read_verdict(second.text)
            tokens = (tokens[0] + second.input_tokens, tokens[1] + second.output_tokens)
        self._count_unclear(verdict is None, first.text)
        if verdict is None:
            return Judgement(False, *tokens, unclear=True)
        self._cache.put(key, CachedVerdict(verdict, first.text, *tokens))
        return Judgement(verdict, *tokens)

    def preflight(self) -> None:
        """Ask one question whose verdict is known. Raises VerifierFault if the judge does not give it."""
        reply = self._ask(self._prompt("What is the capital of France?", ["Paris"], "Paris")).text
        if read_verdict(reply) is not True:
            raise VerifierFault(
                f"the judge {self.options.model} does not follow the rubric: asked whether Paris is Paris, "
                f"it said {reply[:80]!r}"
            )

    def spent(self) -> Spent:
        """What this process has paid so far."""
        with self._lock:
            dollars = (self._input * self.options.price_input + self._output * self.options.price_output) / 1e6
            return Spent(self._asked, self._cached, self._input, self._output, dollars)

    def _ask(self, prompt: str) -> Answer:
        answer = self._model.ask(prompt)
        with self._lock:
            self._asked += 1
            self._input += answer.input_tokens
            self._output += answer.output_tokens
        return answer

    def _prompt(self, question: str, answers: Sequence[str], given: str) -> str:
        # JSON strings: whatever the answer says, it ends where it ends.
        fields = {
            "question": json.dumps(question[:MAX_CHARACTERS], ensure_ascii=False),
            "answers": json.dumps([answer[:MAX_CHARACTERS] for answer in answers], ensure_ascii=False),
            "given": json.dumps(given[:MAX_CHARACTERS], ensure_ascii=False),
        }
        text = re.sub(r"\{(question|answers|given)\}", lambda match: fields[match.group(1)], self._rubric)
        return text.encode("utf-8", "backslashreplace").decode("utf-8")

    def _count_unclear(self, unclear: bool, reply: str) -> None:
        with self._lock:
            self._unclear = self._unclear + 1 if unclear else 0
            if self._unclear < MAX_UNCLEAR:
                return
            self._unclear = 0
        raise VerifierFault(
            f"the judge {self.options.model} gave no verdict on {MAX_UNCLEAR} answers in a row; it said {reply[:80]!r}"
        )


def read_verdict(reply: str) -> bool | None:
    """The verdict that a reply begins with, or None."""
    match = _VERDICT.match(reply[:MAX_CHARACTERS])
    return None if match is None else match.group(1).lower() == "correct"
