"""The acceptance rules in whole runs: their facts are in the log, and a resume pays nothing twice."""

from pathlib import Path

import pytest

from tests.runs import WhaleProcess, events_of
from whale.alternation.run_folder import RunFolder
from whale.events import types as ev

SHORT = ["schedule.cycles=1", "domain_options.weight=2", "schedule.iterations=2", "evaluate.test_tasks=0"]


def facts(run: Path) -> list[ev.Event]:
    return events_of(RunFolder(run))


def overrides(*more: str) -> list[str]:
    return [part for item in (*SHORT, *more) for part in ("--set", item)]


@pytest.mark.parametrize("rule", ["confirm", "racing"])
def test_a_rule_that_asks_for_more_or_fewer_rollouts_carries_a_run_through(
    rule: str, whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    options = ['search.acceptance_options={"block" = 1, "chance" = 0.4}'] if rule == "racing" else []
    whale_here("run", str(toy_config), "--name", "one", "--quiet", *overrides(f"search.acceptance={rule}", *options))
    told = facts(tmp_path / "runs" / "one")
    judged = [fact for fact in told if isinstance(fact, ev.AcceptanceJudged)]
    assert [fact.rule for fact in judged] == [rule]
    assert judged[0].noise is not None
    batches = [fact.batch for fact in told if isinstance(fact, ev.RolloutsRecorded)]
    assert len(set(batches)) == len(batches)
    rescored = [fact for fact in told if isinstance(fact, ev.CandidateRescored)]
    assert next(fact.purpose for fact in rescored) == "noise"
    assert all(fact.n == 4 for fact in rescored)


def test_a_human_answers_before_a_harness_is_accepted(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    from whale.alternation import runner

    asked: list[str] = []
    wait = runner.Runner._do_AwaitApproval

    def reviewer(self: runner.Runner, command: object) -> None:
        candidate = command.candidate  # type: ignore[attr-defined]
        if asked.count(candidate) == 0:
            event = ev.ApprovalGiven(candidate=candidate, approved=False, by="reviewer")
            from whale.alternation.requests import append_request

            append_request(self.log, event)
        asked.append(candidate)
        wait(self, command)  # type: ignore[arg-type]

    patch = pytest.MonkeyPatch()
    patch.setattr(runner.Runner, "_do_AwaitApproval", reviewer)
    try:
        whale_here("run", str(toy_config), "--name", "asked", "--quiet", "--set", "search.approve=human")
    finally:
        patch.undo()
    told = facts(tmp_path / "runs" / "asked")
    assert asked, "the toy run has an acceptance to ask for"
    declined = [fact for fact in told if isinstance(fact, ev.ControlHandled) and fact.outcome == "declined"]
    accepted = [fact for fact in told if isinstance(fact, ev.AcceptanceJudged) and fact.accepted]
    assert len(declined) == len(accepted)
    assert not any(isinstance(fact, ev.HarnessAccepted) for fact in told)
    assert RunFolder(tmp_path / "runs" / "asked").state().interventions


def test_a_search_over_the_prompts_is_not_offered_code(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    """A proposer that does not know the space has nearly all that it proposes refused, and the search is none."""
    fst = overrides("search.space=prompts", "search.candidates=3")
    whale_here("run", str(toy_config), "--name", "fst", "--quiet", *fst)
    told = facts(tmp_path / "runs" / "fst")
    assert len([fact for fact in told if isinstance(fact, ev.HarnessProposed)]) > 2
    assert [fact.reason for fact in told if isinstance(fact, ev.HarnessValidated) and "may change" in fact.reason] == []
