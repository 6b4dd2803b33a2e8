"""`whale replay`: the state from the log alone, and what it names by digest."""

from collections.abc import Mapping
from typing import Any

import msgspec

from whale.alternation.retention import kept_checkpoints
from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State, TrainedStep, reduce
from whale.alternation.store_facts import commit_facts, notes
from whale.cli.output import print_json
from whale.cli.progress import reporter
from whale.errors import CorruptLogError, UsageError
from whale.events import Recorded
from whale.events import types as ev


def replay(run: str, at: int | None, deep: bool, json: bool, quiet: bool) -> None:
    """Rebuild the state and check checkpoints, refs, trees and artifacts by digest."""
    from whale.alternation.progress import Silent

    folder = RunFolder.find(run)
    if deep and at is not None:
        raise UsageError("--at shows a state, --deep checks the whole run: give one of them")
    log = folder.open_log(readonly=True)
    try:
        from whale.events import CorruptLog, UnknownEvent, fold

        try:
            head = log.verify()
            if at is not None and not 0 <= at <= head.position:
                raise UsageError(f"--at {at}: give 0, the empty log, to {head.position}, the newest event")
            state = fold(reduce, State(), log.read(until=at))
            recorded, proposals = [], Proposals()
            for record in log.read(until=at):
                recorded.append(record.event)
                proposals.see(record)
        except (CorruptLog, UnknownEvent) as error:
            raise CorruptLogError(f"{folder.log_place}: {error}") from error
    finally:
        log.close()
    problems: list[str] = []
    checked: dict[str, int] = {}
    if at is None:
        checked = check_named(folder, state, recorded, proposals, problems)
        if deep and not problems:
            checked["steps trained again"] = deep_replay(folder, recorded, problems, reporter(quiet) or Silent())
    position = head.position if at is None else at
    if json:
        print_json(
            {"run": folder.name, "position": position, "head": head.hash, "checked": checked,
             "problems": problems, "state": state_json(state)}
        )  # fmt: skip
    else:
        print(f"{folder.name}: {head.position} events, the chain holds (head {head.hash[:16]})")
        print(f"state after event {position}:")
        for name, value in state_lines(state):
            print(f"  {name}: {value}")
        for name, count in checked.items():
            print(f"checked {name}: {count}")
    if problems:
        raise CorruptLogError(f"{folder.path}: " + "; ".join(problems[:5]))


class Proposals:
    """Which event asked for each candidate's commit, and which run made it."""

    def __init__(self) -> None:
        self.causes: dict[str, Recorded] = {}
        self.runs: dict[str, str] = {}
        self._run = ""

    def see(self, record: Recorded) -> None:
        """The next event of the log."""
        match record.event:
            case ev.RunStarted(name=name) | ev.RunForked(name=name):
                self._run = name
            case ev.HarnessProposed(candidate=candidate):
                self.causes[candidate] = record
            case ev.HarnessCommitted(candidate=candidate):
                self.runs[candidate] = self._run


def check_named(
    folder: RunFolder,
    state: State,
    recorded: list[ev.Event],
    asked: Proposals,
    problems: list[str],
) -> dict[str, int]:
    """What the log names must be there, with the digest that it names, and Git must say what the log says."""
    from whale.harness_repo import HarnessRepo, RepoError
    from whale.weights.checkpoints import CheckpointStore

    artifacts = {artifact for e in recorded if (artifact := ev.artifact_of(e)) is not None}
    for artifact in sorted(artifacts):
        try:
            folder.artifacts.get(artifact)
        except CorruptLogError as error:
            problems.append(str(error))
    store = CheckpointStore(folder.checkpoints)
    kept = kept_checkpoints(state)
    for saved in kept:
        whole = store.verify(saved.checkpoint, saved.weights, saved.trainer)
        # An older phase end may have lost its optimiser's state to `whale gc`; its weights hold.
        if not whole and saved.checkpoint == state.checkpoint:
            problems.append(f"checkpoint {saved.checkpoint} is missing or not what the log names")
    proposals = [(c.id, c.tree) for c in state.candidates.values() if c.committed]
    acceptances = [(e.serial, e.candidate, e.tree) for e in recorded if isinstance(e, ev.AcceptanceCommitted)]
    try:
        with HarnessRepo.open(folder.harnesses) as repo:
            if state.acceptance_pending and len(repo.accepted()) > len(acceptances):
                # Killed between Git's commit and its event: the commit is what the event will name.
                pending = state.acceptance_pending[0]
                acceptances.append((len(acceptances), pending, state.candidates[pending].tree))
            commits = [(id_, commit_facts(state, id_, asked.causes[id_], run=asked.runs[id_])) for id_, _ in proposals]
            problems += repo.verify([*proposals, *acceptances], commits=commits, scores=notes(state))
    except RepoError as error:
        problems.append(str(error))
    return {
        "artifacts": len(artifacts),
        "checkpoints": len(kept),
        "harness refs and trees": len(proposals),
        "accepted commits": len(acceptances),
    }


