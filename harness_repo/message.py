"""Commit messages: facts as trailers that we compose, a proposer's words as quoted text.

Whatever a proposer writes can be read, and can be read as nothing else: each of its lines is quoted, so that
none stands where git, or anybody with grep, looks for a trailer.
"""

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime

from whale.harness_repo.errors import RepoError

TITLE_LIMIT = 100
"""Characters of a title in the subject line."""
TEXT_LIMIT = 4_000
"""Characters of each of a proposer's texts in the message; the event log keeps the whole text."""

_CANDIDATE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,99}")
_RESERVED = re.compile(r"accepted|HEAD|c\d+|[0-9a-f]{40}")
_NUMBERS = re.compile(r"(\d+)")
_KEY = re.compile(r"Whale-[A-Z][a-z]+")
_KEYS = {
    f"Whale-{name}" for name in ("Run", "Candidate", "Cycle", "Iteration", "Proposer", "Event", "Position", "Serial")
}
"""The keys that we write: a quick look before the pattern, for ten thousand commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFacts:
    """What is known when a commit is made. `title`, `hypothesis`, `axis` and `changes` are untrusted."""

    run: str
    cycle: int
    iteration: int
    proposer: str
    title: str = ""
    hypothesis: str = ""
    axis: str = ""
    changes: str = ""
    event_hash: str = ""
    """Hash of the event that asked for the commit."""
    log_position: int | None = None
    """Position of that event in the log. With the hash, Git is a witness of the log up to there."""
    when: datetime
    """Aware; the commit's date, so that the same facts give the same commit."""

    def __post_init__(self) -> None:
        if self.when.tzinfo is None:
            raise RepoError("CommitFacts.when needs a time zone")
        if self.when.timestamp() < 0:
            raise RepoError("CommitFacts.when is before 1970, which git cannot store")

    @property
    def seconds(self) -> int:
        """Whole seconds since 1970."""
        return int(self.when.astimezone(UTC).timestamp())


def check_candidate(candidate: str) -> str:
    """The id itself, if it can name a ref and cannot be taken for another name.

    Raises:
        RepoError: it cannot.
    """
    ok = _CANDIDATE.fullmatch(candidate) and not candidate.endswith((".", ".lock"))
    if not ok or _RESERVED.fullmatch(candidate):
        raise RepoError(
            f"{candidate!r} cannot name a candidate: use up to 100 letters, digits, '.', '_' and '-', "
            "and neither 'accepted', 'HEAD', a cycle such as c003 nor a commit id"
        )
    return candidate


def visible(text: str, *, keep: str = "\n\t") -> str:
    """`text` with everything that could steer a terminal or hide itself replaced by U+FFFD.

    That is control and format characters (escape sequences, NUL, bidirectional overrides), lone
    surrogates and line separators other than those in `keep`.
    """
    if text.isprintable():  # the quick way for nearly all text
        return text
    return "".join(
        c if c in keep or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") else "\ufffd"
        for c in text
    )


def one_line(text: str, limit: int) -> str:
    """`text` as one visible line of at most `limit` characters."""
    if len(text) <= limit and text.isprintable() and "  " not in text and text == text.strip():
        return text  # the quick way for nearly all text
    # Cut first: a megabyte of text costs no more than what is kept of it.
    words = " ".join(visible(" ".join(text[: 4 * limit].split()), keep="").split())
    return words if len(words) <= limit and len(text) <= 4 * limit else words[: limit - 1] + "…"


def compose(candidate: str, facts: CommitFacts, *, serial: int | None = None) -> str:
    """The message of a candidate's commit or, with a `serial`, of an acceptance."""
    title = one_line(facts.title, TITLE_LIMIT)
    subject = candidate if serial is None else f"accept {candidate}"
    paragraphs = [f"{subject}: {title}" if title else subject]
    if serial is None:
        for name in ("hypothesis", "axis", "changes"):
            text = getattr(facts, name)
            if text.strip():
                paragraphs.append(f"{name.capitalize()}\n{_quoted(text)}")
    trailers = {
        "Run": one_line(facts.run, TITLE_LIMIT),
        "Candidate": candidate,
        "Cycle": str(facts.cycle),
        "Iteration": str(facts.iteration),
        "Proposer": one_line(facts.proposer, TITLE_LIMIT),
        "Event": one_line(facts.event_hash, TITLE_LIMIT),
        "Position": "" if facts.log_position is None else str(facts.log_position),
        "Serial": "" if serial is None else str(serial),
    }
    paragraphs.append("\n".join(f"Whale-{key}: {value}" for key, value in trailers.items() if value))
    return "\n\n".join(paragraphs) + "\n"


def _quoted(text: str) -> str:
    kept = visible(text[:TEXT_LIMIT].replace("\r\n", "\n").replace("\r", "\n"))
    lines = [f"> {line}".rstrip() for line in kept.strip("\n").split("\n")]
    if len(text) > TEXT_LIMIT:
        lines.append(f"(cut: {len(text) - TEXT_LIMIT:,} more characters are in the event log)")
    return "\n".join(lines)


def trailers(message: str) -> dict[str, str]:
    """Our trailers of a message, keys without `Whale-`; empty if its last paragraph is not all ours."""
    last = message.rstrip("\n").rsplit("\n\n", 1)
    if len(last) < 2:
        return {}
    found: dict[str, str] = {}
    for line in last[1].split("\n"):
        key, sep, value = line.partition(": ")
        if not sep or (key not in _KEYS and not _KEY.fullmatch(key)):
            return {}
        found[key[6:]] = value
    return found


def title_of(message: str) -> str:
    """The proposer's title in a message that `compose` made."""
    return message.split("\n", 1)[0].partition(": ")[2]


def text_of(message: str) -> str:
    """The proposer's texts, quoted, in a message that `compose` made: between the subject and the trailers."""
    return message.partition("\n\n")[2].rpartition("\n\n")[0]


def natural(text: str) -> tuple[tuple[int, int | str], ...]:
    """A sort key that puts m2 before m10."""
    # Every second part is a number.
    parts = _NUMBERS.split(text)
    return tuple([(0, int(part)) if at % 2 else (1, part) for at, part in enumerate(parts)])
