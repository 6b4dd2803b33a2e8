"""Proposers and acceptance rules of the user's own: what is no such thing is told at the start, in one line."""

from pathlib import Path
from typing import Any

import pytest

from tests.search.test_scripted import ARCHIVE
from whale.errors import UsageError, WhaleError
from whale.own_code import forget_own, load_own
from whale.search.acceptance import acceptance_rule
from whale.search.registry import proposer
from whale.search.spaces import search_space

RULE = """
from whale.search.acceptance import Confirm
from whale.search.board import Decision, Rescore

class Mine:
    name = "mine"
    def __init__(self, options):
        self.options = options
        self.rule = Confirm()
    def look(self, tasks):
        return tasks // 2 * 2
    def stop(self, partial, leader):
        return None
    def more(self, board):
        return self.rule.more(board)
    def judge(self, board):
        return self.rule.judge(board)

def create(options):
    return Mine(options)
"""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.py"
    path.write_text(text)
    forget_own()
    return f"{path}:create"


def test_a_rule_of_a_file_is_made_from_its_options(tmp_path: Path) -> None:
    rule = acceptance_rule(written(tmp_path, RULE), {"alpha": 0.1})
    assert rule.name == "mine"
    assert rule.look(7) == 6
    assert rule.rule.options == {"alpha": 0.1}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "mine"', 'name = "confirm"', "needs a `name`"),
        ('name = "mine"', "name = 3", "needs a `name`"),
        ("def more(self, board)", "def wish(self, board)", r"no method more\(board\)"),
        ("def stop(self, partial, leader)", "def stop(self, partial)", r"stop cannot be called as stop\(partial, lead"),
        ("return Mine(options)", "return options['alpha']", "making it fails: mine.py line 20: KeyError: 'alpha'"),
        ("return Mine(options)", "return None", "needs a `name`"),
        ("def create(options)", "def make(options)", "mine.py has no function 'create'"),
        ("class Mine", "klass Mine", "mine.py fails on import: mine.py line 5: SyntaxError"),
        ("return tasks // 2 * 2", "return tasks + 1", "look returned 1; give a whole number from 0 to 0"),
        ("return tasks // 2 * 2", "return tasks // 2", "fixed numbers of tasks"),
        ("return None", "return 0.5", "stop returned 0.5; give a reason, or None"),
        ("return self.rule.more(board)", "return board.incoming", "more returned 'h0'; give None, or a Rescore"),
        (
            "return self.rule.more(board)",
            "return Rescore(board.contenders[0].candidate, 5) if board.contenders else None",
            "give replicate=1",
        ),
        (
            "return self.rule.more(board)",
            "c = board.own\n        return Rescore(c.candidate, len(c.scorings)) if c else None",
            "it must come to None",
        ),
        ("return self.rule.judge(board)", "return True", "judge returned True; give a whale.search.board.Decision"),
        ("return self.rule.judge(board)", "return Decision(board.incoming, True, '')", "contender other than the inc"),
        ("return self.rule.judge(board)", "return Decision('c1', False, '')", "the incoming harness, h0"),
        ("return self.rule.judge(board)", "return board.ranked()[0]", "judge failed: mine.py line 17: IndexError"),
        (
            "return self.rule.judge(board)",
            "self.n = getattr(self, 'n', 0) + 1\n        return Decision(board.incoming, False, str(self.n))",
            "judge gave two answers",
        ),
    ],
)
def test_what_is_no_rule_is_told_at_the_start_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in RULE
    with pytest.raises(UsageError, match=message) as caught:
        acceptance_rule(written(tmp_path, RULE.replace(old, new, 1)), {})
    assert "\n" not in str(caught.value)
    assert "in [search]" in str(caught.value)


PROPOSER = """
class Mine:
    name = "mine"
    def propose(self, archive, *, count, seed, cycle, iteration):
        return []

def create(options):
    return Mine()
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "mine"', 'name = "mutation"', "needs a `name`"),
        ("def propose", "def suggest", "no method propose"),
        ("*, count, seed", "*, seed", "propose cannot be called as .*'count'"),
        ("def propose(self, archive, *", "def session(self, archive, bench, *", r"no method preflight\(\)"),
        ("return Mine()", "return Mine(options)", r"making it fails: mine.py line 8: TypeError"),
    ],
)
def test_what_is_no_proposer_is_told_at_the_start_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in PROPOSER
    with pytest.raises(UsageError, match=message) as caught:
        proposer(written(tmp_path, PROPOSER.replace(old, new, 1)))
    assert "\n" not in str(caught.value)


def test_a_name_that_leads_to_no_usable_file_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "beside.py").write_text("x = 1\n")
    for name, message in (
        (f"{tmp_path}/none.py:create", "there is no file"),
        (f"{tmp_path}/folder.py:create", "cannot be read"),
        ("~nobody-here/mine.py:create", "cannot be read"),
        (written(tmp_path, "import beside\n"), "mine.py line 1: ModuleNotFoundError.*it lies beside it"),
    ):
        for load in (proposer, acceptance_rule, search_space):
            with pytest.raises(UsageError, match=message) as caught:
                load(name)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("None", "propose returned None; give a list"),
        ("'abc'", "propose returned 'abc'; give a list"),
        ("[{}]", "as number 1 {}; give a whale.search.types.Proposal"),
        ("[P('t', 'h', 'a', None, (), {})]", "whose changes is no text"),
        ("[P('t', 'h', 'a', 'c', 'h0', {})]", "no tuple of candidate ids"),
        ("[P('t', 'h', 'a', 'c', (), {'harness.py': 'text'})]", "'harness.py' is no bytes"),
        ("[archive.entries[7]]", "propose failed: mine.py line 6: IndexError"),
    ],
)
def test_what_a_proposer_hands_over_is_checked_before_it_is_recorded(
    tmp_path: Path, returned: str, message: str
) -> None:
    text = "from whale.search.types import Proposal as P\n" + PROPOSER.replace("return []", f"return {returned}")
    made: Any = proposer(written(tmp_path, text))
    with pytest.raises(WhaleError, match=message):
        made.propose(ARCHIVE, count=1, seed=1, cycle=1, iteration=1)


def test_an_edit_reaches_the_next_runner_and_no_runner_at_work(tmp_path: Path) -> None:
    name = written(tmp_path, "def create(options):\n    return 1\n")
    assert load_own(name, "x")({}) == 1
    Path(name.rpartition(":")[0]).write_text("def create(options):\n    return 2\n")
    assert load_own(name, "x")({}) == 1
    forget_own()
    assert load_own(name, "x")({}) == 2
