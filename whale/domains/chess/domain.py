"""Chess as a domain: splits of a puzzle database, the environment's tools, the verifier, h0."""

import dataclasses
import hashlib
import heapq
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from importlib.resources import files
from typing import Any

from whale.domains.base import SPLITS, Split, Task, ToolFunction, Verdict
from whale.domains.chess import environment, verifier
from whale.domains.chess.board import colour, legal_moves, python_chess
from whale.domains.chess.database import HUB, Filter, Row, game_of, puzzle_of, rows_of
from whale.domains.chess.leak import LeakCheck
from whale.domains.chess.puzzle import Puzzle, positions, right_moves
from whale.domains.chess.report import UCI, chance_shown, no_skill
from whale.domains.chess.splits import draw, split_of, without_duplicates
from whale.domains.tree import read_tree
from whale.errors import UsageError
from whale.rollout.types import Action, Completion, Trajectory

VERIFIER_VERSION = "chess-line-1"
"""Part of the fingerprint: another rule of the game is another domain."""
SPARE = 1.3
"""How many times a split's size is read of a database, so that it is full after duplicates are dropped."""
FEW_MOVES = 3
"""A text that names a right move among so many legal ones at most has singled it out."""


@dataclass(frozen=True, slots=True)
class ChessOptions:
    """What a config may say about the domain. Sizes cap a split by a seeded choice; None keeps all of it."""

    source: str = ""
    """A database in Lichess's format: a .csv, .csv.zst or .parquet file, a folder of these, or "hub:OWNER/NAME".
    Empty: the puzzles that come with the domain."""
    weight: int | None = None
    harness: int | None = None
    validation: int | None = None
    test: int | None = None
    max_plies: int = 9
    """Of a line, the opponent's replies counted."""
    min_rating: int | None = None
    max_rating: int | None = None
    themes: tuple[str, ...] = ()
    """Of a database's own words: a puzzle needs one of these; empty takes all."""
    seed: int = 0
    """Of the choice and the order inside a split; which game is in which split is fixed."""

    def __post_init__(self) -> None:
        """Reject what no database can satisfy; raises UsageError."""
        if not isinstance(self.source, str):
            raise UsageError(f"chess: source must be a path or hub:OWNER/NAME, not {self.source!r}")
        if self.source.startswith(HUB) and not re.fullmatch(
            r"[\w.-]+/[\w.-]+", self.source.removeprefix(HUB), re.ASCII
        ):
            raise UsageError(f"chess: source must name a data set of the hub as {HUB}OWNER/NAME, not {self.source!r}")
        for name in (*SPLITS, "max_plies"):
            size = getattr(self, name)
            if (size is not None or name == "max_plies") and (not _whole(size) or size < 1):
                raise UsageError(f"chess: {name} must be a whole number of at least 1, not {size!r}")
        for name in ("min_rating", "max_rating"):
            if getattr(self, name) is not None and not _whole(getattr(self, name)):
                raise UsageError(f"chess: {name} must be a whole number, not {getattr(self, name)!r}")
        if (self.min_rating or 0) > (self.max_rating if self.max_rating is not None else float("inf")):
            raise UsageError(f"chess: min_rating {self.min_rating} is above max_rating {self.max_rating}")
        if not _whole(self.seed):
            raise UsageError(f"chess: seed must be a whole number, not {self.seed!r}")
        if not all(isinstance(theme, str) and theme.strip() for theme in self.themes):
            raise UsageError(f"chess: themes must be a list of words, not {list(self.themes)}")

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> "ChessOptions":
        """From a config table; raises UsageError that names an unknown key and the known ones."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise UsageError(f"chess: unknown option {unknown[0]!r}; known: {', '.join(known)}")
        themes = options.get("themes", ())
        if not isinstance(themes, list | tuple):
            raise UsageError(f"chess: themes must be a list of words, not {themes!r}")
        return cls(**{**options, "themes": tuple(themes)})

    @property
    def filter(self) -> Filter:
        """Which rows are used."""
        return Filter(self.max_plies, self.min_rating, self.max_rating, self.themes)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class ChessDomain:
    """Puzzles with one line that solves them."""

    name = "chess"

    def __init__(self, options: ChessOptions | None = None) -> None:
        python_chess()
        self.options = options or ChessOptions()
        source = self.options.source or str(files("whale.domains.chess").joinpath("puzzles.csv"))
        self._puzzles: dict[str, Puzzle] = {}
        self._splits: dict[Split, tuple[Task, ...]] = {}
        for split, puzzles in choose(rows_of(source), self.options).items():
            if not puzzles:
                raise UsageError(f"chess: these options leave no puzzle in the {split} split")
            self._puzzles |= {puzzle.id: puzzle for puzzle in puzzles}
            self._splits[split] = tuple(_task(puzzle) for puzzle in puzzles)

    def splits(self) -> Mapping[Split, Sequence[Task]]:
        """The four splits; no two share a game, a position or a mirror image of one."""
        return self._splits

    def puzzle(self, task: Task) -> Puzzle:
        """The puzzle of a task of this domain."""
        return self._puzzles[task.id]

    @cached_property
    def _fingerprint(self) -> str:
        content = {
            "verifier": VERIFIER_VERSION,
            "splits": {split: [asdict(task) for task in tasks] for split, tasks in sorted(self._splits.items())},
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def fingerprint(self) -> str:
        """SHA-256 over all tasks and the version of the verifier's rules."""
        return self._fingerprint

    def h0(self) -> Mapping[str, bytes]:
        """The initial harness: the legal moves in one line, one worked example, a move a turn."""
        return read_tree(files("whale.domains.chess").joinpath("h0"))

    def tools(self, task: Task) -> Mapping[str, ToolFunction]:
        """`position()`, `moves()` and `play(reply)`; see `environment.tools`."""
        return environment.tools(self.puzzle(task))

    def verify(self, task: Task, completion: Completion) -> Verdict:
        """The whole line or nothing; see `verifier.verify`."""
        return verifier.verify(self.puzzle(task), completion)

    def references(self, task: Task) -> Sequence[Completion]:
        """The line, its moves played one after the other and the last one as the answer."""
        own = self.puzzle(task).line[::2]
        replies = [Completion("", f"<move>{move}</move>", turn) for turn, move in enumerate(own)]
        *before, last = replies
        return [dataclasses.replace(last, actions=tuple(Action(verifier.PLAY, reply) for reply in before))]

    def answer_in(self, task: Task, text: str) -> bool:
        """Whether a text singles a right move out: it names one, and few other legal moves of that position.

        A list of all legal moves holds the answer and gives nothing away, so holding it is not enough.
        """
        puzzle = self.puzzle(task)
        named = set(UCI.findall(text))
        return bool(named) and any(
            named & right_moves(fen, reference) and sum(move.uci in named for move in legal_moves(fen)) <= FEW_MOVES
            for fen, reference in zip(positions(puzzle), puzzle.line[::2], strict=True)
        )

    def no_skill(self, split: Split) -> Mapping[str, float]:
        """What one-line rules score on a split, by the rule."""
        return no_skill([self.puzzle(task) for task in self._splits[split]])

    def chance(self, task: Task, trajectory: Trajectory) -> float:
        """What a uniform choice among the moves that this rollout's harness showed would score, expected."""
        return chance_shown(self.puzzle(task), trajectory)

    @cached_property
    def _leak_check(self) -> LeakCheck:
        return LeakCheck(
            (split, self.puzzle(task)) for split in SPLITS if split != "weight" for task in self._splits[split]
        )

    def leak(self, text: str) -> str | None:
        """Why this text smuggles a hidden position, or None; see `LeakCheck`."""
        return self._leak_check(text)


