"""`whale gc`: what nothing needs goes, and what replay, resume, forks and pairs need stays."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.runs import WhaleProcess
from whale.alternation.run_folder import RunFolder
from whale.cli.gc_command import parse_bytes
from whale.errors import UsageError
from whale.events import NewEvent
from whale.events import types as ev

OLD = 1_000_000_000


@pytest.fixture
def run(whale_here: WhaleProcess, toy_config: Path, tmp_path: Path) -> Path:
    """A completed run with rubbish in it: what killed processes leave, and an artifact that no event names."""
    whale_here("run", str(toy_config), "--name", "toy", "--quiet")
    folder = tmp_path / "runs" / "toy"
    for name in (".tmp-c001-s0001-99", "c009-s0001"):
        (folder / "checkpoints" / name).mkdir()
        (folder / "checkpoints" / name / "model.safetensors").write_bytes(b"x" * 1000)
    shutil.copy(next((folder / "checkpoints").glob("c001-*/trainer.json")), folder / "checkpoints" / "c009-s0001")
    store = RunFolder(folder).artifacts
    os.utime(store.path(store.put(b"nobody's")), (OLD, OLD))
    store.put(b"of a request that is being made")
    return folder


def listing(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_only_what_nothing_needs_goes_and_the_run_replays_forks_and_goes_on(
    run: Path, whale_here: WhaleProcess
) -> None:
    before = listing(run)
    planned = json.loads(whale_here("gc", "toy", "--dry-run", "--json").stdout)
    assert listing(run) == before, "a dry run removes nothing"
    done = json.loads(whale_here("gc", "toy", "--json").stdout)
    assert done["goes"] == planned["goes"]
    assert sorted(item["kind"] for item in done["goes"]) == ["left over", "old checkpoint", "unnamed artifact"]
    after = listing(run)
    gone = before.keys() - after.keys()
    assert {name.split("/")[0] for name in gone} == {"checkpoints", "artifacts"}
    assert all("c009" in name or ".tmp-" in name or before[name] == b"nobody's" for name in gone)
    assert all(after[name] == before[name] for name in after), "nothing that stays is changed"
    assert done["bytes_after"] == sum(map(len, after.values()))
    whale_here("replay", "toy", "--deep", "--quiet")
    whale_here("events", "verify", "toy")
    whale_here("fork", "toy", "--name", "early", "--at", "60")
    whale_here("resume", "early", "--quiet")
    whale_here("extend", "toy", "--cycles", "1")
    whale_here("resume", "toy", "--quiet")
    assert json.loads(whale_here("gc", "toy", "--json").stdout)["goes"] == []


def test_a_quota_takes_caches_first_and_optimiser_states_only_with_consent(run: Path, whale_here: WhaleProcess) -> None:
    whale_here("events", "rebuild", "toy", "--quiet")
    done = whale_here("gc", "toy", "--keep-bytes", "1k", check=False)
    assert done.returncode == 1
    assert "more than the quota" in done.stderr and "--drop-optimizers could free" in done.stdout
    assert not (run / "views.db").exists()
    assert all(path.is_file() for path in (run / "checkpoints").glob("*/optimizer.safetensors"))
    optimizers = sorted((run / "checkpoints").glob("*/optimizer.safetensors"))
    assert len(optimizers) == 2
    whale_here("gc", "toy", "--keep-bytes", "1k", "--drop-optimizers", check=False)
    assert [path.is_file() for path in optimizers] == [False, True], "the newest stays: resume trains on with it"
    whale_here("replay", "toy", "--quiet")
    whale_here("export", "toy", "--cycle", "1", "-o", "pair")


def test_without_a_quota_consent_alone_takes_all_older_optimiser_states_and_no_cache(
    run: Path, whale_here: WhaleProcess
) -> None:
    whale_here("events", "rebuild", "toy", "--quiet")
    whale_here("gc", "toy", "--drop-optimizers")
    assert (run / "views.db").exists()
    there = [path.is_file() for path in sorted((run / "checkpoints").glob("*/optimizer.safetensors"))]
    assert there == [True]
    whale_here("replay", "toy", "--quiet")


def test_a_fork_does_not_begin_where_training_could_not_go_on(run: Path, whale_here: WhaleProcess) -> None:
    log = RunFolder(run).open_log(readonly=True)
    ended = [r for r in log.read() if isinstance(r.event, ev.PhaseEnded)]
    at = next(r.position for r in ended if isinstance(r.event, ev.PhaseEnded) and r.event.phase == "weight")
    log.close()
    assert json.loads(whale_here("fork", "toy", "--name", "a", "--at", str(at), "--json").stdout)["position"] == at
    whale_here("gc", "toy", "--keep-bytes", "1k", "--drop-optimizers", check=False)
    fork = json.loads(whale_here("fork", "toy", "--name", "b", "--at", str(at), "--json").stdout)
    assert fork["position"] < at
    assert "dropped by `whale gc`" in fork["earlier_because"]
    whale_here("resume", "b", "--quiet")


def test_the_artifact_of_a_waiting_proposal_stays(run: Path, whale_here: WhaleProcess) -> None:
    folder = RunFolder(run)
    digest = folder.artifacts.put(b"a human's harness")
    os.utime(folder.artifacts.path(digest), (OLD, OLD))
    with folder.open_log() as log:
        log.append(
            "control", [NewEvent(ev.ProposalSubmitted(artifact=digest, title="mine"), key="p1")], expected_version=None
        )
    whale_here("gc", "toy")
    assert folder.artifacts.path(digest).is_file()


def test_nothing_is_removed_while_a_runner_is_at_work_or_the_log_is_damaged(
    run: Path, whale_here: WhaleProcess
) -> None:
    before = listing(run / "checkpoints")
    with RunFolder(run).lease():
        assert whale_here("gc", "toy", check=False).returncode == 3
    content = (run / "events.db").read_bytes()
    (run / "events.db").write_bytes(content.replace(b'"candidate":"h0"', b'"candidate":"h1"', 1))
    assert whale_here("gc", "toy", check=False).returncode == 4
    assert listing(run / "checkpoints") == before


def test_a_quota_is_a_number_of_bytes() -> None:
    assert [parse_bytes(text) for text in ("500", "20G", "1.5Gi", "2 k".replace(" ", ""), "3MB")] == [
        500, 20 * 10**9, 3 * 2**29, 2000, 3 * 10**6,
    ]  # fmt: skip
    with pytest.raises(UsageError):
        parse_bytes("much")
