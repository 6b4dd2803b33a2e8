"""The tasks phase: when it comes, what it may replace, and that nothing else ever changes."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from tests.alternation.test_decide import Machine, config
from tests.alternation.test_resume import assert_same_end, ending, kill_then_resume
from tests.alternation.test_schedules import Remembering
from tests.runs import WhaleProcess, toy_settings
from whale.alternation import schedule
from whale.alternation.run_folder import RunFolder
from whale.alternation.task_step import Replacement, decode, encode, newest_success, replacements
from whale.domains.base import SPLITS, Split, Task
from whale.events import types as ev
from whale.rollout.parquet import decode_trajectories

GROWING = Path(__file__).parents[1] / "toy" / "growing.py"


def task_phases(machine: Machine) -> list[int]:
    return [int(entry.removeprefix("tasks ")) for entry in machine.trace if entry.startswith("tasks ")]


# --- when ---


def test_a_tasks_phase_comes_when_the_mean_reward_of_weight_phases_has_stood_still_for_two_of_them() -> None:
    """Two steps of 4 rollouts a phase. Rewards of 8 by cycle:  2  4  4  3 | 2  2  2 | 1.
    The maximum 4 of cycle 2 is two phases old after cycle 4, so cycle 5 begins with new tasks. From there on:
    the maximum 2 of cycle 5 is two phases old after cycle 7, so cycle 8 does too."""
    rewards = [(1, 1), (2, 2), (2, 2), (1, 2), (1, 1), (1, 1), (1, 1), (1, 0)]
    passed = {(c, s): value for c, pair in enumerate(rewards, 1) for s, value in enumerate(pair, 1)}
    machine = Remembering(config(schedule={"cycles": 8, "iterations": 0, "tasks_patience": 2}), passed=passed)
    machine.run()
    assert task_phases(machine) == [5, 8]
    # At every moment of a cycle its phases are the same.
    again = Remembering(machine.config, passed=passed)
    for recorded in machine.seen[1:]:
        again.record(recorded.event, recorded.key, recorded.stream)
        cycle = again.state.cycle
        assert ("tasks" in schedule.phases(again.state, again.config, cycle)) is (cycle in (5, 8))
    marks = [entry for entry in machine.trace if entry.startswith("c005/") and entry.endswith("ed")]
    assert marks[:4] == ["c005/tasks/started", "c005/tasks/ended", "c005/weight/started", "c005/weight/ended"]
    assert machine.state.task_artifacts == ("a-tasks-5", "a-tasks-8")


def test_a_reward_that_rises_never_brings_new_tasks() -> None:
    passed = {(c, s): c for c in range(1, 5) for s in (1, 2)}
    machine = Machine(config(schedule={"cycles": 4, "iterations": 0, "tasks_patience": 1}), passed=passed)
    machine.run()
    assert task_phases(machine) == []


def test_without_its_key_there_is_no_tasks_phase_however_long_nothing_rises() -> None:
    machine = Machine(config(schedule={"cycles": 6, "iterations": 0}))
    machine.run()
    assert task_phases(machine) == []


@pytest.mark.parametrize("kind, expected", [("weight-only", [3, 5]), ("harness-only", []), ("stagewise", [3])])
def test_only_before_weight_phases(kind: str, expected: list[int]) -> None:
    own = {"kind": kind, "cycles": 5, "weight_cycles": 3, "harness_cycles": 2, "iterations": 1, "tasks_patience": 1}
    machine = Machine(config(schedule=own))
    machine.run()
    assert task_phases(machine) == expected


@given(st.lists(st.integers(0, 4), min_size=6, max_size=6), st.integers(1, 3))
def test_new_tasks_change_no_slice_and_a_restart_decides_the_same(rewards: list[int], patience: int) -> None:
    passed = {(c, s): value for c, value in enumerate(rewards, 1) for s in (1, 2)}
    with_tasks = config(schedule={"cycles": 6, "iterations": 0, "tasks_patience": patience})
    one = Remembering(with_tasks, passed=passed)
    one.run()
    plain = Remembering(config(schedule={"cycles": 6, "iterations": 0}), passed=passed)
    plain.run()
    assert one.trained() == plain.trained()
    assert [one.ended(f"c00{c}/weight").sampled for c in range(1, 7)] == [
        plain.ended(f"c00{c}/weight").sampled for c in range(1, 7)
    ]
    # Rebuilt from its events at any moment, the state is the one that decided.
    again = Remembering(with_tasks, passed=passed)
    for recorded in one.seen[1:]:
        again.record(recorded.event, recorded.key, recorded.stream)
    assert again.state == one.state


# --- what ---


def task(split: str, number: int) -> Task:
    return Task(f"{split}-{number}", {"question": f"{split} question {number}"}, {"answer": str(number)})


class Stub:
    """Makes tasks as it is told: by the old one's id, one answer an attempt."""

    name = "stub"

    def __init__(self, answers: Mapping[str, list[Task | None]], hidden: str = "never") -> None:
        self.answers = {key: iter(value) for key, value in answers.items()}
        self.hidden = hidden

    def harder(self, old: Task, seed: int) -> Task | None:
        return next(self.answers[old.id], None)

    def leak(self, text: str) -> str | None:
        return "hidden" if self.hidden in text else None