def choose(rows: Iterable[Row], options: ChessOptions) -> dict[Split, list[Puzzle]]:
    """The puzzles of each split, in their order: those with the smallest seeded draws. One pass over the rows."""
    wanted = options.filter
    sizes: dict[Split, int | None] = {split: getattr(options, split) for split in SPLITS}
    # The largest draw is on top of each heap, so that it goes first when a better row comes.
    heaps: dict[Split, list[tuple[int, int, Row]]] = {split: [] for split in SPLITS}
    for number, row in enumerate(rows):
        if not wanted.takes(row):
            continue
        split = split_of(game_of(row))
        item = (-draw(options.seed, split, row["PuzzleId"]), -number, row)
        size = sizes[split]
        if size is None or len(heaps[split]) < size * SPARE + 8:
            heapq.heappush(heaps[split], item)
        elif item > heaps[split][0]:
            heapq.heapreplace(heaps[split], item)
    chosen = {split: [puzzle_of(row) for _, _, row in sorted(heap, reverse=True)] for split, heap in heaps.items()}
    return {split: puzzles[: sizes[split]] for split, puzzles in without_duplicates(chosen).items()}


def _task(puzzle: Puzzle) -> Task:
    public = {"fen": puzzle.fen, "turn": colour(puzzle.fen)}
    private = {"line": list(puzzle.line), "game": puzzle.game, "themes": list(puzzle.themes)}
    return Task(puzzle.id, public, private, puzzle.group)


def create(options: Mapping[str, Any]) -> ChessDomain:
    """The registry's factory; raises UsageError for options that are unknown or out of range."""
    return ChessDomain(ChessOptions.parse(options))
