"""A fork continues another run from any of its events, on both sides of the pair, and stands alone."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.alternation.test_resume import ending
from tests.runs import WhaleProcess
from whale.alternation.fork import safe_point
from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State
from whale.events import Recorded
from whale.events import types as ev


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def origin(kept: Path, whale_here: WhaleProcess, toy_config: Path, tmp_path: Path) -> RunFolder:
    """A complete run, carried out once per module and copied for each test."""
    if not (kept / "origin").exists():
        whale_here("run", str(toy_config), "--name", "origin", "--quiet", "--set", "weights.checkpoint_every=1")
        shutil.copytree(tmp_path / "runs" / "origin", kept / "origin")
    else:
        shutil.copytree(kept / "origin", tmp_path / "runs" / "origin")
    return RunFolder(tmp_path / "runs" / "origin")


def events_of(folder: RunFolder) -> list[Recorded]:
    with folder.open_log(readonly=True) as log:
        log.verify()
        return list(log.read())


def position_of(folder: RunFolder, kind: type[ev.Event], nth: int = 0) -> int:
    return [r.position for r in events_of(folder) if isinstance(r.event, kind)][nth]


def without_forks(folder: RunFolder) -> Any:
    whole = ending(folder.path)
    facts = {key: fact for key, fact in whole.facts.items() if not isinstance(fact, ev.RunForked)}
    return whole.rollouts, whole.weights, whole.accepted_tree, facts


def git(folder: RunFolder, *arguments: str) -> str:
    command = ["git", "-C", str(folder.harnesses), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "kind, nth",
    [
        (ev.PhaseStarted, 1),
        (ev.RolloutsRecorded, 8),
        (ev.StepTrained, 0),
        (ev.HarnessProposed, 1),
        (ev.CandidateScored, 1),
        (ev.HarnessAccepted, 0),
        (ev.PhaseEnded, 3),
    ],
)
def test_a_fork_without_changes_ends_as_its_origin_did(
    origin: RunFolder, whale_here: WhaleProcess, kind: type[ev.Event], nth: int
) -> None:
    at = position_of(origin, kind, nth)
    told = json.loads(whale_here("fork", "origin", "--at", str(at), "--name", "again", "--json").stdout)
    again = RunFolder(origin.path.parent / "again")
    assert told["position"] <= at
    copied = events_of(again)
    assert copied[:-1] == events_of(origin)[: told["position"]], "byte for byte, hashes and all"
    assert copied[-1].event.origin == ev.Origin("origin", told["position"], copied[-2].hash)  # type: ignore[attr-defined]
    shutil.move(origin.path, origin.path.with_name("away"))  # a fork needs nothing of its origin
    whale_here("resume", "again", "--quiet")
    whale_here("replay", "again")
    assert without_forks(again) == without_forks(RunFolder(origin.path.with_name("away")))
    state = again.state()
    assert (state.name, [o.run for o in state.origins]) == ("again", ["origin"])
    away = RunFolder(origin.path.with_name("away"))
    assert git(again, "rev-parse", "accepted^{tree}") == git(away, "rev-parse", "accepted^{tree}")
    refs = ["for-each-ref", "--format=%(refname) %(tree)", "refs/whale/candidates", "refs/tags"]
    assert git(again, *refs) == git(away, *refs)
    assert git(again, "notes", "--ref=whale", "list").count("\n") == git(away, "notes", "--ref=whale", "list").count(
        "\n"
    )


def test_with_another_config_a_fork_goes_on_between_phases_where_the_sampler_stood(
    origin: RunFolder, whale_here: WhaleProcess
) -> None:
    """E changes from 1/2 to 1/3 of six questions: the next phase takes two, from the fourth on."""
    at = position_of(origin, ev.StepTrained, -1)
    told = whale_here(
        "fork", "origin", "--at", str(at), "--name", "other", "--set", "schedule.epochs='1/3'",
        "--set", "schedule.cycles=3", check=False,
    )  # fmt: skip
    assert told.returncode == 2, "an epoch count is a decimal number"
    told = whale_here(
        "fork", "origin", "--at", str(at), "--name", "other", "--set", "schedule.epochs=0.34",
        "--set", "schedule.cycles=3", "--set", "weights.batch=3",
    )  # fmt: skip
    assert "earlier safe point" in told.stdout
    assert "planned with the old config" in told.stdout
    other = RunFolder(origin.path.parent / "other")
    forked = events_of(other)[-1].event
    assert isinstance(forked, ev.RunForked)
    assert forked.changed == ["schedule.cycles", "schedule.epochs", "weights.batch"]
    assert (forked.phases, forked.sampled) == (1, 3)
    whale_here("resume", "other", "--quiet")
    state = other.state()
    assert (state.status, state.cycle) == ("completed", 3)
    steps = [s for s in state.steps if s.cycle > 1]
    # ⌈0.34 · 6⌉ = 3 questions in cycle 2, ⌈2 · 0.34 · 6⌉ − 3 = 2 in cycle 3; two rollouts each.
    assert [(s.cycle, s.rollouts) for s in steps] == [(2, 6), (3, 4)]


def test_a_complete_run_goes_on_where_the_fork_has_more_cycles(origin: RunFolder, whale_here: WhaleProcess) -> None:
    whale_here("fork", "origin", "--name", "more", "--set", "schedule.cycles=3")
    more = RunFolder(origin.path.parent / "more")
    assert more.state().status == "running"
    whale_here("resume", "more", "--quiet")
    assert [e.cycle for e in more.state().evaluations if e.split == "validation"] == [0, 1, 2, 3]


def test_a_complete_run_that_is_only_copied_stays_complete(origin: RunFolder, whale_here: WhaleProcess) -> None:
    told = whale_here("fork", "origin")
    assert "schedule.cycles=3" in told.stdout
    assert "is complete" in whale_here("resume", "origin-fork").stdout
    assert "completed" in whale_here("status", "origin-fork").stdout


def test_a_fork_of_a_fork_names_both_origins(origin: RunFolder, whale_here: WhaleProcess) -> None:
    whale_here("fork", "origin", "--at", str(position_of(origin, ev.PhaseEnded, 2)), "--name", "one")
    whale_here("fork", "one", "--name", "two", "--set", "seed=6")
    two = RunFolder(origin.path.parent / "two")
    whale_here("resume", "two", "--quiet")
    assert [o.run for o in two.state().origins] == ["origin", "one"]
    assert two.state().status == "completed"
    whale_here("events", "verify", "two")


def test_a_request_that_the_origin_had_not_answered_stays_with_it(origin: RunFolder, whale_here: WhaleProcess) -> None:
    from whale.cli.steer_commands import request

    request(origin, ev.PauseRequested(by="me"))
    whale_here("fork", "origin", "--name", "free")
    assert RunFolder(origin.path.parent / "free").state().requests == {}


@pytest.mark.parametrize(
    "arguments, code, says",
    [
        (["--at", "0"], 2, "has events 1 to"),
        (["--at", "99999"], 2, "has events 1 to"),
        (["--at", "2"], 2, "not accepted yet"),
        (["--set", "model=other"], 2, "keeps its origin's model"),
        (["--set", "domain_options.weight=7"], 2, "keeps its origin's domain_options"),
        (["--set", "schedule.cycle=7"], 2, "did you mean cycles"),
        (["--name", "../x"], 2, "--name"),
        (["--name", "origin"], 3, "is there already"),
    ],
)
def test_a_fork_that_cannot_be_says_why_and_leaves_nothing(
    origin: RunFolder, whale_here: WhaleProcess, arguments: list[str], code: int, says: str
) -> None:
    done = whale_here("fork", "origin", *arguments, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert says in done.stderr
    assert [p.name for p in origin.path.parent.iterdir() if p.is_dir()] == ["origin"]


@pytest.mark.parametrize("what", ["artifact", "store"])
def test_a_fork_of_a_run_with_missing_files_says_which(origin: RunFolder, whale_here: WhaleProcess, what: str) -> None:
    if what == "artifact":
        next(p for p in (origin.path / "artifacts").rglob("*") if p.is_file()).unlink()
    else:
        shutil.rmtree(origin.harnesses)
    done = whale_here("fork", "origin", "--name", "new", check=False)
    assert done.returncode in (1, 4)
    assert done.stderr.count("\n") == 1
    assert [p.name for p in origin.path.parent.iterdir() if p.is_dir()] == ["origin"]


def test_inside_a_phase_whose_checkpoint_is_gone_the_point_before_it_is_taken(origin: RunFolder) -> None:
    """A phase keeps its newest checkpoint only while it lasts."""
    saved = [r for r in events_of(origin) if isinstance(r.event, ev.CheckpointSaved) and not r.event.phase_end]
    at = saved[0].position
    point = safe_point(origin, iter(events_of(origin)), at, boundary=False)
    assert point.position == at - 1
    assert "is not kept" in point.reason
    assert isinstance(point.state, State)
