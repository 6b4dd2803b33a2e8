"""`whale show`: a harness with its facts, scores, files and rollouts."""

import json as json_module
from collections.abc import Iterator, Sequence
from typing import Any

from whale.alternation.run_folder import RunFolder
from whale.alternation.state import Candidate
from whale.cli.harness_facts import candidate_json, git_json
from whale.cli.output import print_json, printable
from whale.cli.pager import print_paged
from whale.errors import UsageError
from whale.events import types as ev


def show(run: str, harness: str, json: bool, rollouts: int) -> None:
    """A harness with its facts, files and rollouts; one of another run with what Git knows of it."""
    from whale.harness_repo import HarnessRepo, RepoError

    folder = RunFolder.find(run)
    state = folder.state()
    try:
        with HarnessRepo.open(folder.harnesses) as repo:
            name = harness if harness in state.candidates else repo.candidate_of(repo.resolve(harness))
            candidate = state.candidates.get(name)
            files = repo.files(candidate.tree if candidate else name)
            same = [other for other in repo.candidates_with(repo.tree_id(name)) if other != name]
            foreign = None
            if candidate is None:
                foreign = next((git_json(e) for e in repo.lineage(runs=True) if e.candidate == name), None)
                if foreign is None:
                    raise UsageError(f"{folder.name}: {harness} names no candidate of this run")
    except RepoError as error:
        raise UsageError(f"{folder.name}: {error}") from error
    shown = _rollouts(folder, name, rollouts) if rollouts else []
    if json:
        facts = candidate_json(state, candidate) if candidate else foreign or {}
        facts["same_files"] = same
        facts["files"] = {path: content.decode("utf-8", "replace") for path, content in files.items()}
        facts["rollouts"] = shown
        print_json(facts)
        return
    lines = list(_facts(candidate, same) if candidate else _foreign(foreign or {}, same))
    lines += [f"\n--- {path}\n{content.decode('utf-8', 'replace')}" for path, content in files.items()]
    lines += [line for rollout in shown for line in _rollout(rollout)]
    print_paged(printable("\n".join(lines)))


def _foreign(facts: dict[str, Any], same: Sequence[str]) -> Iterator[str]:
    from whale.harness_repo.notes import headline

    yield f"{facts['candidate']}  {facts['title']}"
    yield f"  proposed by: {facts['proposer']}, cycle {facts['cycle']}, iteration {facts['iteration']}, in another run"
    if facts["parents"]:
        yield f"  parents: {', '.join(facts['parents'])}"
    yield f"  tree: {facts['tree']}"
    if same:
        yield f"  same files as: {', '.join(same)}"
    if facts["note"]:
        yield f"  {headline(facts['note'])}"


def _facts(candidate: Candidate, same: Sequence[str]) -> Iterator[str]:
    yield (f"{candidate.id}  {candidate.title}")
    facts = {
        "proposed by": f"{candidate.proposer}, cycle {candidate.cycle}, iteration {candidate.iteration}",
        "parents": ", ".join(candidate.parents),
        "hypothesis": candidate.hypothesis,
        "axis": candidate.axis,
        "changes": candidate.changes,
        "tree": candidate.tree,
        "same files as": ", ".join(same),
        "valid": {True: "yes", False: f"no: {candidate.reason}", None: "not checked yet"}[candidate.valid],
    }
    for name, value in facts.items():
        if value:
            yield f"  {name}: {indented(value)}"
    for score in candidate.scores:
        failures = f", failures {json_module.dumps(score.failures)}" if score.failures else ""
        yield (
            f"  score {score.score:.4f} [{score.low:.4f}, {score.high:.4f}], n = {score.n}, "
            f"weights {score.weights[:12]}, cycle {score.cycle}, {score.mean_turns:.2f} turns, "
            f"{score.mean_tokens:.1f} tokens, answer in harness-written text in {100 * score.fabricated:.0f} % "
            f"of passes{failures}"
        )


def indented(value: str) -> str:
    """A text of several lines under its name: none of them can be taken for another fact."""
    return "\n    ".join(line for line in value.splitlines() if line.strip())


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


def _rollout(rollout: dict[str, Any]) -> Iterator[str]:
    yield (
        f"\n=== rollout of {rollout['task']} in {rollout['batch']}: reward {rollout['reward']:g}, "
        f"{rollout['status']} {rollout['reason']}"
    )
    for message in rollout["messages"]:
        yield f"[{message['role']}] {message['content']}"
    yield f"[assistant] {rollout['prefix']}{rollout['answer']}"
