"""The runner's part of a harness phase: gates, proposals, scores. What a rule decides is in acceptance_step.py."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from whale.alternation import decide as d
from whale.alternation.schedule import searches_first
from whale.alternation.store_facts import invalid_note, score_note
from whale.alternation.told import first_line
from whale.alternation.units import derive_seed
from whale.alternation.workbench import RunWorkbench
from whale.errors import WhaleError
from whale.events import NewEvent
from whale.events import types as ev
from whale.harness.validation import check_source
from whale.harness_repo import RepoError
from whale.rollout.parquet import decode_trajectories
from whale.rollout.types import Trajectory
from whale.search.agentic.types import SessionProposer, Suspended
from whale.search.archive import ArchiveLimits
from whale.search.gate import clean, gate
from whale.search.guards import refusal
from whale.search.scoring import summarise
from whale.search.spaces import search_space
from whale.search.types import Archive, ArchiveEntry, PassedRollout, Proposal
from whale.search.worked_examples import passed_rollout

if TYPE_CHECKING:
    from whale.alternation.runner import Runner

MAX_REASON = 2000
"""Characters that the log keeps of a candidate's error."""


# --- gates ---

_A_MODEL_MAY_LEARN = frozenset({"no_answer", "bad_reply", "turn_limit", "token_limit"})
"""How a weak model fails on a harness that is in order: some of its samples pass all the same, or come to."""


def validate(runner: "Runner", command: d.Validate) -> None:
    """Check the source without running it; then its smoke runs, until one runs through; then the verdict.

    Raises:
        WhaleError: the run's first harness cannot be run, and something is to be trained with it.
    """
    candidate = command.candidate
    files = runner.files(candidate)
    reason = source_problem(runner, files)
    if reason is not None and candidate == d.INITIAL:
        # Every proposal is measured against h0 and falls back on it: nothing is worth paying for.
        raise WhaleError(f"h0, the domain's first harness, cannot be run: {reason.splitlines()[0]}")
    if reason is None:
        failed: list[Trajectory] = []
        for batch in command.unit.batches:
            recorded = runner.state.batches.get(batch.key)
            if recorded is None:
                runner.record_batch(batch.key, batch)
                return  # decided again, with the smoke run in the state
            if any(outcome.status == "ok" for outcome in recorded.outcomes):
                break
            failed += decode_trajectories(runner.folder.artifacts.get(recorded.artifact))
        else:
            reason = f"smoke run: {failed[0].status}: {failed[0].reason}"[:MAX_REASON]
            learnable = any(trajectory.status in _A_MODEL_MAY_LEARN for trajectory in failed)
            if candidate == d.INITIAL and not learnable and not searches_first(runner.config):
                raise _cannot_run(runner, failed)
    runner.append(
        f"validated/{candidate}",
        ev.HarnessValidated(candidate=candidate, valid=reason is None, reason=reason or ""),
    )
    if reason is not None:
        runner.repo.record_score(candidate, invalid_note(runner.state.candidates[candidate]))
        mends = "proposals come before any training, and" if searches_first(runner.config) else "training"
        hope = f"; {mends} may mend it" if candidate == d.INITIAL else ""
        runner.reporter.note(f"{candidate} is invalid: {reason.splitlines()[0]}{hope}")


def _cannot_run(runner: "Runner", failed: Sequence[Trajectory]) -> WhaleError:
    """A weight phase would have nothing to train on, and days later all others would be measured against nothing."""
    first, spoken = failed[0], runner.folder.spoken
    return WhaleError(
        f"h0, the domain's first harness, failed in all of its {len(failed)} smoke runs, the first as {first.status}: "
        f"{first_line(first.reason)}; mend h0 or the limit that it ran into and start a new run; where this machine "
        f"or a service is the cause, mend that, and `whale resume {spoken}` tries h0 again"
    ).with_details("\n\n".join(f"{t.task_id}, smoke run of h0: {t.status}: {t.reason}" for t in failed))


def source_problem(
    runner: "Runner", files: Mapping[str, bytes], leak: Callable[[str], str | None] | None = None
) -> str | None:
    """Why a tree may not be run at all: not a harness, outside the search space, or smuggled answers.

    `leak` stands in for the domain's, for whom must not learn what it found.
    """
    domain = runner.domain
    return gate(
        files,
        base=domain.h0(),
        space=runner.config.search.space,
        check_source=check_source,
        leak=leak or domain.leak,
    )


# --- proposals ---


