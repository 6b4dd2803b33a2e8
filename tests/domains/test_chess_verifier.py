"""One move a turn against honest and adversarial outputs."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whale.domains.chess.puzzle import Puzzle
from whale.domains.chess.verifier import read_move, verify
from whale.rollout.types import Action, Completion

MEGABYTE = 1_000_000

MATES = Puzzle("mates", "g", "6k1/5ppp/8/8/8/8/8/RR4K1 w - - 0 1", ("a1a8",))
CASTLE = Puzzle("castle", "g", "4k3/8/8/8/8/8/8/4K2R w K - 0 1", ("e1g1",))
PROMOTE = Puzzle("promote", "g", "8/4P1k1/8/8/8/8/8/4K3 w - - 0 1", ("e7e8q",))
KNIGHT = Puzzle("knight", "g", "8/4P1k1/8/8/8/8/8/4K3 w - - 0 1", ("e7e8n",))
EN_PASSANT = Puzzle("en passant", "g", "4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 1", ("e5d6",))
TWO_ROOKS = Puzzle("two rooks", "g", "4k3/8/8/8/8/8/4K3/R6R w - - 0 1", ("a1d1",))
LONG = Puzzle("long", "g", "6k1/8/8/8/8/8/1R6/R5K1 w - - 0 1", ("b2b7", "g8f8", "a1a8"))


def said(text: str, prefix: str = "") -> Completion:
    return Completion(prefix, text)


@pytest.mark.parametrize(
    ("puzzle", "text", "reward", "well_formed", "legal"),
    [
        (CASTLE, "<move>e1g1</move>", 1, 1, 1),
        (CASTLE, "<move>O-O</move>", 0, 0, 0),
        (CASTLE, "<move>0-0</move>", 0, 0, 0),
        # python-chess reads this as castling; UCI does not write it so
        (CASTLE, "<move>e1h1</move>", 0, 1, 0),
        (CASTLE, "<move>e1g1q</move>", 0, 1, 0),
        (CASTLE, "<move>e1f1</move>", 0, 1, 1),
        (PROMOTE, "<move>e7e8q</move>", 1, 1, 1),
        (PROMOTE, "<move>e7e8</move>", 0, 1, 0),
        (PROMOTE, "<move>e7e8Q</move>", 0, 0, 0),
        (PROMOTE, "<move>e7e8=q</move>", 0, 0, 0),
        (PROMOTE, "<move>e8=Q</move>", 0, 0, 0),
        (PROMOTE, "<move>e7e8n</move>", 0, 1, 1),
        (PROMOTE, "<move>e7e8k</move>", 0, 0, 0),
        (KNIGHT, "<move>e7e8n</move>", 1, 1, 1),
        (KNIGHT, "<move>e7e8q</move>", 0, 1, 1),
        (EN_PASSANT, "<move>e5d6</move>", 1, 1, 1),
        (EN_PASSANT, "<move>e5d6 e.p.</move>", 0, 0, 0),
        (EN_PASSANT, "<move>exd6</move>", 0, 0, 0),
        (EN_PASSANT, "<move>e5d5</move>", 0, 1, 0),
        # ambiguous and other notations are no UCI
        (TWO_ROOKS, "<move>a1d1</move>", 1, 1, 1),
        (TWO_ROOKS, "<move>h1d1</move>", 0, 1, 1),
        (TWO_ROOKS, "<move>Rd1</move>", 0, 0, 0),
        (TWO_ROOKS, "<move>Rad1</move>", 0, 0, 0),
        (TWO_ROOKS, "<move>a1-d1</move>", 0, 0, 0),
        (TWO_ROOKS, "<move>a1 d1</move>", 0, 0, 0),
        (TWO_ROOKS, "<move>A1D1</move>", 0, 0, 0),
        # not a move
        (TWO_ROOKS, "a1d1", 0, 0, 0),
        (TWO_ROOKS, "", 0, 0, 0),
        (TWO_ROOKS, "I resign.", 0, 0, 0),
        (TWO_ROOKS, "<move>resign</move>", 0, 0, 0),
        (TWO_ROOKS, "<move>0000</move>", 0, 0, 0),
        (TWO_ROOKS, "<move>--</move>", 0, 0, 0),
        (TWO_ROOKS, "<move>1-0</move>", 0, 0, 0),
        (TWO_ROOKS, "<move></move>", 0, 0, 0),
        (TWO_ROOKS, "<move>a1d1", 0, 0, 0),
        (TWO_ROOKS, "a1d1</move>", 0, 0, 0),
        (TWO_ROOKS, "<MOVE>a1d1</MOVE>", 0, 0, 0),
        (TWO_ROOKS, "<move>a1d1 h1h8</move>", 0, 0, 0),
        (TWO_ROOKS, "<move>a1a1</move>", 0, 1, 0),
        (TWO_ROOKS, "<move>e8e7</move>", 0, 1, 0),
        (TWO_ROOKS, "<move>i9i9</move>", 0, 0, 0),
        # unicode that looks like a move
        (TWO_ROOKS, "<move>a１d１</move>", 0, 0, 0),
        (TWO_ROOKS, "<move>а1d1</move>", 0, 0, 0),
        (TWO_ROOKS, "<move>a١d١</move>", 0, 0, 0),
        (TWO_ROOKS, "<move>a1\u200bd1</move>", 0, 0, 0),
        (TWO_ROOKS, "<move>\ud800</move>", 0, 0, 0),
        (TWO_ROOKS, "<move>a1d1\n\n</move>", 1, 1, 1),
        # several tags: the last complete one is the turn
        (TWO_ROOKS, "<move>h1h8</move><move>a1d1</move>", 1, 1, 1),
        (TWO_ROOKS, "<move>a1d1</move><move>h1h8</move>", 0, 1, 1),
        (TWO_ROOKS, "<move>a1d1</move> or <move>", 1, 1, 1),
        (TWO_ROOKS, "<move><move>a1d1</move></move>", 1, 1, 1),
        # the whole line in one turn is one turn
        (LONG, "<move>b2b7</move><move>a1a8</move>", 0, 1, 1),
    ],
)  # fmt: skip
def test_a_turn_is_one_legal_uci_move(
    puzzle: Puzzle, text: str, reward: float, well_formed: float, legal: float
) -> None:
    verdict = verify(puzzle, said(text))
    assert (verdict.reward, verdict.metrics["format"], verdict.metrics["legal"]) == (reward, well_formed, legal)


@pytest.mark.parametrize(
    ("prefix", "sampled", "move"),
    [
        ("<move>", "a1d1</move>", "a1d1"),
        ("<move> ", "a1d1</move>", "a1d1"),
        ("The move is <mo", "ve>a1d1</move>", "a1d1"),
        ("<move>a1d1</move>", "", None),
        ("<move>a1d1</move>", " yes", None),
        ("<move>a1d1", "</move>", None),
        ("<move>a1", "d1</move>", None),
        ("<move>a1d1</mo", "ve>", None),
        ("<move>a1d1</move>", "<move>h1h8</move>", "h1h8"),
    ],
)
def test_only_a_move_that_the_model_sampled_counts(prefix: str, sampled: str, move: str | None) -> None:
    assert read_move(said(sampled, prefix)) == move


def test_any_mate_is_right_where_the_line_mates_and_only_there() -> None:
    assert verify(MATES, said("<move>a1a8</move>")).reward == 1
    assert verify(MATES, said("<move>b1b8</move>")).reward == 1
    assert verify(MATES, said("<move>a1a7</move>")).reward == 0
    # The line's move does not mate: then a mate beside it is not the line.
    quiet = Puzzle("quiet", "g", "6k1/5ppp/8/8/8/8/8/RR4K1 w - - 0 1", ("a1a7",))
    assert verify(quiet, said("<move>a1a8</move>")).reward == 0


def played(*texts: str, tool: str = "play") -> Completion:
    """An episode whose replies were all played; the last is the answer."""
    replies = [Completion("", text, turn) for turn, text in enumerate(texts)]
    actions = tuple(Action(tool, reply) for reply in replies)
    return Completion("", texts[-1], len(texts) - 1, actions)


def test_only_the_whole_line_passes() -> None:
    first, last = "<move>b2b7</move>", "<move>a1a8</move>"
    assert verify(LONG, played(first, last)).reward == 1
    assert verify(LONG, played(first)).reward == 0
    assert verify(LONG, played(first)).metrics["progress"] == 0.5
    assert verify(LONG, played(last, first)).reward == 0
    assert verify(LONG, played(first, "<move>a1a7</move>", last)).reward == 0
    assert verify(LONG, played(first, "pass", last)).reward == 0
    assert verify(LONG, played(first, "<move>g8f8</move>", last)).reward == 0, (
        "the opponent's moves are not the model's"
    )
    assert verify(LONG, said(last)).reward == 0


def test_the_answer_is_the_last_turn_unless_it_was_played() -> None:
    first, last = Completion("", "<move>b2b7</move>", 0), Completion("", "<move>a1a8</move>", 1)
    only_first = (Action("play", first),)
    assert verify(LONG, Completion("", last.sampled, 1, only_first)).reward == 1
    # Returning the reply that was played already plays nothing.
    again = verify(LONG, Completion("", first.sampled, 0, only_first))
    assert (again.reward, again.metrics) == (0.0, {"format": 1.0, "legal": 1.0, "progress": 0.5})
    # After the game is over nothing is played either.
    both = (*only_first, Action("play", last))
    assert verify(LONG, Completion("", "well played", 2, both)).reward == 1
    assert verify(LONG, played("<move>b2b7</move>", "<move>a1a8</move>", tool="other")).reward == 0


@pytest.mark.parametrize(
    "text",
    [
        "a" * MEGABYTE,
        "<move>" * (MEGABYTE // 6),
        "</move>" * (MEGABYTE // 7),
        "<move>a1d1</move>" * (MEGABYTE // 17),
        "<move>" + "a1d1 " * (MEGABYTE // 5) + "</move>",
        "<move>" + " " * MEGABYTE + "a1d1</move>",
        "<" * MEGABYTE,
    ],
    ids=["letters", "openings", "closings", "pairs", "long-span", "blanks", "brackets"],
)
def test_a_megabyte_is_judged_in_bounded_time(text: str) -> None:
    started = time.process_time()
    assert verify(TWO_ROOKS, said(text)).reward == (1 if text.startswith("<move>a1d1</move>") else 0)
    assert verify(TWO_ROOKS, said("<move>a1d1</move>", text)).reward == 1
    assert time.process_time() - started < 5


@given(
    prefix=st.text(),
    texts=st.lists(st.text() | st.from_regex(r"(</?move>|[a-h][1-8]|[^<])*", fullmatch=True), min_size=1, max_size=4),
    puzzle=st.sampled_from([CASTLE, PROMOTE, LONG, MATES]),
)
def test_the_verifier_is_total_and_deterministic(prefix: str, texts: list[str], puzzle: Puzzle) -> None:
    completion = played(*(f"{prefix}{text}" for text in texts))
    verdict = verify(puzzle, completion)
    assert verdict == verify(puzzle, completion)
    assert verdict.reward in (0.0, 1.0)
    assert verdict.metrics["legal"] <= verdict.metrics["format"]
    assert 0 <= verdict.metrics["progress"] <= 1
    assert (verdict.reward == 1) == (verdict.metrics["progress"] == 1)


@given(prefix=st.text(alphabet="<>/move a1d") | st.just("<move>a1d1</move>"))
def test_what_the_model_did_not_sample_never_passes(prefix: str) -> None:
    assert verify(TWO_ROOKS, said("", prefix)).reward == 0
    assert verify(TWO_ROOKS, said("ok", prefix)).reward == 0
