import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.search.sample_trees import LOOKUP_TREE, entry, outcomes
from whale.domains.base import Task
from whale.rollout.types import ToolCall, Trajectory, Turn
from whale.search.archive import ArchiveLimits, build_archive, write_archive
from whale.search.types import ArchiveEntry, PassedRollout

TRAINING = {name: Task(name, {"question": f"{name}?"}, {"answers": ["hidden"]}) for name in ("h0", "h1", "w0")}


def scored(name: str, rewards: list[float]) -> ArchiveEntry:
    score = sum(rewards) / len(rewards)
    return replace(entry(name, LOOKUP_TREE, score, n=len(rewards)), outcomes=outcomes(rewards))


def rollout(task: str, reply: str = "hello") -> Trajectory:
    turn = Turn((1,), (2,), (0.0,), "stop", "w", 0, reply, "", ({"role": "user", "content": "q"},))
    call = ToolCall(1, "search", {"query": "q"}, [{"text": "found"}])
    return Trajectory(task, 0, 0, (turn,), (call,), "ok", "", 0)


ENTRIES = [scored("c000", [1.0, 0.0]), replace(scored("c001", [1.0, 1.0]), parents=("c000",))]


def test_the_archive_lists_scores_tasks_lineage_and_sources(tmp_path: Path) -> None:
    store = build_archive(ENTRIES, [], TRAINING)
    write_archive(tmp_path, store, {"c001": [rollout("h0")]})
    scores = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [(s["candidate"], s["score"], s["n"]) for s in scores] == [("c000", 0.5, 2), ("c001", 1.0, 2)]
    tasks = [json.loads(line) for line in (tmp_path / "per_task.jsonl").read_text().splitlines()]
    assert tasks[1] == {
        "task": "h1",
        "public": {"question": "h1?"},
        "rewards": {"c000": [0.0], "c001": [1.0]},
    }
    assert json.loads((tmp_path / "lineage.json").read_text()) == {"c000": [], "c001": ["c000"]}
    for path, content in LOOKUP_TREE.items():
        assert (tmp_path / "harnesses/c001" / path).read_bytes() == content
    shown = json.loads((tmp_path / "trajectories/c001.jsonl").read_text())
    assert shown["turns"][0]["reply"] == "hello" and shown["calls"][0]["result"] == [{"text": "found"}]


def test_no_reference_answer_is_in_the_archive(tmp_path: Path) -> None:
    store = build_archive(ENTRIES, [], TRAINING)
    write_archive(tmp_path, store, {"c000": [rollout("h0")]})
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and "hidden" in p.read_text()]


def test_a_task_of_another_split_is_refused(tmp_path: Path) -> None:
    held_out = replace(ENTRIES[0], outcomes=outcomes([1.0], prefix="test"))
    with pytest.raises(ValueError, match="no training task"):
        build_archive([held_out], [], TRAINING)
    with pytest.raises(ValueError, match="no training task"):
        build_archive(ENTRIES, [PassedRollout("v9", "c000", ())], TRAINING)
    with pytest.raises(ValueError, match="no training task"):
        write_archive(tmp_path, build_archive(ENTRIES, [], TRAINING), {"c000": [rollout("v9")]})
    assert not list(tmp_path.iterdir())


def test_a_candidate_is_in_the_archive_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        build_archive([ENTRIES[0], ENTRIES[0]], [], TRAINING)


def test_a_refresh_leaves_what_is_the_same_and_removes_what_is_gone(tmp_path: Path) -> None:
    store = build_archive(ENTRIES, [], TRAINING)
    write_archive(tmp_path, store, {})
    before = {p: p.stat().st_ino for p in tmp_path.rglob("*") if p.is_file()}
    (tmp_path / "harnesses/.new-left").mkdir()
    write_archive(tmp_path, store, {})
    assert {p: p.stat().st_ino for p in tmp_path.rglob("*") if p.is_file()} == before
    write_archive(tmp_path, build_archive(ENTRIES[:1], [], TRAINING), {})
    assert sorted(p.name for p in (tmp_path / "harnesses").iterdir()) == ["c000"]
    assert sorted(p.name for p in (tmp_path / "trajectories").iterdir()) == ["c000.jsonl"]


def test_an_edited_harness_folder_is_put_right(tmp_path: Path) -> None:
    store = build_archive(ENTRIES, [], TRAINING)
    write_archive(tmp_path, store, {})
    (tmp_path / "harnesses/c000/harness.py").write_text("changed")
    (tmp_path / "harnesses/c000/extra.py").write_text("added")
    write_archive(tmp_path, store, {})
    assert (tmp_path / "harnesses/c000/harness.py").read_bytes() == LOOKUP_TREE["harness.py"]
    assert not (tmp_path / "harnesses/c000/extra.py").exists()


def test_disk_use_is_bounded(tmp_path: Path) -> None:
    limits = ArchiveLimits(trajectories=2, text_chars=50, passed=3)
    passed = [PassedRollout("w0", f"c{i}", ()) for i in range(10)]
    store = build_archive(ENTRIES, passed, TRAINING, limits)
    assert [p.candidate for p in store.passed] == ["c7", "c8", "c9"]
    write_archive(tmp_path, store, {"c000": [rollout("h0", "x" * 10_000)] * 9}, limits)
    lines = (tmp_path / "trajectories/c000.jsonl").read_text().splitlines()
    assert len(lines) == 2 and len(lines[0]) < 1000


def test_no_candidate_writes_outside_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    for name in ("../x", ".hidden", "a/b", ""):
        with pytest.raises(ValueError, match="cannot name"):
            write_archive(folder, build_archive([entry(name, LOOKUP_TREE)], [], TRAINING), {})
    evil = entry("c009", LOOKUP_TREE | {"../../evil.py": b"x"}, None, valid=False)
    write_archive(folder, build_archive([evil], [], TRAINING), {})
    assert not list(tmp_path.rglob("evil.py")) and "c009" in (folder / "scores.jsonl").read_text()
