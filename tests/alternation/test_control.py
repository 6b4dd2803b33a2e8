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


def ask(machine: Machine, event: ev.Event, key: str) -> str:
    """Record a request and the runner's answer to it."""
    machine.record(event, key=key, stream="control")
    handled = answer(machine.state, machine.config, key, event)
    machine.record(handled)
    return handled.outcome


def until(machine: Machine, phase: str) -> None:
    while machine.state.phase != phase:
        assert machine.step()


def test_a_stop_after_the_phase_ends_the_run_there_and_changes_nothing_of_what_follows() -> None:
    undisturbed, stopped = Machine(config()), Machine(config())
    undisturbed.run()
    until(stopped, "weight")
    assert ask(stopped, ev.PhaseStopRequested(), "k") == "scheduled"
    stopped.run()
    assert (stopped.state.status, stopped.state.phase, stopped.state.phases_ended) == ("stopped", None, ("weight",))
    assert ask(stopped, ev.ResumeRequested(), "r") == "resumed"
    stopped.run()
    assert stopped.state.status == "completed"
    assert [t for t in stopped.trace if "stop" not in t.lower()] == undisturbed.trace


def test_a_resume_calls_off_a_scheduled_stop() -> None:
    machine = Machine(config())
    until(machine, "weight")
    ask(machine, ev.PhaseStopRequested(), "k")
    ask(machine, ev.ResumeRequested(), "r")
    machine.run()
    assert machine.state.status == "completed"


def test_a_candidate_accepted_by_hand_is_what_the_next_phase_runs_and_nothing_is_barred() -> None:
    machine = Machine(config())
    until(machine, "harness")
    while len(machine.state.phase_scores) < 3:
        machine.step()
    mine = next(c for c in machine.state.candidates.values() if c.id != machine.state.accepted and c.scores)
    assert ask(machine, ev.AcceptRequested(candidate=mine.id), "k") == "scheduled"
    until(machine, "evaluate")
    assert machine.state.accepted == mine.id
    assert not machine.state.barred
    assert any("by hand" in text for text in machine.state.interventions)
    assert outcome(machine, ev.AcceptRequested(candidate="nope")) == "refused"


def test_of_a_revert_and_an_acceptance_by_hand_the_later_one_holds() -> None:
    machine = Machine(config())
    until(machine, "harness")
    while len(machine.state.phase_scores) < 3:
        machine.step()
    mine = next(c for c in machine.state.candidates.values() if c.id != machine.state.accepted and c.scores)
    ask(machine, ev.AcceptRequested(candidate=mine.id), "a")
    machine.record(ev.RevertRequested(candidate=mine.id), key="b", stream="control")
    machine.record(ev.ControlHandled(request="b", kind="revert", outcome="scheduled"))
    assert (machine.state.choose, machine.state.revert_to) == (None, mine.id)


def test_a_note_is_kept_with_its_candidate_and_asks_nothing_of_the_runner() -> None:
    machine = Machine(config())
    machine.record(ev.NoteAdded(candidate="h0", text="keep"), key="n", stream="control")
    assert [note.text for note in machine.state.notes["h0"]] == ["keep"]
    assert not machine.state.requests