def deep_replay(folder: RunFolder, recorded: list[ev.Event], problems: list[str], progress: Any) -> int:
    """Train every step again from its recorded rollouts; each θ must come out with the digest in the log."""
    from whale.alternation.compute import AnyTrainer, Compute
    from whale.alternation.started_in import run_domain
    from whale.config import config_from
    from whale.weights.ranks import hand_over

    compute: Compute | None = None
    trainer: AnyTrainer | None = None
    batches: list[str] = []
    steps = 0
    all_steps = sum(isinstance(e, ev.StepTrained) for e in recorded)
    progress.begin("training again", all_steps)
    for event in recorded:
        if isinstance(event, ev.RunStarted) or (isinstance(event, ev.RunForked) and event.changed):
            # Each step again under the config that it had: a fork may have changed the method or the learning rate.
            config = config_from(dict(event.config), source=f"run {event.name}")
            previous, compute = compute, Compute(config, folder, run_domain(folder, config), progress)
            before, trainer = trainer, compute.new_trainer()
            if before is not None and previous is not None:
                if steps:  # before the first one it is θ0, and a fork may have brought adapters
                    hand_over(before, trainer)
                previous.close()
        elif isinstance(event, ev.RolloutsRecorded) and event.purpose == "train":
            batches.append(event.artifact)
        elif isinstance(event, ev.StepsRetrained):
            progress.note(
                f"step {event.cycle}.{event.step} has other bits from here on (StepsRetrained): {all_steps - steps} of "
                f"{all_steps} steps cannot be trained again to the digest in the log"
            )
            break
        elif isinstance(event, ev.StepTrained):
            assert compute is not None and trainer is not None, "a log begins with RunStarted"
            again = compute.train_recorded(trainer, TrainedStep(event.cycle, event.step, tuple(batches), event.weights))
            batches = []
            steps += 1
            progress.advance(steps)
            if again != event:
                wrong = [f for f in event.__struct_fields__ if getattr(again, f) != getattr(event, f)]
                problems.append(
                    f"step {event.cycle}.{event.step} trained again differs in {', '.join(wrong)} "
                    "(digests are equal only on the same kind of machine, with the same threads)"
                )
                break
    progress.end()
    if compute is not None:
        compute.close()
    return steps


def state_lines(state: State) -> list[tuple[str, str]]:
    """The state for people."""
    return [
        ("status", state.status),
        (
            "cycle",
            f"{state.cycle}, phase {state.phase or 'none'}, step {state.step}, iteration {state.iteration}",
        ),
        ("weights", f"{state.weights[:16]} (checkpoint {state.checkpoint or 'none: the initial model'})"),
        ("accepted harness", f"{state.accepted} (tree {state.accepted_tree[:12]})"),
        ("candidates", str(len(state.candidates))),
        ("phase archive", ", ".join(f"{c} {s.score:.3f}" for c, s in state.phase_scores.items()) or "empty"),
        (
            "evaluations",
            ", ".join(f"cycle {e.cycle} {e.split} {e.score:.3f}" for e in state.evaluations) or "none",
        ),
        ("rollouts", str(sum(t.rollouts for t in state.totals.values()))),
    ]


def state_json(state: State) -> Any:
    """The state for programs; rollouts of the open unit by their batch keys."""
    trimmed = msgspec.structs.replace(state, batches={}, phase_outcomes={})
    result = msgspec.to_builtins(trimmed, enc_hook=_plain)
    result["batches"] = sorted(state.batches)
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {key: msgspec.to_builtins(entry, enc_hook=_plain) for key, entry in value.items()}
    raise NotImplementedError(f"{type(value)} has no JSON form")
