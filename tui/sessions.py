"""What a proposer did in an iteration, as lines: its session's cost, its candidates, and every word and tool call."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whale.alternation.state import Candidate, State
from whale.events import types as ev
from whale.tui.text import Line, Span, counted, cut, duration, facts_table, line, measure, money, share, thousands, wrap
from whale.tui.views.base import SIGNS, fate

MARGIN = 9
LONGEST = 6000
"""Characters of one text of a transcript; the rest is counted, and lies in the artifact."""

_ROLES = {
    "system": ("system", "system"), "user": ("run", "user"), "assistant": ("model", "assistant"),
    "tool": ("result", "tool"),
}  # fmt: skip
"""Role in a transcript -> what stands in the margin, and its role."""


@dataclass(frozen=True, slots=True)
class Session:
    """A model's session as a proposer: its paid replies, and how it ended."""

    replies: tuple[ev.ProposerReplied, ...]
    seconds: float
    """Spent waiting for the model."""
    ended: ev.ProposerSessionEnded | None

    @property
    def dollars(self) -> float:
        """Paid so far."""
        return sum(reply.dollars for reply in self.replies)

    @property
    def tokens(self) -> tuple[int, int, int]:
        """(read, of these from the cache, written)."""
        cached = sum(reply.cache_read_tokens for reply in self.replies)
        fresh = sum(reply.input_tokens + reply.cache_write_tokens for reply in self.replies)
        return fresh + cached, cached, sum(reply.output_tokens for reply in self.replies)


@dataclass(frozen=True, slots=True)
class Iteration:
    """One round of proposals."""

    cycle: int
    number: int
    candidates: tuple[Candidate, ...]
    session: bool
    """A model worked on it in a session."""

    @property
    def key(self) -> tuple[int, int]:
        """(cycle, iteration)."""
        return self.cycle, self.number


def iterations(state: State, sessions: Sequence[tuple[int, int]]) -> list[Iteration]:
    """Every round of proposals, newest first. h0 is in none."""
    rounds: dict[tuple[int, int], list[Candidate]] = {key: [] for key in sessions}
    for candidate in state.candidates.values():
        if candidate.iteration:
            rounds.setdefault((candidate.cycle, candidate.iteration), []).append(candidate)
    known = set(sessions)
    return [Iteration(*key, tuple(rounds[key]), key in known) for key in sorted(rounds, reverse=True)]


def row(found: Iteration, state: State, ever: set[str], width: int) -> Line:
    """One line of the list: the round, who proposed, and what became of each candidate."""
    who = ", ".join(dict.fromkeys(c.proposer for c in found.candidates)) or str(_proposer(state))
    signs = [Span(*SIGNS[fate(state, c, ever)]) for c in found.candidates[:12]]
    if len(found.candidates) > 12:
        signs.append(Span("…", "muted"))
    best = max((c.scores[-1].score for c in found.candidates if c.scores), default=None)
    parts = [Span(f"c{found.cycle:03d}-i{found.number:02d}  "), *signs, Span(" " * (14 - len(signs)))]
    if not found.candidates:
        parts = [parts[0], Span("no candidate yet  ", "warn")]
    parts.append(Span(f"{share(best):>7}  " if best is not None else "", "strong"))
    return (*parts, Span(cut(who, max(0, width - measure(tuple(parts)))), "muted"))


def _proposer(state: State) -> object:
    return state.config.get("search", {}).get("proposer", "")


def head_lines(found: Iteration, session: Session | None, state: State, ever: set[str], width: int) -> list[Line]:
    """How the session went and what it cost; then the candidates of the round."""
    lines: list[Line] = []
    if session is not None:
        lines += _cost_lines(session, width)
    elif not found.session:
        lines += [
            line((part, "muted"))
            for part in wrap("No model worked in a session here: what was proposed is all that there is.", width)
        ]
    count = len(found.candidates)
    lines += [line(""), line((counted(count, "candidate"), "title"))]
    for c in found.candidates:
        sign, role = SIGNS[fate(state, c, ever)]
        score = f"{share(c.scores[-1].score):>7}" if c.scores else f"{fate(state, c, ever):>7.7}"
        lines.append(line((f"{sign} ", role), (f"{c.id:<12} ", "strong"), f"{score}  ", cut(c.title, width - 24)))
        lines += [line("  ", (part, "muted")) for part in wrap(c.hypothesis, width - 2)] if c.hypothesis else []
        if c.valid is False:
            lines += [line("  ", (part, "bad")) for part in wrap(c.reason, width - 2)]
    return lines