def all_splits(n: int = 4) -> dict[Split, list[Task]]:
    return {split: [task(split, i) for i in range(n)] for split in SPLITS}


def test_the_most_passed_questions_give_way_first_and_no_more_than_the_share() -> None:
    made, refused = replacements(
        config(schedule={"tasks_share": 0.5}), Stub({f"weight-{i}": [task("new", i)] for i in range(4)}),  # type: ignore[arg-type]
        all_splits(), [], {"weight-0": 0.8, "weight-1": 1.0, "weight-3": 0.9}, 2,
    )  # fmt: skip
    assert [(each.place, each.replaces, each.task.id) for each in made] == [
        (1, "weight-1", "new-1"),
        (3, "weight-3", "new-3"),
    ]
    assert refused == {}
    assert decode(encode(made)) == made


def test_a_task_of_another_split_a_known_one_and_a_hidden_one_are_refused_by_their_words() -> None:
    validation = Task("fresh", {"question": "  VALIDATION  question 1"}, {"answer": "9"})
    retired = Task("old-7", {"question": "asked long ago"}, {})
    asked = Task("another", {"question": "Asked long ago"}, {})
    smuggled = Task("smuggled", {"question": "like one of TEST"}, {})
    domain = Stub(
        {
            "weight-0": [validation, task("test", 2), task("new", 0)],
            "weight-1": [asked] * 20,
            "weight-2": [smuggled] * 20,
            "weight-3": [None],
        },
        hidden="TEST",
    )
    made, refused = replacements(
        config(schedule={"tasks_share": 1}), domain, all_splits(), [retired], {f"weight-{i}": 1.0 for i in range(4)}, 2  # type: ignore[arg-type]
    )  # fmt: skip
    assert [each.task.id for each in made] == ["new-0"], "the third attempt is of no split"
    assert refused == {"hidden": 1, "known": 1, "none harder": 1}


def test_what_a_task_says_survives_its_artifact_whatever_is_in_it() -> None:
    odd = Task("é", {"question": "a\u2028b\x85c\nd\ud800"}, {"answer": [1, {"x": None}]}, "gruppe ü")
    (back,) = decode(encode([Replacement(2, "weight-2", odd)]))
    assert back == Replacement(2, "weight-2", odd)


@st.composite
def made_up(draw: st.DrawFn) -> dict[str, list[Task | None]]:
    """Answers that often are tasks of some split, of each other, or none."""
    names = st.sampled_from([f"{split}-{i}" for split in (*SPLITS, "new") for i in range(6)])
    tasks = st.one_of(st.none(), names.map(lambda name: task(*_parts(name))))
    return {f"weight-{i}": draw(st.lists(tasks, max_size=9)) for i in range(4)}


def _parts(name: str) -> tuple[str, int]:
    split, _, number = name.rpartition("-")
    return split, int(number)


