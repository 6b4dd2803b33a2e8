"""Options, tools, the leak check, and what singles a move out."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whale.domains.base import SPLITS, Task
from whale.domains.chess.board import after, colour, drawing, legal_moves, pieces
from whale.domains.chess.domain import ChessDomain, create
from whale.domains.chess.environment import tools
from whale.domains.chess.puzzle import Puzzle, positions, start
from whale.domains.chess.report import chance_shown, shown_moves
from whale.domains.chess.rules import RULES, chance
from whale.domains.registry import load_domain
from whale.errors import UsageError
from whale.rollout.types import Completion, Trajectory, Turn

FEN = "r3k2r/pp3ppp/8/3Pp3/8/2N5/PPP3PP/R3K2R w KQkq e6 0 1"
LONG = Puzzle("long", "g", "6k1/8/8/8/8/8/1R6/R5K1 w - - 0 1", ("b2b7", "g8f8", "a1a8"))


@pytest.fixture(scope="module")
def domain() -> ChessDomain:
    return ChessDomain()


def hidden(domain: ChessDomain) -> list[Task]:
    return [task for split in SPLITS if split != "weight" for task in domain.splits()[split]]


def test_the_domain_is_found_by_its_name_and_gets_its_options() -> None:
    domain = load_domain("chess", {"test": 7, "seed": 3})
    assert (domain.name, len(domain.splits()["test"])) == ("chess", 7)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tests": 3}, "unknown option 'tests'"),
        ({"source": "hub:"}, "must name a data set of the hub as hub:OWNER/NAME, not 'hub:'"),
        ({"source": "hub: "}, "must name a data set of the hub as hub:OWNER/NAME"),
        ({"source": "hub:/"}, "must name a data set of the hub as hub:OWNER/NAME"),
        ({"source": "hub:name"}, "must name a data set of the hub as hub:OWNER/NAME"),
        ({"source": "x" * 5000}, "cannot be read: File name too long"),
        ({"source": " "}, "there is no puzzle database"),
        ({"min_rating": 2, "max_rating": 1}, "min_rating 2 is above max_rating 1"),
        ({"themes": [""]}, "themes must be a list of words"),
        ({"max_plies": None}, "max_plies must be a whole number"),
        ({"test": 0}, "test must be"),
        ({"test": True}, "test must be"),
        ({"max_plies": "9"}, "max_plies must be"),
        ({"min_rating": "x"}, "min_rating must be"),
        ({"seed": 1.5}, "seed must be"),
        ({"themes": "mate"}, "themes must be a list"),
        ({"themes": [1]}, "themes must be a list"),
        ({"source": 5}, "source must be"),
    ],
)
def test_bad_options_are_refused_in_one_line(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        create(options)
    assert "\n" not in str(caught.value)


def test_without_python_chess_one_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['chess'] = None\n"
        "from whale.domains.registry import domain_names, load_domain\n"
        "from whale.errors import UsageError\n"
        "assert 'chess' in domain_names()\n"
        "try: load_domain('chess')\n"
        "except UsageError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install chess" in done.stdout
    assert "GPL-3" in done.stdout
    assert done.stdout.count("\n") == 1


def test_loading_the_domain_imports_nothing_heavy() -> None:
    code = (
        "import sys; from whale.domains.registry import load_domain; load_domain('chess').fingerprint();"
        "print([m for m in ('torch', 'transformers', 'numpy', 'pyarrow', 'chess.engine') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_the_board_module_speaks_with_python_chess_at_run_time() -> None:
    """A harness's rules of chess and the verifier's must be one thing, and the GPL-3 library in one place."""
    folder = Path(str(sys.modules["whale.domains.chess.board"].__file__)).parent
    for path in sorted(folder.glob("*.py")):
        if path.name not in ("board.py", "build.py", "compose.py"):
            assert "import chess" not in path.read_text(encoding="utf-8"), path.name


def test_a_position_is_described_by_facts() -> None:
    seen = tools(Puzzle("p", "g", FEN, ("e1g1",)))
    position = seen["position"]()
    assert position["turn"] == colour(FEN) == "white"
    assert position["board"].splitlines()[0] == "r . . . k . . r"
    assert position["board"].splitlines()[3] == ". . . P p . . ."
    assert position["pieces"]["white"] == "Ke1 Ra1 Rh1 Nc3 Pa2 Pb2 Pc2 Pd5 Pg2 Ph2"
    assert {"e1g1", "e1c1", "d5e6"} <= set(position["legal"].split())
    moves = {move["from"] + move["to"]: move for move in seen["moves"]()}
    assert set(moves) == set(position["legal"].split())
    assert moves["d5e6"] | {"attacked": None} == {
        "from": "d5", "to": "e6", "promotes": "", "piece": "pawn", "takes": "pawn", "check": False, "attacked": None,
    }  # fmt: skip
    assert moves["e1g1"]["takes"] == "" and moves["e1g1"]["piece"] == "king"
    json.dumps([position, list(moves.values())], allow_nan=False)


def test_attacked_means_that_the_opponent_could_take_on_that_square() -> None:
    moves = {move.uci: move for move in legal_moves("4k3/8/3p4/8/8/8/2N5/4K3 w - - 0 1")}
    assert (moves["c2b4"].attacked, moves["c2d4"].attacked) == (False, False)
    moves = {move.uci: move for move in legal_moves("4k3/8/3p4/8/8/3N4/8/4K3 w - - 0 1")}
    assert (moves["d3c5"].attacked, moves["d3f4"].attacked) == (True, False)


def test_play_moves_on_and_answers_and_a_reply_is_one_turn() -> None:
    play = tools(LONG)["play"]
    first = Completion("", "<move>b2b7</move>", 0)
    assert play(first) == {"over": False, "reply": "g8f8"}
    with pytest.raises(ValueError, match="a turn already"):
        play(first)
    with pytest.raises(ValueError, match="pass a Reply"):
        play("<move>a1a8</move>")
    assert play(Completion("", "<move>a1a8</move>", 1)) == {"over": True, "reply": ""}
    with pytest.raises(ValueError, match="over"):
        play(Completion("", "<move>a8a7</move>", 2))


def test_a_right_and_a_wrong_last_move_look_alike() -> None:
    for move in ("b2b7", "b2b3", "b2b9", "none"):
        one = tools(Puzzle("p", "g", LONG.fen, ("b2b7",)))["play"](Completion("", f"<move>{move}</move>", 0))
        assert one == {"over": True, "reply": ""}


def test_episodes_do_not_share_a_game(domain: ChessDomain) -> None:
    task = domain.splits()["weight"][0]
    one, two = domain.tools(task), domain.tools(task)
    one["play"](Completion("", "resign", 0))
    assert two["play"](Completion("", f"<move>{task.private['line'][0]}</move>", 0))["reply"] in (
        "",
        *task.private["line"],
    )


@given(st.lists(st.sampled_from(["b2b7", "a1a8", "g8f8", "a1a7", "", "b2b2"]), max_size=6))
def test_a_game_never_goes_on_after_its_end(moves: list[str]) -> None:
    game = start(LONG)
    for move in moves:
        if game.over:
            with pytest.raises(ValueError, match="over"):
                game.play(move or None)
            break
        game = game.play(move or None)
    assert (game.outcome == "solved") == (moves[:2] == ["b2b7", "a1a8"])


def test_a_text_singles_a_move_out_only_if_it_names_few(domain: ChessDomain) -> None:
    task = next(task for task in domain.splits()["weight"] if len(task.private["line"]) == 1)
    right = task.private["line"][0]
    legal = [move.uci for move in legal_moves(task.public["fen"])]
    assert domain.answer_in(task, f"Play {right}!")
    assert not domain.answer_in(task, " ".join(legal))
    assert not domain.answer_in(task, f"x{right}")
    assert not domain.answer_in(task, "")
    wrong = [move for move in legal if move not in domain.puzzle(task).line and not _mates(task, move)]
    assert not domain.answer_in(task, f"Play {wrong[0]}")
    assert domain.answer_in(task, f"{right} or {wrong[0]}")


def _mates(task: Task, uci: str) -> bool:
    return any(move.mate for move in legal_moves(task.public["fen"]) if move.uci == uci)


def test_hidden_positions_are_found_however_they_are_written(domain: ChessDomain) -> None:
    tasks = hidden(domain)
    for task in tasks[:5] + tasks[-5:]:
        for fen in positions(domain.puzzle(task)):
            both = pieces(fen)
            written = [
                f"x = '{fen}'",
                fen.split()[0],
                "The board:\n" + drawing(fen) + "\n",
                json.dumps({"role": "user", "content": f"Look:\n{drawing(fen)}\nMove."}),
                f"White: {both['white']}. Black: {both['black']}.",
                ", ".join(move.uci for move in legal_moves(fen)),
                " ".join(move.uci for move in legal_moves(fen)),
            ]
            for text in written:
                reason = domain.leak(text)
                assert reason is not None, text
                assert task.private["line"][0] not in reason


def test_what_is_not_hidden_is_clean(domain: ChessDomain) -> None:
    for content in domain.h0().values():
        assert domain.leak(content.decode()) is None
    for task in domain.splits()["weight"][:50]:
        fen = task.public["fen"]
        legal = " ".join(move.uci for move in legal_moves(fen))
        assert domain.leak(f"{fen}\n{drawing(fen)}\n{pieces(fen)}\n{legal}") is None
    for text in ("", "\ud800", "1/2/3/4/5/6/7/8", "k" * 100_000, "a1a2 " * 20_000, ". " * 50_000, "8/" * 50_000):
        assert domain.leak(text) is None


def test_rules_fall_back_on_any_move_and_their_chance_is_a_share() -> None:
    moves = legal_moves("4k3/8/8/8/8/8/4P3/4K3 w - - 0 1")
    for name, rule in RULES.items():
        total = sum(chance(rule, moves, {move.uci}) for move in moves)
        assert total == pytest.approx(1.0), name


def turn_of(*contents: str, prefix: str = "") -> Turn:
    messages = tuple({"role": "user", "content": content} for content in contents)
    return Turn((1,), (2,), (0.0,), "stop", "w", 0, "", prefix, messages)


def test_what_a_prompt_shows_is_what_it_named_last() -> None:
    legal = {"a1a2", "a1a3", "a1a4"}
    assert shown_moves(turn_of("no move"), legal) == legal
    assert shown_moves(turn_of("a1a2 a1a3 a1a4", "a1a3"), legal) == {"a1a3"}
    assert shown_moves(turn_of("a1a2, a1a3; h7h8q", "think"), legal) == {"a1a2", "a1a3"}
    assert shown_moves(turn_of("a1a2 a1a3", prefix="I like a1a4. <move>"), legal) == {"a1a4"}
    example = Turn((1,), (2,), (0.0,), "stop", "w", 0, "", "", ({"role": "assistant", "content": "a1a2"},))
    assert shown_moves(example, legal) == legal


def test_a_turn_that_was_not_reached_is_a_choice_among_all_moves() -> None:
    first = len(legal_moves(LONG.fen))
    second = len(legal_moves(positions(LONG)[1]))
    turn = turn_of("Choose: b2b7 or a1a2")
    done = Trajectory("t", 0, 0, (turn,), (), "ok", "", 0)
    assert chance_shown(LONG, done) == pytest.approx(0.5 / second)
    nothing = Trajectory("t", 0, 0, (), (), "raised", "x", None)
    assert chance_shown(LONG, nothing) == pytest.approx(1 / first / second)
    assert after(LONG.fen, "b2b7") != LONG.fen