def _cost_lines(session: Session, width: int) -> list[Line]:
    ended, replies = session.ended, session.replies
    read, cached, written = session.tokens
    calls = sum(reply.tool_calls for reply in replies)
    if ended is None:
        how = line(("… it goes on", "warn"), (f", turn {replies[-1].turn}" if replies else "", "muted"))
    else:
        good = ended.outcome == "submitted"
        how = line(
            (("✓ " if good else "! ") + ended.outcome, "good" if good else "warn"),
            f": {counted(ended.proposed, 'candidate')}",
        )
    models = ", ".join(dict.fromkeys(reply.model for reply in replies))
    paid = money(session.dollars) if session.dollars else "no price in the config"
    return facts_table(
        [
            ("ended", how),
            ("model", line(cut(models, width - 9))),
            (
                "work",
                line(f"{counted(len(replies), 'turn')}, {counted(calls, 'tool call')}, {duration(session.seconds)}"),
            ),
            (
                "tokens",
                line(
                    f"{thousands(read)} read",
                    (f" ({thousands(cached)} cached)", "muted"),
                    f", {thousands(written)} written",
                ),
            ),
            ("paid", line(paid)),
        ],
        label=9,
    )


def transcript_lines(content: bytes, width: int) -> list[Line]:
    """A session's artifact: JSON lines of messages; a line that is none is shown as it is."""
    lines: list[Line] = []
    turn = 0
    for text in content.decode("utf-8", "replace").splitlines():
        try:
            fact = json.loads(text)
        except ValueError:
            fact = text
        if isinstance(fact, dict) and fact.get("role") == "assistant":
            turn += 1
            lines += [line(""), _rule(f"turn {turn}{_stopped(fact.get('stop_reason'))}", width)]
        lines += _fact(fact, width)
    return lines


def replies_lines(contents: Sequence[bytes], width: int) -> list[Line]:
    """The replies of a session that goes on: the model's side alone is recorded yet."""
    lines: list[Line] = [line(("the tools' results are shown when the session has ended", "muted"))]
    for n, content in enumerate(contents, 1):
        reply = json.loads(content)
        lines += [line(""), _rule(f"turn {n}{_stopped(reply.get('stop_reason'))}", width)]
        lines += _fact({"role": "assistant", "content": reply.get("content", [])}, width)
    return lines


def _stopped(reason: object) -> str:
    return f": {reason}" if reason not in (None, "", "tool_use", "end_turn") else ""


def _rule(title: str, width: int) -> Line:
    title = cut(title, width - 4)
    return (Span(f"── {title} ", "title"), Span("─" * max(0, width - len(title) - 4), "muted"))


def _fact(fact: Any, width: int) -> list[Line]:
    if isinstance(fact, dict) and "system" in fact:
        return _said("system", "system", str(fact["system"]), width)
    if isinstance(fact, dict) and "role" in fact:
        label, role = _ROLES.get(str(fact["role"]), (str(fact["role"]), "muted"))
        content = fact.get("content", "")
        if isinstance(content, str):
            named = f"{fact['name']}: " if fact.get("name") else ""
            return _said(label, "bad" if fact.get("is_error") else role, named + content, width)
        lines: list[Line] = []
        for block in content:
            lines += _block(block, label, role, width)
        return lines
    if isinstance(fact, dict):
        return _said("noted", "muted", "\n".join(f"{key}: {_plain(value)}" for key, value in fact.items()), width)
    return _said("noted", "muted", str(fact), width)


def _block(block: Mapping[str, Any], label: str, role: str, width: int) -> list[Line]:
    kind = block.get("type")
    if kind == "text":
        return _said(label, role, str(block.get("text", "")), width)
    if kind == "thinking":
        return _said("thinks", "muted", str(block.get("thinking", "")), width)
    if kind == "tool_use":
        given = block.get("input") or {}
        short = {k: v for k, v in given.items() if "\n" not in str(v)}
        head = ", ".join(f"{k}={_plain(v)}" for k, v in short.items())
        lines = _said("call", "tool", f"{block.get('name', '?')}({head})", width)
        for name, value in given.items():
            if name not in short:  # a file's text: as it was written
                lines += _said(f"{name}:", "muted", str(value), width)
        return lines
    if kind == "tool_result":
        content = block.get("content", "")
        if not isinstance(content, str):
            content = "\n".join(str(part.get("text", _plain(part))) for part in content)
        return _said(
            "error" if block.get("is_error") else "result", "bad" if block.get("is_error") else "tool", content, width
        )
    return _said(str(kind), "muted", _plain(block), width)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _said(label: str, role: str, text: str, width: int) -> list[Line]:
    more = len(text) - LONGEST
    if more > 0:
        text = f"{text[:LONGEST]}\n… {more} more characters, in the session's artifact"
    shown = f"{label:<{MARGIN - 2}.{MARGIN - 2}} "
    return [
        (
            Span(shown if n == 0 else " " * len(shown), role),
            Span("┃ ", role),
            Span(part, "muted" if role == "muted" else ""),
        )
        for n, part in enumerate(wrap(text.rstrip("\n"), width - MARGIN - 1))
    ]
