"""From recorded turns to training samples, and which rollouts are trained on.

A sample's mask is 1 exactly where the model sampled the token: I(τ) of the paper's equation. Nothing is
re-tokenised here; the ids are the ones that the engine saw and gave, and so are the logprobs.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from whale.errors import UsageError
from whale.rollout.types import Trajectory, Turn
from whale.weights.types import Sample

TrainTurns = Literal["all", "answer"]
FilterMode = Literal["default", "paper"]
DropReason = Literal["errored", "truncated", "empty"]


@dataclass(slots=True)
class _Chain:
    """A context that grows turn by turn."""

    ids: tuple[int, ...]
    mask: list[bool]
    logprobs: list[float]
    """As they were recorded; 0 where the mask is."""


def samples_from(
    trajectory: Trajectory, train_turns: TrainTurns = "all", advantage: float | None = None
) -> list[Sample]:
    """Return the samples of one rollout; each token that the model sampled has mask 1 in exactly one.

    A turn whose prompt starts with everything that an earlier turn saw and sampled continues that sample;
    any other turn (a rewritten, shortened or parallel context) begins a new one. Where a fork repeats
    tokens that an earlier sample trains on, they are context there, mask 0. Prompts, tool results, opened
    prefixes and assistant text that the harness wrote have mask 0; a sampled stop token has mask 1.

    `train_turns="answer"` trains only the answer turn and the turns that its prompt continues (a vote's
    losing replies are left out): at most one sample, none without an answer turn. Turns that sampled
    nothing give no sample. With `advantage` each sample carries it, and the logprobs recorded at sampling.
    Raises ValueError for a turn without a prompt.
    """
    if any(not turn.prompt_ids for turn in trajectory.turns):
        raise ValueError(f"task {trajectory.task_id}: a turn has no prompt, so nothing predicts its first token")
    if train_turns == "all":
        chains = _chains(trajectory.turns)
    elif train_turns == "answer":
        answer = trajectory.answer_turn
        chains = [] if answer is None else [_answer_chain(trajectory.turns, answer)]
    else:
        raise UsageError(f'train_turns = {train_turns!r}: it is "all" or "answer"')
    return [
        Sample(chain.ids, tuple(chain.mask), advantage, () if advantage is None else tuple(chain.logprobs))
        for chain in chains
        if any(chain.mask)
    ]


def _chains(turns: Sequence[Turn]) -> list[_Chain]:
    chains: list[_Chain] = []
    for turn in turns:
        # After a fork several contexts may fit: the longest is the one that this prompt continues.
        chain = max(
            (chain for chain in chains if turn.prompt_ids[: len(chain.ids)] == chain.ids),
            key=lambda chain: len(chain.ids),
            default=None,
        )
        if chain is None:
            chain = _Chain((), [], [])
            chains.append(chain)
        known = len(chain.ids)
        chain.ids = turn.prompt_ids + turn.output_ids
        chain.mask += [False] * (len(turn.prompt_ids) - known) + [True] * len(turn.output_ids)
        chain.logprobs += [0.0] * (len(turn.prompt_ids) - known) + list(turn.logprobs)
    return chains


def _answer_chain(turns: Sequence[Turn], answer: int) -> _Chain:
    last = turns[answer]
    mask = [False] * len(last.prompt_ids) + [True] * len(last.output_ids)
    logprobs = [0.0] * len(last.prompt_ids) + list(last.logprobs)
    for turn in turns[:answer]:
        seen, sampled = len(turn.prompt_ids), turn.prompt_ids + turn.output_ids
        # Two replies with equal tokens under an equal prompt are one context: marked once.
        if last.prompt_ids[: len(sampled)] == sampled:
            mask[seen : len(sampled)] = [True] * len(turn.output_ids)
            logprobs[seen : len(sampled)] = turn.logprobs
    return _Chain(last.prompt_ids + last.output_ids, mask, logprobs)


def filter_rollouts(
    trajectories: Sequence[Trajectory], mode: FilterMode = "default"
) -> tuple[list[Trajectory], dict[str, int]]:
    """Return S+, in the order given, and how many passed rollouts were dropped, by the first reason found.

    "paper": S+ is every rollout with R = 1. "default" drops of these the errored ones (a status other
    than ok), the truncated ones (the final turn hit its token limit) and those whose answer is empty.
    Rollouts that did not pass are in neither.
    """
    passed = [trajectory for trajectory in trajectories if trajectory.reward >= 1]
    reasons = [drop_reason(trajectory, mode) for trajectory in passed]
    dropped = Counter[str](reason for reason in reasons if reason is not None)
    kept = [trajectory for trajectory, reason in zip(passed, reasons, strict=True) if reason is None]
    return kept, {reason: dropped[reason] for reason in sorted(dropped)}


def drop_reason(trajectory: Trajectory, mode: FilterMode = "default") -> DropReason | None:
    """Why a rollout is not trained on, whatever its reward; None if nothing speaks against it."""
    if mode not in ("default", "paper"):
        raise UsageError(f'filter = {mode!r}: it is "default" or "paper"')
    if mode == "paper":
        return None
    if trajectory.status != "ok":
        return "errored"
    if trajectory.truncated:
        return "truncated"
    completion = trajectory.completion
    if completion is None or not completion.sampled.strip():
        return "empty"
    return None
