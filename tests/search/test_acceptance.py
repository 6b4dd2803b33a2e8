import numpy as np
import pytest

from whale.config import Guards
from whale.errors import UsageError
from whale.events.types import Outcome
from whale.search.acceptance import acceptance_rule
from whale.search.board import Board, Contender, Decision, Rescore
from whale.search.estimates import chance_to_lead, noise_sd, paired_gain, shrinkage
from whale.search.guards import refusal
from whale.search.racing import Racing
from whale.search.scoring import paired_interval, summarise, wilson

TASKS = 64


def marks(passed: int, first: int = 0, tasks: int = TASKS) -> np.ndarray:
    """`passed` of the tasks from the index `first` on pass."""
    vector = np.zeros(tasks)
    vector[first : first + passed] = 1.0
    return vector


def c(name: str, *passed: int, turns: float = 2.0, tokens: float = 9.0, tree: str = "", first: int = 0) -> Contender:
    return Contender(name, tree or f"t-{name}", tuple(marks(p, first) for p in passed), turns, tokens)


def board(*contenders: Contender, noise: float | None = None, **rollouts: int) -> Board:
    return Board(contenders, "in", noise=noise, **rollouts)


TABLE = [
    ("the highest score wins", [c("in", 32), c("a", 48), c("b", 40)], "a", True),
    ("nothing better keeps the incoming", [c("in", 32), c("a", 16)], "in", False),
    ("a tie goes to the incoming", [c("a", 32), c("in", 32)], "in", False),
    ("a tie goes to fewer turns first", [c("in", 32), c("a", 32, turns=1.5)], "a", True),
    ("then to fewer tokens", [c("in", 32), c("a", 32, tokens=8.0)], "a", True),
    ("a tie among others goes to the earlier", [c("in", 5), c("a", 32), c("b", 32)], "a", True),
    ("the incoming harness under another name is no challenger", [c("in", 5), c("a", 5, tree="t-in")], "in", False),
    ("nothing scored keeps the incoming", [], "in", False),
    ("an incoming that is not ranked gives way", [c("a", 5)], "a", True),
]


@pytest.mark.parametrize(("rows", "candidate", "accepted"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE])
def test_archive_best(rows: list[Contender], candidate: str, accepted: bool) -> None:
    decision = acceptance_rule("archive-best").judge(board(*rows))
    assert (decision.candidate, decision.accepted) == (candidate, accepted)
    assert decision.reason


def test_paired_accepts_a_clear_gain_and_not_a_lucky_one() -> None:
    rule = acceptance_rule("paired")
    assert rule.judge(board(c("in", 20), c("a", 44))).accepted
    lucky = rule.judge(board(c("in", 20), c("a", 23)))
    assert not lucky.accepted
    assert lucky.challenger == "a"
    assert lucky.low is not None
    assert lucky.low < 0


def test_paired_asks_more_of_the_best_of_many_than_of_one() -> None:
    rule = acceptance_rule("paired", {"alpha": 0.05})
    few = [c("in", 20), c("a", 26)]
    assert rule.judge(board(*few)).accepted
    assert not rule.judge(board(*few, *(c(f"x{i}", 5) for i in range(40)))).accepted


def test_confirm_scores_the_winner_and_the_incoming_again_and_judges_by_that_alone() -> None:
    rule = acceptance_rule("confirm")
    assert rule.more(board(c("in", 20), c("a", 60))) == Rescore("a", 1)
    assert rule.more(board(c("in", 20), c("a", 60, 25))) == Rescore("in", 1)
    held = board(c("in", 20, 20), c("a", 60, 40))
    assert rule.more(held) is None
    assert rule.judge(held).accepted
    lucky = rule.judge(board(c("in", 20, 20), c("a", 60, 20)))
    assert not lucky.accepted
    assert (lucky.candidate, lucky.gain) == ("in", 0.0)


def test_confirm_reuses_the_noise_floors_scoring_and_pays_nothing_if_nothing_leads() -> None:
    rule = acceptance_rule("confirm")
    assert rule.more(board(c("in", 20, 21), c("a", 60, 40))) is None
    assert rule.more(board(c("in", 20), c("a", 19))) is None


def test_racing_stops_what_cannot_win_and_nothing_else() -> None:
    rule = Racing(block=16)
    leader = marks(48)
    assert "not even" in (rule.stop(marks(0, tasks=32), leader) or "")
    assert "leader" in (rule.stop(marks(6, tasks=16), leader) or "")
    assert rule.stop(marks(15, tasks=16), leader) is None
    assert rule.stop(marks(0), leader) is None, "a full scoring is never stopped"
    assert [rule.look(n) for n in (0, 15, 16, 47)] == [0, 0, 16, 32]


def test_racing_spends_on_close_finalists_only_what_it_saved() -> None:
    rule = Racing(cost=0.6, rounds=1)
    figures = {"planned": 10 * TASKS, "saved": 6 * TASKS}
    close = (c("in", 30), c("a", 31), c("b", 1))
    assert rule.more(board(*close, noise=0.05, **figures)) == Rescore("a", 1)
    poorer = {**figures, "saved": 6 * TASKS - 1}
    assert rule.more(board(*close, noise=0.05, **poorer)) is None, "a round is paid whole or not begun"
    half = (c("in", 30), c("a", 31, 20), c("b", 1))
    assert rule.more(board(*half, noise=0.05, **figures, rescored=TASKS)) == Rescore("in", 1)
    both = board(c("in", 30, 30), c("a", 31, 20), c("b", 1), noise=0.05, **figures, rescored=2 * TASKS)
    assert rule.more(both) is None
    assert not rule.judge(both).accepted, "over two scorings the incoming harness is better"