def propose(runner: "Runner", command: d.Propose) -> None:
    """One session of the proposer, plus what humans submitted; all candidates in one append."""
    state, cycle, iteration = runner.state, command.cycle, command.iteration
    started = time.monotonic()
    count = runner.config.search.candidates
    seed = derive_seed(runner.config.seed, "propose", cycle, iteration)
    ended: ev.ProposerSessionEnded | None = None
    if isinstance(runner.proposer, SessionProposer):
        try:
            result = runner.proposer.session(
                archive(runner),
                RunWorkbench(runner, cycle, iteration),
                count=count,
                seed=seed,
                cycle=cycle,
                iteration=iteration,
            )
        except Suspended:
            return  # decided again once the request is answered, from the recorded replies
        proposals = list(result.proposals)[:count]
        ended = ev.ProposerSessionEnded(
            cycle=cycle,
            iteration=iteration,
            outcome=result.outcome,
            proposed=len(proposals),
            turns=result.turns,
            tool_calls=result.tool_calls,
            input_tokens=result.usage.input + result.usage.cache_read + result.usage.cache_write,
            output_tokens=result.usage.output,
            dollars=result.dollars,
            artifact=runner.folder.artifacts.put(result.transcript),
        )
    else:
        proposals = list(
            runner.proposer.propose(archive(runner), count=count, seed=seed, cycle=cycle, iteration=iteration)
        )[:count]
    state = runner.state
    known = {candidate.tree: candidate.id for candidate in state.candidates.values()}
    events: list[NewEvent] = []
    problems: list[str] = []

    def add(candidate: str, raw: Proposal, proposer: str, request: str = "") -> None:
        proposal = clean(raw)
        try:
            tree = runner.repo.write_tree(proposal.files)
        except RepoError as error:
            problems.append(f"{candidate} cannot be stored: {error}")
            return
        parents = [p for p in proposal.parents if p in state.candidates]
        event = ev.HarnessProposed(
            candidate=candidate,
            tree=tree,
            parents=parents or [state.accepted or d.INITIAL],
            proposer=proposer,
            cycle=cycle,
            iteration=iteration,
            title=proposal.title,
            hypothesis=proposal.hypothesis,
            axis=proposal.axis,
            changes=proposal.changes,
            duplicate_of=known.get(tree),
            request=request,
        )
        known.setdefault(tree, candidate)
        seconds = round(time.monotonic() - started, 3)
        events.append(NewEvent(event=event, key=f"proposed/{candidate}", meta={"seconds": seconds}))

    for index, proposal in enumerate(proposals, start=1):
        add(f"c{cycle:03d}-i{iteration:02d}-m{index}", proposal, runner.proposer.name)
    for index, (key, submitted) in enumerate(state.proposals.items(), start=1):
        add(
            f"c{cycle:03d}-i{iteration:02d}-h{index}",
            human_proposal(runner, submitted),
            f"human {submitted.by}".strip(),
            key,
        )
    if len(proposals) < count:
        why = f" ({ended.outcome})" if ended else ""
        problems.append(f"the proposer made {len(proposals)} of {count} candidates{why}")
    key = f"c{cycle:03d}/harness/i{iteration:02d}"
    told = list(events)
    if not events:
        event = _iteration_event(runner, iteration, "; ".join(problems))
        events.append(NewEvent(event=event, key=f"{key}/completed"))
    if ended is not None:
        events.append(NewEvent(event=ended, key=f"{key}/session"))
    runner.append_all(events)
    for new in told:
        assert isinstance(new.event, ev.HarnessProposed)
        runner.reporter.note(f"{new.event.candidate}: {new.event.title}")
    for problem in problems:
        runner.reporter.note(problem)


def human_proposal(runner: "Runner", submitted: ev.ProposalSubmitted) -> Proposal:
    """A human's harness goes through the same gates, under the accepted harness as its parent."""
    content = runner.folder.artifacts.get(submitted.artifact)
    return Proposal(
        title=submitted.title,
        hypothesis=submitted.hypothesis,
        axis="human",
        changes="",
        parents=(runner.state.accepted or d.INITIAL,),
        files={path: text.encode("utf-8") for path, text in json.loads(content).items()},
    )


def archive(runner: "Runner") -> Archive:
    """What the proposer may see: harnesses with their scores, training tasks, passed D_weight rollouts."""
    training = [*runner.compute.weight_tasks_by_id(runner.state).values(), *runner.compute.tasks["harness"]]
    tasks = {task.id: task.public for task in training}
    shown = {candidate: _trajectories(runner, candidate) for candidate in runner.state.phase_artifacts}
    incoming = runner.state.accepted or d.INITIAL
    rule, base = search_space(runner.config.search.space), runner.domain.h0()
    return Archive(
        tuple(entries(runner)), tuple(_passed(runner)), tasks, shown, incoming, lambda files: rule(files, base)
    )


def _trajectories(runner: "Runner", candidate: str) -> tuple[Trajectory, ...]:
    """The first rollouts of a candidate's scoring in this phase: D_harness, training tasks."""
    found: list[Trajectory] = []
    for artifact in runner.state.phase_artifacts[candidate]:
        if len(found) >= ArchiveLimits().trajectories:
            break
        found += decode_trajectories(runner.folder.artifacts.get(artifact))
    return tuple(found[: ArchiveLimits().trajectories])


