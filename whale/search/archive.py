"""The archive: what a proposer may see, as records and as a folder to read.

Only training tasks are in it. A trajectory shows messages, tool calls and the verdict; never a reference
answer, a validation or a test task, or a figure of the budget.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whale.domains.base import Task
from whale.rollout.types import Trajectory
from whale.search.scoring import summarise
from whale.search.tree import check_tree
from whale.search.types import Archive, ArchiveEntry, PassedRollout

_CANDIDATE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """How much of a run lies on disk for a proposer."""

    trajectories: int = 64
    """Per candidate."""
    text_chars: int = 4000
    """Per message, reply, tool argument or tool result."""
    passed: int = 512
    """Passed rollouts in all; the newest stay."""


def build_archive(
    entries: Iterable[ArchiveEntry],
    passed: Iterable[PassedRollout],
    training: Mapping[str, Task],
    limits: ArchiveLimits = ArchiveLimits(),
) -> Archive:
    """The archive over training tasks (D_weight and D_harness, by id).

    Raises ValueError for a result of any other task: it may be one of validation or test. Each entry is one
    candidate, once.
    """
    kept = tuple(entries)
    seen: set[str] = set()
    for entry in kept:
        if entry.candidate in seen:
            raise ValueError(f"{entry.candidate} is twice in the archive")
        seen.add(entry.candidate)
        for outcome in entry.outcomes:
            if outcome.task not in training:
                raise ValueError(f"{outcome.task} is no training task: no proposer may see {entry.candidate}'s result")
    rollouts = tuple(passed)[-limits.passed :] if limits.passed else ()
    for rollout in rollouts:
        if rollout.task_id not in training:
            raise ValueError(f"{rollout.task_id} is no training task: no proposer may see its rollout")
    return Archive(kept, rollouts, {name: dict(task.public) for name, task in training.items()})


def write_archive(
    folder: Path,
    archive: Archive,
    trajectories: Mapping[str, Sequence[Trajectory]],
    limits: ArchiveLimits = ArchiveLimits(),
) -> None:
    """Write or refresh the folder that a proposer reads.

    `harnesses/<id>/...`, `scores.jsonl`, `per_task.jsonl`, `trajectories/<id>.jsonl`, `lineage.json`. Each
    file and each harness folder appears whole or not at all; what the archive no longer has is removed.
    A tree that a gate refused for its size or paths gets no folder. Raises ValueError for a candidate id that
    would leave the folder, or a trajectory of a task that is not training's.
    """
    for entry in archive.entries:
        if not _CANDIDATE.fullmatch(entry.candidate):
            raise ValueError(f"{entry.candidate!r} cannot name a folder of the archive")
        for trajectory in trajectories.get(entry.candidate, ()):
            if trajectory.task_id not in archive.task_text:
                raise ValueError(f"{trajectory.task_id} is no training task: no proposer may see its trajectory")
    candidates = {entry.candidate for entry in archive.entries}
    for name in ("harnesses", "trajectories"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    _clear(folder / "harnesses", candidates)
    _clear(folder / "trajectories", {f"{candidate}.jsonl" for candidate in candidates})
    for entry in archive.entries:
        _write_tree(folder / "harnesses" / entry.candidate, entry.files)
        shown = trajectories.get(entry.candidate, ())[: limits.trajectories]
        lines = (trajectory_view(trajectory, limits.text_chars) for trajectory in shown)
        _write(folder / "trajectories" / f"{entry.candidate}.jsonl", _jsonl(lines))
    _write(folder / "scores.jsonl", _jsonl(map(score_view, archive.entries)))
    _write(folder / "per_task.jsonl", _jsonl(per_task_views(archive)))
    lineage = {entry.candidate: list(entry.parents) for entry in archive.entries}
    _write(folder / "lineage.json", json.dumps(lineage, indent=1, sort_keys=True) + "\n")


def score_view(entry: ArchiveEntry) -> dict[str, Any]:
    """One line of `scores.jsonl`."""
    view: dict[str, Any] = {
        "candidate": entry.candidate,
        "parents": list(entry.parents),
        "cycle": entry.cycle,
        "title": entry.title,
        "hypothesis": entry.hypothesis,
        "axis": entry.axis,
        "valid": entry.valid,
        "current": entry.current,
        "weights": entry.weights,
        "score": entry.score,
    }
    if entry.reason:
        view["reason"] = entry.reason
    if entry.score is not None and entry.outcomes:
        summary = summarise(entry.outcomes)
        view |= {
            "n": summary.n,
            "interval_95": [round(summary.low, 4), round(summary.high, 4)],
            "mean_turns": round(summary.mean_turns, 3),
            "mean_tokens": round(summary.mean_tokens, 1),
            "fabricated": round(summary.fabricated, 4),
            "failures": summary.failures,
        }
    return view


def per_task_views(archive: Archive) -> Iterator[dict[str, Any]]:
    """Lines of `per_task.jsonl`: a task's public fields, and each candidate's rewards on it."""
    rewards: dict[str, dict[str, list[float]]] = {}
    for entry in archive.entries:
        for outcome in entry.outcomes:
            rewards.setdefault(outcome.task, {}).setdefault(entry.candidate, []).append(outcome.reward)
    for task in sorted(rewards):
        yield {"task": task, "public": dict(archive.task_text[task]), "rewards": rewards[task]}


def trajectory_view(trajectory: Trajectory, text_chars: int) -> dict[str, Any]:
    """One line of a trajectory file: texts only, each cut to a length."""

    def cut(value: Any) -> Any:
        if isinstance(value, str):
            return value if len(value) <= text_chars else value[: text_chars - 1] + "…"
        text = json.dumps(value, ensure_ascii=False, default=str)
        return value if len(text) <= text_chars else text[: text_chars - 1] + "…"

    return {
        "task": trajectory.task_id,
        "sample": trajectory.sample,
        "reward": trajectory.reward,
        "status": trajectory.status,
        "reason": cut(trajectory.reason),
        "answer_turn": trajectory.answer_turn,
        "metrics": dict(trajectory.metrics),
        "turns": [
            {
                "messages": [{"role": m["role"], "content": cut(m["content"])} for m in turn.messages],
                "prefix": turn.prefix,
                "reply": cut(turn.text),
                "finish_reason": turn.finish_reason,
            }
            for turn in trajectory.turns
        ],
        "calls": [
            {
                "after_turn": call.after_turn,
                "name": call.name,
                "arguments": cut(dict(call.arguments)),
                "result": cut(call.result),
                "error": cut(call.error),
            }
            for call in trajectory.calls
        ],
    }


def _jsonl(lines: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n" for line in lines)


def _write(path: Path, text: str) -> None:
    """Put the file in place in one step, and leave it alone if it says the same already."""
    content = text.encode("utf-8", "replace")
    if path.is_file() and path.read_bytes() == content:
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _write_tree(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put a harness's folder in place in one step; a candidate's tree never changes."""
    if check_tree(files) is not None:
        return  # an invalid candidate; scores.jsonl says why
    if folder.is_dir():
        there = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        if there == dict(files):
            return
        shutil.rmtree(folder)
    new = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".new-"))
    try:
        for path, content in files.items():
            target = new / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        new.chmod(0o755)
        new.rename(folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _clear(folder: Path, keep: set[str]) -> None:
    """Remove what is not in the archive, half-written leftovers of a killed process included."""
    for path in folder.iterdir():
        if path.name in keep:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
