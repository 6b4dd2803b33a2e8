"""A trajectory as lines: turn by turn, roles in the margin, what was sampled and what of it was trained."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from whale.rollout.types import ToolCall, Trajectory, Turn
from whale.tui.text import Line, Span, cut, line, wrap
from whale.weights.samples import drop_reason, filter_rollouts

_NAMES = {"system": "system", "user": "user", "assistant": "model", "tool": "tool"}
_MARGIN = 9
_LONGEST_RESULT = 4000


def verdict(trajectory: Trajectory) -> Line:
    """What the verifier said, in words and with a sign."""
    if trajectory.status != "ok":
        head = Span(f"✗ {trajectory.status}", "bad")
    elif trajectory.reward > 0:
        head = Span(f"✓ passed, reward {trajectory.reward:g}", "good")
    else:
        head = Span(f"✗ failed, reward {trajectory.reward:g}", "bad")
    parts = [head]
    if trajectory.truncated:
        parts.append(Span("  ✂ truncated", "warn"))
    if trajectory.fabricated:
        parts.append(Span("  ! the answer stands in text that the harness wrote", "warn"))
    return tuple(parts)


def trained_turns(trajectory: Trajectory, purpose: str, config: Mapping[str, Any]) -> set[int]:
    """The turns whose sampled tokens went into the training step, by the method's own filters.

    By GRPO they did if the question's rewards differ, which a rollout alone does not tell.
    """
    weights = config.get("weights", {})
    filters = weights.get("filters", "default")
    kept = (
        drop_reason(trajectory, filters) is None if _grpo(config) else bool(filter_rollouts([trajectory], filters)[0])
    )
    if purpose != "train" or not kept:
        return set()
    if weights.get("train_turns", "all") == "all":
        return set(range(len(trajectory.turns)))
    if trajectory.answer_turn is None:
        return set()
    last = trajectory.turns[trajectory.answer_turn].prompt_ids
    return {trajectory.answer_turn} | {
        n
        for n, turn in enumerate(trajectory.turns[: trajectory.answer_turn])
        if last[: len(turn.prompt_ids) + len(turn.output_ids)] == turn.prompt_ids + turn.output_ids
    }


def _grpo(config: Mapping[str, Any]) -> bool:
    return bool(config.get("weights", {}).get("method") == "grpo")


def transcript(trajectory: Trajectory, width: int, *, purpose: str, config: Mapping[str, Any]) -> list[Line]:
    """All lines of a trajectory for a view of `width` cells."""
    trained = trained_turns(trajectory, purpose, config)
    lines: list[Line] = [verdict(trajectory)]
    metrics = "  ".join(f"{name} {value:g}" for name, value in trajectory.metrics.items())
    if metrics:
        lines += [line((part, "muted")) for part in wrap(metrics, width)]
    if trajectory.reason:
        lines += [line((part, "bad")) for part in wrap(trajectory.reason, width)]
    said = "" if not trained else "T trained if its question's rewards differ  " if _grpo(config) else "T trained  "
    lines.append(
        line((f"in the margin: {said}S sampled by the model{', not trained' if not trained else ''}", "muted"))
    )
    start = len(lines)
    before: Sequence[Mapping[str, Any]] = ()
    for n, turn in enumerate(trajectory.turns):
        lines += [line(""), _rule(_turn_title(trajectory, n, turn), width)]
        shown, note = _new_messages(before, turn.messages)
        if note:
            lines.append(line((note, "warn")))
        for message in shown:
            lines += _message(str(message.get("role", "?")), str(message.get("content", "")), width)
        if turn.prefix:
            lines += _message("assistant", turn.prefix, width, name="opened")
        mark = "T" if n in trained else "S"
        lines += _message("assistant", turn.text, width, mark=mark)
        before = (*turn.messages, {"role": "assistant", "content": turn.prefix + turn.text})
        for call in trajectory.calls:
            if call.after_turn == n + 1:
                lines += _call(call, width)
    early = [call for call in trajectory.calls if call.after_turn == 0]
    if early:
        block: list[Line] = [line(""), _rule("before the first turn", width)]
        for call in early:
            block += _call(call, width)
        lines[start:start] = block
    return lines


def _turn_title(trajectory: Trajectory, n: int, turn: Turn) -> str:
    answer = ", the answer" if n == trajectory.answer_turn else ""
    ending = "hit its limit" if turn.finish_reason == "length" else "stopped"
    return (
        f"turn {n + 1} of {len(trajectory.turns)}{answer}: {len(turn.prompt_ids)} tokens in, "
        f"{len(turn.output_ids)} sampled, {ending}"
    )


def _rule(title: str, width: int) -> Line:
    title = cut(title, width - 4)
    return (Span(f"── {title} ", "title"), Span("─" * max(0, width - len(title) - 4), "muted"))


def _new_messages(
    before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]
) -> tuple[Sequence[Mapping[str, Any]], str]:
    """What came since the turn before; all of it where the context was rewritten."""
    if not before:
        return now, ""
    same = len(now) >= len(before) and all(
        a.get("content") == b.get("content") for a, b in zip(before, now, strict=False)
    )
    return (now[len(before) :], "") if same else (now, "the harness rewrote the context:")


def _message(role: str, text: str, width: int, *, name: str = "", mark: str = " ") -> list[Line]:
    label = name or _NAMES.get(role, role)
    colour = role if role in _NAMES else "muted"
    bar = "┃" if mark == " " else "▐"
    lines: list[Line] = []
    for n, part in enumerate(wrap(text, width - _MARGIN - 2)):
        head = f"{label if n == 0 else '':<7.7}"
        lines.append(
            (
                Span(head, colour),
                Span(mark if n == 0 else " ", "trained" if mark == "T" else "accent"),
                Span(f"{bar} ", colour),
                Span(part, "trained" if mark == "T" else ""),
            )
        )
    return lines


def _call(call: ToolCall, width: int) -> list[Line]:
    arguments = ", ".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in call.arguments.items())
    lines = _message("tool", f"{call.name}({arguments})", width, name="call")
    if call.error:
        return lines + [
            (Span(" " * 8, "tool"), Span("┃ ", "tool"), Span(part, "bad"))
            for part in wrap(f"error: {call.error}", width - _MARGIN - 2)
        ]
    result = call.result if isinstance(call.result, str) else json.dumps(call.result, ensure_ascii=False, indent=1)
    if len(result) > _LONGEST_RESULT:
        result = result[:_LONGEST_RESULT] + f"\n… {len(result) - _LONGEST_RESULT} more characters"
    return lines + _message("tool", result, width, name="result")
