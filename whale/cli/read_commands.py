"""Commands that only read: status, lineage, diff, show."""

import json as json_module
import sys
from typing import Any

import msgspec

from whale.alternation.run_folder import RunFolder, runs_folder
from whale.alternation.state import Candidate, State, waits_for_review
from whale.cli.output import print_json, print_table, print_text
from whale.errors import UsageError, WhaleError
from whale.events import types as ev


def status(run: str | None, json: bool) -> None:
    """One run, or all of them."""
    from whale.report.tables import print_summary, shown_status, summary

    if run is None:
        _all_runs(json)
        return
    folder = RunFolder.find(run)
    if json:
        print_json(summary(folder))
        return
    state = folder.state()
    pid = folder.runner_pid()
    where = f"{state.phase} phase" if state.phase else "between phases"
    detail = {
        "weight": f", {state.step} steps trained",
        "harness": f", {state.iteration} iterations done, {len(state.phase_scores)} harnesses scored",
    }.get(state.phase or "", "")
    running = f"runner: process {pid}" if pid else "no runner"
    print(f"{folder.name}: {shown_status(state, pid)}; cycle {state.cycle}, {where}{detail}; {running}")
    waiting = waits_for_review(state)
    if waiting:
        print(f"{waiting} waits for a reviewer: `whale approve {folder.name} {waiting}`")
    if state.revert_to:
        print(f"scheduled: revert to {state.revert_to}")
    print_summary(folder)


def _all_runs(json: bool) -> None:
    from whale.report.tables import shown_status

    rows: list[dict[str, Any]] = []
    for config in sorted(runs_folder().glob("*/whale.toml")):
        folder = RunFolder(config.parent)
        try:
            state = folder.state() if folder.has_log() else State()
            status: str = shown_status(state, folder.runner_pid())
        except WhaleError:
            state, status = State(), "unreadable"
        rows.append(
            {
                "run": folder.name,
                "status": status,
                "cycle": state.cycle,
                "phase": state.phase,
                "accepted": state.accepted,
                "runner": folder.runner_pid(),
            }
        )
    if json:
        print_json(rows)
    elif rows:
        print_table(list(rows[0]), [[str(v if v is not None else "") for v in row.values()] for row in rows])
    else:
        print(f"no runs in {runs_folder()}; `whale run` starts one")


def lineage(run: str, json: bool, accepted: bool, cycle: int | None) -> None:
    """Every proposal, from the log; the graph from Git."""
    folder = RunFolder.find(run)
    state = folder.state()
    taken = ever_accepted(folder) if accepted else []
    chosen = [
        candidate
        for candidate in state.candidates.values()
        if (cycle is None or candidate.cycle == cycle) and (not accepted or candidate.id in taken)
    ]
    if json:
        print_json([_candidate_json(state, candidate) for candidate in chosen])
        return
    from whale.harness_repo import HarnessRepo, render_lineage

    with HarnessRepo.open(folder.harnesses) as repo:
        ids = {candidate.id for candidate in chosen}
        entries = [entry for entry in repo.lineage() if entry.candidate in ids]
    print_text(render_lineage(entries))


def ever_accepted(folder: RunFolder) -> list[str]:
    """Candidates that were accepted at some time, in order."""
    log = folder.open_log(readonly=True)
    try:
        return [r.event.candidate for r in log.read(stream="run") if isinstance(r.event, ev.AcceptanceCommitted)]
    finally:
        log.close()


def _candidate_json(state: State, candidate: Candidate) -> dict[str, Any]:
    return {
        "candidate": candidate.id,
        "tree": candidate.tree,
        "parents": list(candidate.parents),
        "proposer": candidate.proposer,
        "cycle": candidate.cycle,
        "iteration": candidate.iteration,
        "title": candidate.title,
        "hypothesis": candidate.hypothesis,
        "axis": candidate.axis,
        "changes": candidate.changes,
        "valid": candidate.valid,
        "reason": candidate.reason,
        "duplicate_of": candidate.duplicate_of,
        "accepted": candidate.id == state.accepted,
        "scores": [msgspec.to_builtins(score) for score in candidate.scores],
    }


