"""The tables that `whale run` and `whale status` print."""

from tests.report.made import MadeLog, outcome
from whale.events import types as ev
from whale.report.results import PairRow, pair_rows, read_results
from whale.report.tables import gain_cell, proposer_cost
from whale.search.scoring import PairedGain


def reply(turn: int, dollars: float) -> ev.ProposerReplied:
    return ev.ProposerReplied(
        cycle=1, iteration=1, turn=turn, model="m", artifact="a", stop_reason="tool_use", tool_calls=1,
        input_tokens=100, cache_read_tokens=30, cache_write_tokens=20, output_tokens=10, dollars=dollars,
    )  # fmt: skip


def ended() -> ev.ProposerSessionEnded:
    return ev.ProposerSessionEnded(
        cycle=1, iteration=1, outcome="submitted", proposed=1, turns=2, tool_calls=2,
        input_tokens=300, output_tokens=20, dollars=0.5, artifact="a",
    )  # fmt: skip


def test_the_cost_of_a_model_that_proposes_is_told_with_its_sessions_tokens_and_dollars() -> None:
    made = MadeLog()
    for event in (reply(1, 0.25), reply(2, 0.25), ended()):
        made.add(event)
    assert proposer_cost(read_results(made.log)) == "proposer: 1 session, 320 tokens, $0.5000"
    made.add(reply(1, 0.125))
    told = proposer_cost(read_results(made.log))
    assert told == "proposer: 1 session and one that has not ended, 480 tokens, $0.6250"


def test_a_proposer_without_prices_is_not_said_to_be_free() -> None:
    made = MadeLog()
    for event in (reply(1, 0.0), ended()):
        made.add(event)
    assert proposer_cost(read_results(made.log)) == "proposer: 1 session, 160 tokens, dollars not known without prices"


def evaluated(cycle: int, weights: str) -> ev.Evaluated:
    return ev.Evaluated(
        cycle=cycle, split="validation", candidate="h0", tree="t0", weights=weights, score=0.5, low=0.0, high=1.0,
        n=2, tasks=2, passed=1.0,
    )  # fmt: skip


def test_a_pair_that_is_still_the_first_one_has_no_gain_and_says_why() -> None:
    made = MadeLog()
    for weights in ("w0", "w1"):
        made.rollouts("evaluate", f"evaluate/x/validation/{weights}", weights, [outcome("a", 1.0), outcome("b", 0.0)])
    for cycle, weights in ((0, "w0"), (1, "w0"), (2, "w1")):
        made.add(evaluated(cycle, weights))
    rows = pair_rows(read_results(made.log))
    assert [row.gain is None for row in rows] == [True, True, False]
    assert [gain_cell(row) for row in rows][:2] == ["", "the first pair"]
    assert gain_cell(rows[2]).startswith("+0.0 [")


def test_no_gain_is_shown_as_minus_nothing() -> None:
    row = PairRow(evaluated(1, "w1"), PairedGain(-0.0, -0.0001, 0.02, 4), "", False)
    assert gain_cell(row) == "+0.0 [+0.0, +2.0]"
