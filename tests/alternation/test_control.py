"""Answers to control requests, on states of the schedule machine."""

from tests.alternation.test_decide import Machine, config
from whale.alternation.control import answer
from whale.events import types as ev

PROPOSAL = ev.ProposalSubmitted(artifact="a", title="mine")


def outcome(machine: Machine, event: ev.Event) -> str:
    return answer(machine.state, machine.config, "key", event).outcome


def test_a_proposal_is_queued_only_while_an_iteration_is_left() -> None:
    machine = Machine(config())
    seen = []
    while machine.step():
        seen.append((machine.trace[-1], outcome(machine, PROPOSAL)))
    queued = [name for name, result in seen if result == "queued"]
    refused = [name for name, result in seen if result == "refused"]
    assert "propose 2.1" in queued, "the last cycle's second iteration is still to come"
    assert refused[0] == "propose 2.2", "its candidates are being scored: nothing can enter any more"
    assert {result for _, result in seen} == {"queued", "refused"}


def test_without_harness_search_no_proposal_is_promised() -> None:
    machine = Machine(config(schedule={"iterations": 0}))
    assert outcome(machine, PROPOSAL) == "refused"


def test_an_unknown_or_invalid_harness_is_no_place_to_revert_to() -> None:
    machine = Machine(config())
    while "accept 0 h0" not in machine.trace:
        machine.step()
    assert outcome(machine, ev.RevertRequested(candidate="nope")) == "refused"
    assert outcome(machine, ev.RevertRequested(candidate="h0")) == "nothing to do"


def test_a_finished_run_can_only_be_extended() -> None:
    machine = Machine(config())
    machine.run()
    assert outcome(machine, ev.PauseRequested()) == "nothing to do"
    assert outcome(machine, PROPOSAL) == "refused"
    assert outcome(machine, ev.ExtendRequested(cycles=2)) == "extended"