def test_racing_does_not_prefer_the_incoming_for_being_scored_twice_for_the_noise_floor() -> None:
    decision = Racing().judge(board(c("in", 30, 30), c("a", 40)))
    assert (decision.candidate, decision.accepted) == ("a", True)


def test_racing_keeps_the_incoming_harness_where_it_scored_best_and_nothing_was_scored_again() -> None:
    for incoming in (c("in", 40), c("in", 40, 10)):
        decision = Racing().judge(board(incoming, c("a", 30), c("b", 39)))
        assert (decision.candidate, decision.accepted) == ("in", False)


@pytest.mark.parametrize(("rate", "concentration", "effect"), [(0.05, 0.5, 0.0), (0.3, 2.0, -0.05), (0.5, 8.0, 0.0)])
def test_of_those_with_a_small_chance_to_lead_no_more_than_that_would_have_led(
    rate: float, concentration: float, effect: float
) -> None:
    """The leader is the best of five scorings, as in a phase; a candidate is left at the first look below 0.1."""
    rng = np.random.default_rng(3)
    tasks, left, would_have_led, kept = 256, 0, 0, 0
    for _ in range(600):
        rates = rng.beta(rate * concentration, (1 - rate) * concentration, tasks)
        leader = max(((rng.random(tasks) < rates).astype(float) for _ in range(5)), key=lambda s: float(s.sum()))
        own = (rng.random(tasks) < np.clip(rates + effect, 0, 1)).astype(float)
        chances = [chance_to_lead(own[:seen], leader) for seen in range(32, tasks, 32)]
        led = bool(own.sum() > leader.sum())
        if min(chances) < 0.1:
            left, would_have_led = left + 1, would_have_led + led
        kept += led
    assert left > 200, "otherwise nothing is saved"
    assert wilson(would_have_led, left)[0] <= 0.1
    assert kept - would_have_led >= 0.5 * kept, "most of those that lead are scored to their end"


def test_the_winners_curse_takes_all_of_a_gain_that_noise_explains_and_little_of_a_large_one() -> None:
    scores = [0.30, 0.32, 0.28, 0.31]
    assert shrinkage(scores, noise=0.05) == 0.0
    assert shrinkage([0.1, 0.5, 0.3, 0.7], noise=0.01) > 0.99
    assert shrinkage([*scores, 0.0], noise=0.05) == 0.0, "a broken harness says nothing of the others"


def test_the_noise_floor_is_the_sd_of_a_score() -> None:
    rng = np.random.default_rng(1)
    rates = rng.random(4000)
    first, second = (rng.random(4000) < rates).astype(float), (rng.random(4000) < rates).astype(float)
    expected = np.sqrt((rates * (1 - rates)).sum()) / 4000
    assert noise_sd(first, second) == pytest.approx(expected, rel=0.1)
    assert noise_sd(first, first) == 0.0


def test_the_paired_gain_agrees_with_the_interval_over_outcomes() -> None:
    before = [Outcome(f"t{i}", 0, float(i < 20), "ok", 1, 1, 1, False, False) for i in range(TASKS)]
    after = [Outcome(f"t{i}", 0, float(i < 30), "ok", 1, 1, 1, False, False) for i in range(TASKS)]
    told, expected = paired_gain(marks(20), marks(30), 0.025), paired_interval(before, after)
    assert (told.gain, told.tasks) == (expected.gain, expected.tasks)
    assert (told.low, told.high) == pytest.approx((expected.low, expected.high))


def test_an_unknown_rule_or_option_is_a_usage_error_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="archive-best, confirm, paired, racing"):
        acceptance_rule("best")
    with pytest.raises(UsageError, match="alpha"):
        acceptance_rule("paired", {"alpha": 2})
    with pytest.raises(UsageError, match="acceptance_options"):
        acceptance_rule("archive-best", {"alpha": 0.1})
    with pytest.raises(UsageError, match="name"):
        acceptance_rule("paired", {"name": "x"})


def test_every_rule_tells_its_interval_and_the_corrected_gain() -> None:
    rows = board(c("in", 20, 22), c("a", 50, 48))
    for name in ("archive-best", "paired", "confirm", "racing"):
        decision: Decision = acceptance_rule(name).judge(rows)
        assert decision.accepted, name
        assert None not in (decision.gain, decision.low, decision.high, decision.corrected)


GUARDS = [
    (Guards(subset=0.1), "worse on the subset hard"),
    (Guards(tokens=1.5), "generated tokens"),
    (Guards(turns=1.1), "turns per rollout"),
    (Guards(fabricated=0.5), "the harness wrote"),
]


@pytest.mark.parametrize(("guards", "reason"), GUARDS, ids=[row[1] for row in GUARDS])
def test_a_guard_refuses_a_better_score_that_makes_its_figure_worse(guards: Guards, reason: str) -> None:
    groups = {f"t{i}": "hard" if i < 4 else "easy" for i in range(16)}
    before = [Outcome(f"t{i}", 0, float(i < 5), "ok", 2, 10, 1, False, False) for i in range(16)]
    after = [Outcome(f"t{i}", 0, float(i > 3), "ok", 3, 20, 1, False, True) for i in range(16)]
    told = refusal(guards, (summarise(before), before), (summarise(after), after), groups)
    assert told is not None
    assert reason in told
    assert refusal(Guards(), (summarise(before), before), (summarise(after), after), groups) is None
    assert refusal(guards, (summarise(before), before), (summarise(before), before), groups) is None