def diff(run: str, a: str, b: str, json: bool) -> None:
    """A unified diff of two harnesses."""
    from whale.harness_repo import HarnessRepo, RepoError

    folder = RunFolder.find(run)
    state = folder.state()
    try:
        with HarnessRepo.open(folder.harnesses) as repo:
            text = repo.diff(a, b)
    except RepoError as error:
        raise UsageError(f"{folder.name}: {error}") from error
    if json:
        print_json({"a": a, "b": b, "diff": text})
    elif text:
        print_text(text)
    else:
        only = f"; nothing was accepted after {state.accepted}" if (a, b) == ("accepted~1", "accepted") else ""
        print(f"{a} and {b} are the same harness{only}", file=sys.stderr)


def show(run: str, harness: str, json: bool, rollouts: int) -> None:
    """A harness with its facts, files and rollouts."""
    from whale.harness_repo import HarnessRepo, RepoError

    folder = RunFolder.find(run)
    state = folder.state()
    try:
        with HarnessRepo.open(folder.harnesses) as repo:
            candidate_id = harness if harness in state.candidates else repo.candidate_of(repo.resolve(harness))
            if candidate_id is None or candidate_id not in state.candidates:
                raise UsageError(f"{folder.name}: {harness} names no candidate of this run")
            candidate = state.candidates[candidate_id]
            files = repo.files(candidate.tree)
    except RepoError as error:
        raise UsageError(f"{folder.name}: {error}") from error
    shown = _rollouts(folder, candidate_id, rollouts) if rollouts else []
    if json:
        facts = _candidate_json(state, candidate)
        facts["files"] = {path: content.decode("utf-8", "replace") for path, content in files.items()}
        facts["rollouts"] = shown
        print_json(facts)
        return
    _print_facts(candidate)
    for path, content in files.items():
        print_text(f"\n--- {path}\n{content.decode('utf-8', 'replace')}")
    for rollout in shown:
        _print_rollout(rollout)


def _print_facts(candidate: Candidate) -> None:
    print_text(f"{candidate.id}  {candidate.title}")
    facts = {
        "proposed by": f"{candidate.proposer}, cycle {candidate.cycle}, iteration {candidate.iteration}",
        "parents": ", ".join(candidate.parents),
        "hypothesis": candidate.hypothesis,
        "axis": candidate.axis,
        "changes": candidate.changes,
        "tree": candidate.tree,
        "valid": {True: "yes", False: f"no: {candidate.reason}", None: "not checked yet"}[candidate.valid],
    }
    for name, value in facts.items():
        if value:
            print_text(f"  {name}: {value}")
    for score in candidate.scores:
        failures = f", failures {json_module.dumps(score.failures)}" if score.failures else ""
        print_text(
            f"  score {score.score:.4f} [{score.low:.4f}, {score.high:.4f}], n = {score.n}, "
            f"weights {score.weights[:12]}, cycle {score.cycle}, {score.mean_turns:.2f} turns, "
            f"{score.mean_tokens:.1f} tokens, answer in harness-written text in {100 * score.fabricated:.0f} % "
            f"of passes{failures}"
        )


def _rollouts(folder: RunFolder, candidate: str, count: int) -> list[dict[str, Any]]:
    from whale.rollout.parquet import decode_trajectories

    log = folder.open_log(readonly=True)
    try:
        batches = [
            r.event
            for r in log.read(stream="run")
            if isinstance(r.event, ev.RolloutsRecorded) and r.event.candidate == candidate
        ]
    finally:
        log.close()
    found = []
    for batch in reversed(batches):
        for trajectory in decode_trajectories(folder.artifacts.get(batch.artifact)):
            last = trajectory.turns[-1] if trajectory.turns else None
            found.append(
                {
                    "batch": batch.batch,
                    "task": trajectory.task_id,
                    "status": trajectory.status,
                    "reason": trajectory.reason,
                    "reward": trajectory.reward,
                    "messages": [dict(m) for m in last.messages] if last else [],
                    "prefix": last.prefix if last else "",
                    "answer": last.text if last else "",
                    "calls": [
                        {"tool": c.name, "arguments": dict(c.arguments), "result": c.result, "error": c.error}
                        for c in trajectory.calls
                    ],
                }
            )
            if len(found) == count:
                return found
    return found


def _print_rollout(rollout: dict[str, Any]) -> None:
    print_text(
        f"\n=== rollout of {rollout['task']} in {rollout['batch']}: reward {rollout['reward']:g}, "
        f"{rollout['status']} {rollout['reason']}"
    )
    for message in rollout["messages"]:
        print_text(f"[{message['role']}] {message['content']}")
    print_text(f"[assistant] {rollout['prefix']}{rollout['answer']}")