@given(made_up(), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_whatever_a_domain_makes_no_split_ever_shares_a_task_with_another(
    answers: dict[str, list[Task | None]], share: float
) -> None:
    splits, before = all_splits(), all_splits()
    passed = {f"weight-{i}": 1.0 for i in range(4)}
    made, _ = replacements(config(schedule={"tasks_share": share}), Stub(answers), splits, [], passed, 2)  # type: ignore[arg-type]
    assert splits == before, "nothing is changed in place"
    assert len(made) <= share * 4
    for each in made:
        splits["weight"][each.place] = each.task
    everything = [one.id for split in SPLITS for one in splits[split]]
    assert len(set(everything)) == len(everything)
    assert [len(splits[split]) for split in SPLITS] == [4] * 4


def rollouts(batch: str, purpose: ev.Purpose, *rewards: tuple[str, float]) -> Any:
    outcomes = [ev.Outcome(name, i, reward, "ok", 1, 1, 1, False, False) for i, (name, reward) in enumerate(rewards)]
    event = ev.RolloutsRecorded(
        batch=batch, purpose=purpose, candidate="h0", weights="w", artifact="a", outcomes=outcomes
    )
    return SimpleNamespace(event=event)


def test_a_questions_newest_step_tells_its_success_and_only_training_counts() -> None:
    log = [
        rollouts("c001/weight/s0001/b0000", "train", ("a", 0.0), ("a", 0.0), ("b", 1.0)),
        rollouts("c002/weight/s0001/b0000", "train", ("a", 1.0), ("a", 0.5)),
        rollouts("c002/weight/s0001/b0001", "train", ("a", 1.0), ("a", 1.0)),
        rollouts("c002/evaluate/validation/b0000", "evaluate", ("a", 0.0), ("v", 1.0)),
    ]
    assert newest_success(log) == {"a": 0.75, "b": 1.0}


# --- a run ---


def growing_config(tmp_path: Path, model: Path) -> Path:
    """Everything passes, so the mean reward is flat: the third cycle begins with new tasks."""
    raw = toy_settings(model) | {"domain": f"{GROWING}:create"}
    raw["schedule"] = {"cycles": 3, "epochs": "1", "iterations": 1, "tasks_patience": 1, "tasks_share": 0.5}
    path = tmp_path / "growing.toml"
    path.write_text(tomli_w.dumps(raw), encoding="utf-8")
    return path


def tasks_by_purpose(folder: RunFolder) -> dict[tuple[str, int], set[str]]:
    """(purpose, cycle) -> ids of the tasks that were run."""
    found: dict[tuple[str, int], set[str]] = {}
    with folder.open_log(readonly=True) as log:
        for recorded in log.read():
            if isinstance(recorded.event, ev.RolloutsRecorded) and recorded.event.purpose != "smoke":
                key = (recorded.event.purpose, int(recorded.event.batch[1:4]))
                found.setdefault(key, set()).update(
                    trajectory.task_id
                    for trajectory in decode_trajectories(folder.artifacts.get(recorded.event.artifact))
                )
    return found


@pytest.fixture
def whole(whale_here: WhaleProcess, toy_model: Path, tmp_path: Path) -> RunFolder:
    whale_here("run", str(growing_config(tmp_path, toy_model)), "--name", "whole", "--quiet")
    return RunFolder(tmp_path / "runs" / "whole")


def test_a_run_trains_on_the_new_tasks_and_scores_and_evaluates_on_the_old_ones(
    whole: RunFolder, whale_here: WhaleProcess, toy_model: Path, tmp_path: Path
) -> None:
    with whole.open_log(readonly=True) as log:
        (proposed,) = [r for r in log.read() if isinstance(r.event, ev.TasksProposed)]
    event = proposed.event
    assert isinstance(event, ev.TasksProposed)
    assert (event.cycle, len(event.replaced), event.passed) == (3, 3, 6)
    ran = tasks_by_purpose(whole)
    first = {f"weight-{i}" for i in range(6)}
    assert ran["train", 1] == ran["train", 2] == first
    assert ran["train", 3] == (first - set(event.replaced)) | set(event.replaced.values())
    for purpose in ("score", "evaluate"):
        seen = {cycle: ids for (which, cycle), ids in ran.items() if which == purpose}
        assert not any(name.startswith("weight") for ids in seen.values() for name in ids)
        assert len({frozenset(ids) for cycle, ids in seen.items() if cycle in (1, 2)}) == 1
    assert "checked artifacts" in whale_here("replay", "whole", "--deep", "--quiet").stdout
    # A fork from inside the phase reads the tasks that its origin made.
    whale_here("fork", "whole", "--name", "fork", "--at", str(proposed.position))
    whale_here("resume", "fork", "--quiet")
    assert tasks_by_purpose(RunFolder(tmp_path / "runs" / "fork")) == ran
    # Killed before they are recorded, a run makes the same tasks again.
    assert kill_then_resume(tmp_path / "runs", growing_config(tmp_path, toy_model), "append", proposed.position)
    assert_same_end(ending(whole.path), ending(tmp_path / "runs" / "killed"))


def test_a_domain_without_harder_tasks_is_refused_before_anything_is_paid(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    told = whale_here("run", str(toy_config), "--name", "x", "--set", "schedule.tasks_patience=1", check=False)
    assert told.returncode == 2
    assert "domain toy makes no harder tasks" in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "runs" / "x").exists()