def entries(runner: "Runner") -> list[ArchiveEntry]:
    """The archive in order of scoring in this phase, then the earlier cycles' harnesses as history."""
    state = runner.state
    result = []
    order = [*state.phase_scores, *(c for c in state.candidates if c not in state.phase_scores)]
    for candidate_id in order:
        candidate = state.candidates[candidate_id]
        current = state.phase_scores.get(candidate_id)
        stopped = state.phase_stopped.get(candidate_id)
        score = current or (candidate.scores[-1] if candidate.scores and stopped is None else None)
        result.append(
            ArchiveEntry(
                candidate=candidate.id,
                tree=candidate.tree,
                parents=candidate.parents,
                files=runner.repo.files(candidate.tree),
                valid=candidate.valid,
                weights=score.weights if score else None,
                score=score.score if score else None,
                n=score.n if score else 0,
                outcomes=state.phase_outcomes.get(candidate_id, ()),
                current=current is not None,
                cycle=candidate.cycle,
                title=candidate.title,
                hypothesis=candidate.hypothesis,
                axis=candidate.axis,
                reason=candidate.reason or (f"its scoring was ended: {stopped.reason}" if stopped else ""),
                mean_turns=score.mean_turns if score else 0.0,
            )
        )
    return result


def _passed(runner: "Runner") -> Sequence[PassedRollout]:
    found = []
    for artifact, candidate in runner.state.mined:
        files = runner.repo.files(runner.state.candidates[candidate].tree)
        for trajectory in decode_trajectories(runner.folder.artifacts.get(artifact)):
            rollout = passed_rollout(trajectory, files, candidate)
            if rollout is None:
                continue
            # A passage that a tool returned may tell of a hidden task's entity: such a rollout is no example.
            text = "\n".join(message["content"] for message in rollout.messages)
            if runner.domain.leak(text) is None:
                found.append(rollout)
    return found


# --- scores ---


def complete_score(runner: "Runner", command: d.CompleteScore) -> None:
    """All of D_harness is covered: the score, in the log first, then as Git's note."""
    state = runner.state
    candidate = state.candidates[command.candidate]
    outcomes = [outcome for batch in state.batches.values() for outcome in batch.outcomes]
    score = summarise(outcomes)
    event = ev.CandidateScored(
        candidate=candidate.id,
        tree=candidate.tree,
        weights=state.weights,
        cycle=state.cycle,
        iteration=command.iteration,
        **asdict(score),
    )
    key = f"c{state.cycle:03d}/harness/{candidate.id}"
    facts = [NewEvent(event=event, key=f"{key}/scored")]
    if command.iteration and state.accepted is not None and state.accepted in state.phase_outcomes:
        own = state.phase_outcomes[state.accepted]
        groups = {task.id: task.group for task in runner.compute.tasks["harness"]}
        reason = refusal(runner.config.search.guards, (summarise(own), own), (score, outcomes), groups)
        if reason is not None:
            guarded = ev.CandidateGuarded(candidate=candidate.id, cycle=state.cycle, reason=reason)
            facts.append(NewEvent(event=guarded, key=f"{key}/guarded"))
            runner.reporter.note(f"{candidate.id} will not be accepted: {reason}")
    runner.append_all(facts)
    runner.repo.record_score(candidate.id, score_note(event))
    runner.reporter.note(
        f"{candidate.id}: {score.score:.3f} [{score.low:.3f}, {score.high:.3f}], n = {score.n}"
        + (" (incoming)" if command.iteration == 0 else "")
    )


def complete_iteration(runner: "Runner", command: d.CompleteIteration) -> None:
    """Every candidate of the iteration maps to one outcome, failures included."""
    cycle = runner.state.cycle
    event = _iteration_event(runner, command.iteration, "")
    runner.append(f"c{cycle:03d}/harness/i{command.iteration:02d}/completed", event)


def _iteration_event(runner: "Runner", iteration: int, note: str) -> ev.IterationCompleted:
    state = runner.state
    outcomes = {}
    for candidate in state.iteration_candidates:
        if candidate in state.phase_scores:
            outcomes[candidate] = "scored"
        elif candidate in state.phase_stopped:
            outcomes[candidate] = "stopped"
        elif d.scored_twin(state, candidate):
            outcomes[candidate] = "duplicate"
        else:
            outcomes[candidate] = "invalid"
    best = max(state.phase_scores.values(), key=lambda scored: scored.score)
    return ev.IterationCompleted(
        cycle=state.cycle,
        iteration=iteration,
        outcomes=outcomes,
        best=best.candidate,
        best_score=best.score,
        note=note,
    )
