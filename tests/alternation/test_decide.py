"""The schedule as a hand-computed trace, on events alone: no model, no Git."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whale.alternation import decide as d
from whale.alternation import judging, units
from whale.alternation.control import answer
from whale.alternation.state import State, reduce
from whale.config import Config, config_from, to_builtins
from whale.errors import UsageError
from whale.events import types as ev


@dataclass
class Recorded:
    """What the fold needs of an envelope."""

    event: ev.Event
    key: str = ""
    stream: str = "run"
    position: int = 0


def config(**tables: Any) -> Config:
    raw: dict[str, Any] = {
        "schedule": {"cycles": 2, "epochs": "0.5", "iterations": 2},
        "weights": {"batch": 2, "rollouts_per_prompt": 2},
        "search": {"candidates": 2, "noise_floor": False},
        "engine": {"micro_batch": 3},
        "evaluate": {"samples": 1},
    }
    for table, values in tables.items():
        raw[table] = {**raw.get(table, {}), **values}
    return config_from(raw, "test")


class Machine:
    """Carries out commands by recording made-up results; scores come from a table."""

    def __init__(
        self,
        settings: Config,
        scores: dict[str, float] | None = None,
        passed: Mapping[tuple[int, int], int] | None = None,
        success: Mapping[str, float] | None = None,
    ) -> None:
        self.config = settings
        self.scores = scores or {}
        self.passed = passed or {}
        """(cycle, step) -> rollouts that pass, of 4."""
        self.success = success or {}
        """Weights -> validation success; without an entry, that of the harness."""
        self.state = State()
        self.trace: list[str] = []
        self.batches: list[str] = []
        splits = {"weight": 7, "harness": 4, "validation": 5, "test": 3}
        self.record(ev.RunStarted(name="r", config=to_builtins(settings), model="w0", data="d", splits=splits))

    def record(self, event: ev.Event, key: str = "", stream: str = "run") -> None:
        self.state = reduce(self.state, Recorded(event, key, stream))

    def outcomes(self, batch: units.MicroBatch) -> list[ev.Outcome]:
        rate = self.scores.get(batch.candidate, 0.0)
        return [
            ev.Outcome(f"{batch.split}-{e.task}", e.sample, float(e.task < rate * 4), "ok", 2, 5, 50, False, False)
            for e in batch.episodes
        ]

    def step(self) -> bool:
        command = d.decide(self.state, self.config)
        name = type(command).__name__
        match command:
            case d.Finish() | d.Wait():
                return False
            case d.ProposeInitial():
                self.record(
                    ev.HarnessProposed(candidate="h0", tree="t-h0", parents=[], proposer="domain", cycle=0, iteration=0)
                )
            case d.Commit(candidate):
                self.record(ev.HarnessCommitted(candidate=candidate))
            case d.CommitAcceptance(serial, candidate, _):
                tree = self.state.candidates[candidate].tree
                self.record(ev.AcceptanceCommitted(serial=serial, candidate=candidate, tree=tree))
                name = f"accept {serial} {candidate}"
            case d.Validate(candidate):
                self.record(ev.HarnessValidated(candidate=candidate, valid=not candidate.endswith("bad")))
            case d.RunBatch(batch):
                assert batch.key not in self.batches, "a recorded micro-batch is never sampled again"
                self.batches.append(batch.key)
                self.record(
                    ev.RolloutsRecorded(
                        batch=batch.key, purpose=batch.purpose, candidate=batch.candidate,
                        weights=batch.weights, artifact=f"a-{batch.key}", outcomes=self.outcomes(batch),
                    )
                )  # fmt: skip
                return True
            case d.Train(cycle, step):
                self.record(
                    ev.StepTrained(
                        cycle=cycle, step=step, rollouts=4, passed=self.passed.get((cycle, step), 1), kept=1,
                        dropped={}, trained_tokens=5,
                        updates=1, loss=1.0, weights=f"w{cycle}.{step}",
                    )
                )  # fmt: skip
                name = f"train {cycle}.{step}"
            case d.ProposeTasks(cycle):
                self.record(
                    ev.TasksProposed(
                        cycle=cycle, replaced={"weight-0": f"new-{cycle}"}, passed=1, refused={},
                        artifact=f"a-tasks-{cycle}",
                    )
                )  # fmt: skip
                name = f"tasks {cycle}"
            case d.SaveCheckpoint(checkpoint, cycle, step, phase_end):
                self.record(
                    ev.CheckpointSaved(
                        checkpoint=checkpoint, weights=self.state.weights, trainer="o", cycle=cycle,
                        step=step, phase_end=phase_end,
                    )
                )  # fmt: skip
                name = f"checkpoint {checkpoint}{' end' if phase_end else ''}"
            case d.Propose(cycle, iteration):
                for m in (1, 2):
                    candidate = f"c{cycle}i{iteration}m{m}"
                    self.record(
                        ev.HarnessProposed(
                            candidate=candidate, tree=f"t-{candidate}", parents=["h0"], proposer="test",
                            cycle=cycle, iteration=iteration,
                        )
                    )  # fmt: skip
                name = f"propose {cycle}.{iteration}"
            case d.CompleteScore(candidate, iteration):
                self.record(
                    ev.CandidateScored(
                        candidate=candidate, tree=self.state.candidates[candidate].tree,
                        weights=self.state.weights, cycle=self.state.cycle, iteration=iteration, n=4,
                        passed=0, score=self.scores.get(candidate, 0.0), low=0, high=1, mean_turns=2,
                        mean_tokens=5, fabricated=0,
                    )
                )  # fmt: skip
                name = f"score {candidate} {iteration}"
            case d.CompleteIteration(iteration):
                self.record(
                    ev.IterationCompleted(
                        cycle=self.state.cycle, iteration=iteration, outcomes={}, best="", best_score=0
                    )
                )
            case d.StopScore(candidate, iteration, saved, reason):
                self.record(
                    ev.CandidateStopped(
                        candidate=candidate, tree=self.state.candidates[candidate].tree, weights=self.state.weights,
                        cycle=self.state.cycle, iteration=iteration, n=4 - saved, passed=0, saved=saved, reason=reason,
                    )
                )  # fmt: skip
                name = f"stop {candidate} {saved} saved"
            case d.CompleteRescore(candidate, replicate, purpose):
                self.record(
                    ev.CandidateRescored(
                        candidate=candidate, tree=self.state.candidates[candidate].tree, weights=self.state.weights,
                        cycle=self.state.cycle, replicate=replicate, purpose=purpose, n=4, passed=0, score=0, low=0,
                        high=1, noise=0.1,
                    )
                )  # fmt: skip
                name = f"rescore {candidate} {replicate} {purpose}"
            case d.Judge():
                decision = judging.rule_of(self.config).judge(judging.board_of(self.state, self.config))
                self.record(
                    ev.AcceptanceJudged(
                        cycle=self.state.cycle, rule="", candidate=decision.candidate, accepted=decision.accepted,
                        reason="",
                    )
                )  # fmt: skip
            case d.AwaitApproval():
                return False
            case d.Settle():
                assert self.state.verdict is not None
                best = self.state.phase_scores[self.state.verdict.candidate]
                if not self.state.verdict.accepted or self.state.approved is False:
                    self.record(ev.HarnessRetained(cycle=self.state.cycle, candidate=best.candidate, score=best.score))
                else:
                    self.record(
                        ev.HarnessAccepted(
                            cycle=self.state.cycle, candidate=best.candidate, tree=best.tree,
                            previous=self.state.accepted or "", score=best.score, incoming_score=0,
                        )
                    )  # fmt: skip
            case d.CompleteEvaluation(cycle, split, candidate, weights):
                self.record(
                    ev.Evaluated(
                        cycle=cycle, split=split, candidate=candidate, weights=weights, n=5, tasks=5,
                        passed=0, tree=self.state.candidates[candidate].tree,
                        score=self.success.get(weights, self.scores.get(candidate, 0.0)), low=0, high=1,
                    )
                )  # fmt: skip
                name = f"evaluate {cycle} {split} {candidate} {weights}{' again' if command.reuse else ''}"
            case d.Append(key, event):
                self.record(event, key)
                name = key
            case d.Handle(request):
                self.record(answer(self.state, self.config, request, self.state.requests[request]))
        self.trace.append(name)
        return True

    def run(self) -> None:
        while self.step():
            pass


def test_two_cycles_follow_the_papers_loop() -> None:
    machine = Machine(config(), {"c1i2m1": 0.5, "h0": 0.25})
    machine.run()
    # 7 questions, E = 0.5: the phases take [0, 4) and [4, 7): 2 steps of 2, then of 2 and 1.
    assert machine.trace == [
        "ProposeInitial", "Commit", "Validate", "accept 0 h0",
        "c000/evaluate/started", "evaluate 0 validation h0 w0", "c000/evaluate/ended",
        "c001/weight/started", "train 1.1", "checkpoint c001-s0001", "train 1.2", "checkpoint c001-s0002 end",
        "c001/weight/ended",
        "c001/harness/started", "score h0 0",
        "propose 1.1", "Commit", "Validate", "score c1i1m1 1", "Commit", "Validate", "score c1i1m2 1",
        "CompleteIteration",
        "propose 1.2", "Commit", "Validate", "score c1i2m1 2", "Commit", "Validate", "score c1i2m2 2",
        "CompleteIteration",
        "Judge", "Settle", "accept 1 c1i2m1", "c001/harness/ended",
        "c001/evaluate/started", "evaluate 1 validation c1i2m1 w1.2", "c001/evaluate/ended",
        "c002/weight/started", "train 2.1", "checkpoint c002-s0001", "train 2.2", "checkpoint c002-s0002 end",
        "c002/weight/ended",
        "c002/harness/started", "score c1i2m1 0",
        "propose 2.1", "Commit", "Validate", "score c2i1m1 1", "Commit", "Validate", "score c2i1m2 1",
        "CompleteIteration",
        "propose 2.2", "Commit", "Validate", "score c2i2m1 2", "Commit", "Validate", "score c2i2m2 2",
        "CompleteIteration",
        "Judge", "Settle", "c002/harness/ended",
        "c002/evaluate/started", "evaluate 2 validation c1i2m1 w2.2", "c002/evaluate/ended",
        "completed/2",
    ]  # fmt: skip
    assert machine.state.completed is not None
    assert (machine.state.completed.cycle, machine.state.completed.candidate) == (1, "c1i2m1")


def test_the_sampler_goes_on_where_the_last_phase_ended() -> None:
    settings = config()
    seen = []
    for cycle in (1, 2):
        for step, batch in enumerate(units.training_steps(settings, 7, cycle), 1):
            unit = units.training_unit(settings, 7, cycle, step, batch, "h0", "w")
            seen += [e.task for batch in unit.batches for e in batch.episodes if e.sample == 0]
    assert sorted(seen) == list(range(7))


def test_a_step_samples_each_question_g_times_in_micro_batches_of_the_set_size() -> None:
    first = units.training_steps(config(), 7, 1)[0]
    unit = units.training_unit(config(), 7, 1, 1, first, "h0", "w")
    assert [len(batch.episodes) for batch in unit.batches] == [3, 1]
    assert [e.sample for batch in unit.batches for e in batch.episodes] == [0, 1, 0, 1]


def test_all_candidates_of_a_phase_meet_the_same_tasks_and_seeds() -> None:
    one = units.scoring_unit(config(), 4, 1, "h0", "w")
    other = units.scoring_unit(config(), 4, 1, "c1i1m1", "w")
    assert [b.episodes for b in one.batches] == [b.episodes for b in other.batches]


def test_evaluations_of_all_cycles_share_tasks_and_seeds() -> None:
    first = units.evaluation_unit(config(), 5, 0, "validation", "h0", "w0")
    later = units.evaluation_unit(config(), 5, 2, "validation", "x", "w9")
    assert [b.episodes for b in first.batches] == [b.episodes for b in later.batches]


def test_counting_the_incoming_harness_leaves_one_iteration_less() -> None:
    machine = Machine(config(schedule={"count_incoming": True, "cycles": 1}))
    machine.run()
    assert [t for t in machine.trace if t.startswith("propose")] == ["propose 1.1"]


def test_the_test_is_read_once_after_the_last_cycle_for_the_first_and_the_selected_pair() -> None:
    machine = Machine(config(evaluate={"test_tasks": 2}), {"c1i2m1": 0.5, "h0": 0.25})
    machine.run()
    tests = [t for t in machine.trace if " test " in t]
    assert tests == ["evaluate 0 test h0 w0", "evaluate 1 test c1i2m1 w1.2"]
    assert machine.trace.index(tests[0]) > machine.trace.index("c002/evaluate/ended")


def test_by_the_papers_rule_every_pair_is_tested_and_the_best_test_success_selects() -> None:
    success = {"w0": 0.2, "w1.2": 0.6, "w2.2": 0.4}
    settings = config(evaluate={"test_tasks": 2, "select": "test"}, schedule={"iterations": 0})
    machine = Machine(settings, success=success)
    machine.run()
    assert [t for t in machine.trace if " test " in t] == [
        "evaluate 0 test h0 w0", "evaluate 1 test h0 w1.2", "evaluate 2 test h0 w2.2"
    ]  # fmt: skip
    assert machine.state.completed is not None
    assert (machine.state.completed.cycle, machine.state.completed.score) == (1, 0.6)


class Disagreeing(Machine):
    """Test and validation disagree: validation likes the first pair best, the test the last one."""

    def record(self, event: ev.Event, key: str = "", stream: str = "run") -> None:
        if isinstance(event, ev.Evaluated):
            score = event.cycle / 10 if event.split == "test" else 0.9 - event.cycle / 10
            event = msgspec.structs.replace(event, score=score)
        super().record(event, key, stream)


@pytest.mark.parametrize("select, cycle", [("validation", 0), ("test", 2)])
def test_only_the_split_that_the_config_names_selects(select: str, cycle: int) -> None:
    machine = Disagreeing(config(evaluate={"test_tasks": 2, "select": select}))
    machine.run()
    assert machine.state.completed is not None
    assert machine.state.completed.cycle == cycle


def test_the_test_cannot_select_when_it_is_never_read() -> None:
    with pytest.raises(UsageError, match="test_tasks"):
        config(evaluate={"select": "test"})


def test_no_budget_for_weights_skips_training_and_reuses_the_evaluation_of_the_same_pair() -> None:
    machine = Machine(config(schedule={"epochs": "0", "cycles": 1}))
    machine.run()
    assert not [t for t in machine.trace if t.startswith("train")]
    assert "evaluate 1 validation h0 w0 again" in machine.trace


def test_a_revert_waits_for_the_phase_boundary_and_bars_the_tree_that_was_left() -> None:
    machine = Machine(config(), {"c1i2m1": 0.5})
    while "train 2.1" not in machine.trace:
        machine.step()
    machine.record(ev.RevertRequested(candidate="h0"), "control/revert/1", "control")
    machine.record(ev.ControlHandled(request="control/revert/1", kind="revert", outcome="scheduled"))
    machine.run()
    position = machine.trace.index("revert/control/revert/1")
    assert machine.trace[position - 1] == "c002/weight/ended"
    assert machine.trace[position + 1 : position + 3] == ["accept 2 h0", "c002/harness/started"]
    assert machine.state.barred == {"t-c1i2m1"}


def test_a_paused_run_waits_and_a_stopped_one_finishes() -> None:
    machine = Machine(config())
    machine.record(ev.PauseRequested(), "control/pause/1", "control")
    assert d.decide(machine.state, machine.config) == d.Handle("control/pause/1")
    machine.step()
    assert d.decide(machine.state, machine.config) == d.Wait()
    machine.record(ev.ControlHandled(request="x", kind="stop", outcome="stopped"))
    assert d.decide(machine.state, machine.config) == d.Finish()


def test_a_tree_that_was_scored_in_this_phase_gets_no_second_score() -> None:
    machine = Machine(config(schedule={"cycles": 1}))
    while "score h0 0" not in machine.trace:
        machine.step()
    machine.record(
        ev.HarnessProposed(
            candidate="twin",
            tree="t-h0",
            parents=["h0"],
            proposer="test",
            cycle=1,
            iteration=1,
            duplicate_of="h0",
        )
    )
    assert d.decide(machine.state, machine.config) == d.Commit("twin")
    machine.record(ev.HarnessCommitted(candidate="twin"))
    assert d.decide(machine.state, machine.config) == d.CompleteIteration(1)


@pytest.mark.parametrize("every, saved", [(1, 2), (2, 1), (5, 1)])
def test_a_phase_ends_with_a_checkpoint_however_rare_they_are_inside(every: int, saved: int) -> None:
    machine = Machine(config(weights={"checkpoint_every": every}, schedule={"cycles": 1}))
    machine.run()
    checkpoints = [t for t in machine.trace if t.startswith("checkpoint")]
    assert len(checkpoints) == saved
    assert checkpoints[-1] == "checkpoint c001-s0002 end"


def test_the_noise_floor_is_measured_once_in_a_run_before_anything_is_proposed() -> None:
    machine = Machine(config(search={"noise_floor": True}))
    machine.run()
    noise = [t for t in machine.trace if t.startswith("rescore")]
    assert noise == ["rescore h0 1 noise"]
    assert machine.trace.index(noise[0]) < machine.trace.index("propose 1.1")


def test_confirm_scores_winner_and_incoming_again_under_the_same_fresh_seeds() -> None:
    machine = Machine(config(search={"acceptance": "confirm"}, schedule={"cycles": 1}), {"c1i2m1": 1.0, "h0": 0.25})
    machine.run()
    position = machine.trace.index("rescore c1i2m1 1 rule")
    assert machine.trace[position : position + 3] == ["rescore c1i2m1 1 rule", "rescore h0 1 rule", "Judge"]
    first, winner, own = (
        units.scoring_unit(machine.config, 4, 1, name, "w", replicate=replicate)
        for name, replicate in (("c1i2m1", 0), ("c1i2m1", 1), ("h0", 1))
    )
    assert [b.episodes for b in winner.batches] == [b.episodes for b in own.batches]
    assert not {e.seed for b in winner.batches for e in b.episodes} & {
        e.seed for b in first.batches for e in b.episodes
    }


@pytest.mark.parametrize("micro_batch", [1, 3, 128])
def test_racing_stops_a_candidate_between_blocks_and_never_ranks_it(micro_batch: int) -> None:
    racing = {"acceptance": "racing", "acceptance_options": {"block": 1}}
    engine = {"micro_batch": micro_batch}
    machine = Machine(config(search=racing, schedule={"cycles": 1}, engine=engine), {"h0": 1.0})
    machine.run()
    stopped = [t for t in machine.trace if t.startswith("stop ")]
    assert len(stopped) == 4
    assert stopped[0] == "stop c1i1m1 3 saved"
    assert [c.id for c in machine.state.candidates.values() if c.scores] == ["h0"]
    assert not [b for b in machine.batches if b.startswith("c001/harness/c1i1m1/") and not b.endswith("b0000")]


@given(st.integers(1, 40), st.integers(1, 50), st.integers(1, 20), st.integers(1, 3))
def test_no_micro_batch_goes_past_a_look_and_each_task_is_scored_once(
    tasks: int, micro_batch: int, block: int, samples: int
) -> None:
    racing = {"acceptance": "racing", "acceptance_options": {"block": block}, "rollouts_per_task": samples}
    of_run = config(search=racing, engine={"micro_batch": micro_batch})
    looks = judging.looks(of_run, tasks)
    assert looks == list(range(block, tasks + 1, block))
    unit = units.scoring_unit(of_run, tasks, 1, "h0", "w", looks=looks)
    ends = list(accumulate(len(batch.episodes) for batch in unit.batches))
    assert {look * samples for look in looks} <= set(ends)
    assert all(0 < len(batch.episodes) <= micro_batch for batch in unit.batches)
    scored = Counter(episode.task for batch in unit.batches for episode in batch.episodes)
    assert scored == Counter(dict.fromkeys(range(tasks), samples))


def test_a_stopped_tree_is_a_duplicate_when_it_is_proposed_again() -> None:
    racing = {"acceptance": "racing", "acceptance_options": {"block": 1}}
    machine = Machine(config(search=racing, schedule={"cycles": 1}, engine={"micro_batch": 1}), {"h0": 1.0})
    while not [t for t in machine.trace if t.startswith("stop ")]:
        machine.step()
    machine.record(
        ev.HarnessProposed(
            candidate="twin", tree="t-c1i1m1", parents=["h0"], proposer="test", cycle=1, iteration=1,
        )
    )  # fmt: skip
    machine.run()
    assert not [b for b in machine.batches if "twin" in b]


@pytest.mark.parametrize("approved", [True, False])
def test_an_acceptance_waits_for_a_reviewer_whose_answer_holds(approved: bool) -> None:
    machine = Machine(config(search={"approve": "human"}, schedule={"cycles": 1}), {"c1i2m1": 1.0})
    machine.run()
    assert d.decide(machine.state, machine.config) == d.AwaitApproval("c1i2m1")
    machine.record(ev.ApprovalGiven(candidate="other", approved=True), "control/approval/0", "control")
    machine.step()
    assert d.decide(machine.state, machine.config) == d.AwaitApproval("c1i2m1"), "the answer to another one is refused"
    machine.record(ev.ApprovalGiven(candidate="c1i2m1", approved=approved), "control/approval/1", "control")
    machine.run()
    assert machine.state.status == "completed"
    assert machine.state.accepted == ("c1i2m1" if approved else "h0")
    assert machine.state.interventions


def test_a_guarded_candidate_is_not_accepted_whatever_its_score() -> None:
    machine = Machine(config(schedule={"cycles": 1}), {"c1i2m1": 1.0})
    while "score c1i2m1 2" not in machine.trace:
        machine.step()
    machine.record(ev.CandidateGuarded(candidate="c1i2m1", cycle=1, reason="turns"))
    machine.run()
    assert machine.state.accepted == "h0"
