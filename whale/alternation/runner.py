"""The runner: carries out what `decide` says, records the result, and nothing else.

Its whole memory is the fold of the log. Killed between any two events it goes on from there: artifacts and
checkpoints are complete before the event that names them, Git's writes are idempotent, and an event's key is
derived, so that a repeat is recognised as the same event.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from whale.alternation import acceptance_step, evaluation, search_step, store_facts, task_step
from whale.alternation import decide as d
from whale.alternation.compute import Compute
from whale.alternation.control import answer
from whale.alternation.hooks import Hooks
from whale.alternation.progress import Reporter
from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State, reduce
from whale.alternation.told import Told
from whale.alternation.units import MicroBatch
from whale.config import Config, HooksConfig
from whale.domains.base import Domain
from whale.errors import ConflictError, WhaleError
from whale.events import EventLog, LogError, NewEvent, Recorded, VersionConflict, fold
from whale.events import types as ev
from whale.harness_repo import CommitFacts, HarnessRepo, RepoError
from whale.rollout.parquet import encode_trajectories
from whale.rollout.types import Trajectory
from whale.search.agentic.types import SessionProposer
from whale.search.types import Proposer

PAUSE_POLL = 0.5
"""Seconds between looks at the log while paused."""
LOOSE_OBJECTS = 5_000
"""Loose objects in the harness store at which it is packed, after an acceptance."""

_CALLS_AWAY = (ev.PauseRequested, ev.StopRequested)
"""Requests for which a proposer's session is left; others wait for its end."""

_PAID = (d.RunBatch, d.Train, d.Propose, d.SaveCheckpoint)
"""Commands that cost: the lease is asked for before each."""


class Runner:
    """One process that runs one run. The caller holds the run's lease."""

    def __init__(
        self,
        folder: RunFolder,
        log: EventLog,
        repo: HarnessRepo,
        domain: Domain,
        config: Config,
        proposer: Proposer | SessionProposer,
        compute: Compute,
        reporter: Reporter,
        alive: Callable[[], bool],
    ) -> None:
        self.folder = folder
        self.log = log
        self.repo = repo
        self.domain = domain
        self.config = config
        self.proposer = proposer
        self.compute = compute
        self.reporter = reporter
        self.alive = alive
        self.hooks = Hooks(HooksConfig(), folder.path, reporter.note)
        self.state = State()
        self.position = 0
        self.stopping = threading.Event()
        self.interrupted = threading.Event()
        self._files: dict[str, Mapping[str, bytes]] = {}
        self.told = Told(reporter, log)

    # --- the log ---

    def refresh(self) -> None:
        """Fold what was appended since the last look, by this process or by another one."""
        for recorded in self.log.read(after=self.position):
            self.state = reduce(self.state, recorded)
            self.position = recorded.position

    def asked(self) -> bool:
        """Whether a control request waits, without folding: other threads may ask."""
        return any(
            isinstance(r.event, _CALLS_AWAY) for r in self.log.read(after=self.position) if r.stream == "control"
        )

    def append(self, key: str, event: ev.Event, **meta: Any) -> Recorded:
        """Record one fact and fold it."""
        return self.append_all([NewEvent(event=event, key=key, meta=meta)])[0]

    def append_all(self, events: list[NewEvent]) -> list[Recorded]:
        """Record facts that belong together, all or none, and in the first one's meta where the time went until then.

        Raises:
            ConflictError: another process wrote to this run.
        """
        spent = {part: round(seconds, 3) for part, seconds in self.compute.watch.lap().items()}
        events = [replace(events[0], meta={**events[0].meta, "spent": spent}), *events[1:]]
        try:
            recorded = self.log.append("run", events, expected_version=self.log.version("run"))
        except VersionConflict as error:
            raise ConflictError(f"{self.folder.path}: another process wrote to this run: {error}") from error
        self.refresh()
        for fact in recorded:
            self.hooks.recorded(fact.event, self.state)
        return recorded

    # --- the loop ---

    def run(self) -> State:
        """Go on until the schedule is through or a stop was asked for.

        Raises:
            WhaleError: a fault that the user has to mend; it is recorded, and the run can be resumed.
        """
        self.hooks.told = ""
        try:
            state = self._run()
        except KeyboardInterrupt:
            self.hooks.fire("stop", "interrupted", self.state)
            raise
        except Exception as error:
            if self.hooks.told != "failure":  # else it was recorded, and told
                self.hooks.fire("failure", str(error) or type(error).__name__, self.state)
            raise
        if self.stopping.is_set() and not self.hooks.told:
            self.hooks.fire("stop", "the process was asked to end", state)
        return state

    def _run(self) -> State:
        self.refresh()
        try:
            self._settle_weights()
            while True:
                self.refresh()
                if self.interrupted.is_set():
                    raise KeyboardInterrupt
                if self.stopping.is_set():
                    self.reporter.note("stopped at a safe point")
                    return self.state
                command = d.decide(self.state, self.config)
                if isinstance(command, d.Finish):
                    return self.state
                if isinstance(command, _PAID) and not self.alive():
                    raise ConflictError(
                        f"{self.folder.path}: the lease was lost, another runner may have begun; "
                        f"`whale resume {self.folder.spoken}` goes on if none has"
                    )
                self.execute(command)
        except ConflictError:
            raise  # the log belongs to another writer: nothing more is written to it
        except (WhaleError, LogError, RepoError) as error:
            self._record_interruption(str(error))
            raise

    def _settle_weights(self) -> None:
        # A process that was killed between two checkpoints leaves steps that have to be trained again.
        retrained = self.compute.settle(self.state)
        if retrained is None:
            return
        self.append(f"retrained/c{retrained.cycle:03d}-s{retrained.step:04d}/{retrained.lost[:16]}", retrained)

    def _record_interruption(self, reason: str) -> None:
        # Best effort: where the log itself is what failed, the error alone must reach the user.
        try:
            version = self.log.version("run")
            self.append(f"interrupted/{version}", ev.RunInterrupted(reason=reason[:2000]))
        except Exception as error:
            self.reporter.note(f"the interruption could not be recorded: {error}")

    def install_signals(self) -> None:
        """SIGTERM and Ctrl-C stop at the next safe point; Ctrl-C after either stops at once.

        Nothing that was recorded is lost in either way, but at once throws away what is in the making: a
        micro-batch, a step, a reply that is paid for.
        """
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())

        def interrupt(*_: object) -> None:
            at_once = self.stopping.is_set()
            self.interrupted.set()
            self.stopping.set()
            if at_once:
                # Raised inside a finaliser, Python would drop it: the loop looks at the flag, too.
                raise KeyboardInterrupt
            # Not by the reporter: it may be in the middle of a line, and hold its lock.
            os.write(2, b"\nstopping at the next safe point; Ctrl-C again stops at once\n")

        signal.signal(signal.SIGINT, interrupt)

    def execute(self, command: d.Command) -> None:
        """Carry out one command and record its result."""
        handler: Callable[[Any], None] = getattr(self, "_do_" + type(command).__name__)
        handler(command)

    def settle_requests(self) -> State:
        """Answer waiting requests, and what follows from them without a model; then stop."""
        self.refresh()
        while True:
            command = d.decide(self.state, self.config)
            light = isinstance(command, d.Handle | d.CommitAcceptance) or (
                isinstance(command, d.Append) and isinstance(command.event, ev.HarnessReverted | ev.HarnessChosen)
            )
            if not light:
                return self.state
            self.execute(command)

    # --- commands without a model ---

    def _do_Append(self, command: d.Append) -> None:
        self.append(command.key, command.event)
        self.told.appended(command.event)

    def _do_Wait(self, command: d.Wait) -> None:
        self._wait()

    def _wait(self) -> None:
        """For a human: time that counts as spent on nothing."""
        self.stopping.wait(PAUSE_POLL)
        self.compute.watch.lap()

    def _do_Handle(self, command: d.Handle) -> None:
        request = self.state.requests[command.request]
        handled = answer(self.state, self.config, command.request, request)
        self.append(f"handled/{command.request}", handled)
        self.told.handled(handled)

    def _do_ProposeInitial(self, command: d.ProposeInitial) -> None:
        tree = self.repo.write_tree(self.domain.h0())
        self.append(
            f"proposed/{d.INITIAL}",
            ev.HarnessProposed(
                candidate=d.INITIAL, tree=tree, parents=[], proposer="domain", cycle=0, iteration=0,
                title="initial harness",
            ),
        )  # fmt: skip

    def _do_Commit(self, command: d.Commit) -> None:
        candidate = self.state.candidates[command.candidate]
        sha = self.repo.propose(
            candidate.id, candidate.tree, candidate.parents, self.commit_facts(candidate.id, f"proposed/{candidate.id}")
        )
        self.append(f"committed/{candidate.id}", ev.HarnessCommitted(candidate=candidate.id), sha=sha)
        if candidate.duplicate_of:
            self.repo.record_score(candidate.id, store_facts.duplicate_note(candidate))

    def _do_CommitAcceptance(self, command: d.CommitAcceptance) -> None:
        candidate = self.state.candidates[command.candidate]
        # The hash of the deciding event vouches for the log up to there: Git witnesses the log.
        facts = self.commit_facts(candidate.id, self.state.acceptance_key, cycle=self.state.cycle, witness=True)
        sha = self.repo.accept(command.serial, candidate.id, candidate.tree, facts, revert=command.revert)
        self.append(
            f"accepted-commit/{command.serial}",
            ev.AcceptanceCommitted(serial=command.serial, candidate=candidate.id, tree=candidate.tree),
            sha=sha,
        )
        self._keep_store_small()

    def _keep_store_small(self) -> None:
        try:
            if self.repo.size().loose >= LOOSE_OBJECTS:
                self.repo.pack()
        except RepoError as error:  # a full disk, say: the store is whole, only larger than need be
            self.reporter.note(f"the harness store was not packed: {error}")

    def commit_facts(self, candidate: str, key: str, cycle: int | None = None, witness: bool = False) -> CommitFacts:
        """What a commit says, from the event with this key, which it carries out."""
        cause = self.log.find(key, "run")
        assert cause is not None, "what is in the state has its event"
        return store_facts.commit_facts(self.state, candidate, cause, cycle, witness)

    # --- rollouts and weights ---

    def files(self, candidate: str) -> Mapping[str, bytes]:
        """A candidate's tree, from Git: what runs is what is committed."""
        tree = self.state.candidates[candidate].tree
        if tree not in self._files:
            self._files = {tree: self.repo.files(tree)}
        return self._files[tree]

    def _do_RunBatch(self, command: d.RunBatch) -> None:
        self.told.sampling(command)
        trajectories = self.record_batch(command.batch.key, command.batch)
        self.told.sampled(command, trajectories, self.state)

    def record_batch(self, key: str, batch: MicroBatch) -> list[Trajectory]:
        """Sample a micro-batch; its artifact is on disk before its event."""
        started = time.monotonic()
        trajectories = self.compute.run(self.state, batch, self.files(batch.candidate))
        artifact = self.folder.artifacts.put(encode_trajectories(trajectories))
        self.append(
            f"rollouts/{key}",
            ev.RolloutsRecorded(
                batch=batch.key,
                purpose=batch.purpose,
                candidate=batch.candidate,
                weights=batch.weights,
                artifact=artifact,
                outcomes=[outcome(trajectory) for trajectory in trajectories],
            ),
            seconds=round(time.monotonic() - started, 3),
        )
        return trajectories

    def _do_Train(self, command: d.Train) -> None:
        started = time.monotonic()
        self.told.training(command)
        event = self.compute.train(self.state, command.cycle, command.step)
        self.append(
            f"c{command.cycle:03d}/weight/s{command.step:04d}/trained",
            event,
            seconds=round(time.monotonic() - started, 3),
        )
        self.told.trained(command, event)

    def _do_SaveCheckpoint(self, command: d.SaveCheckpoint) -> None:
        weights, trainer = self.compute.save(self.state, command.checkpoint)
        self.append(
            f"checkpoint/{command.checkpoint}",
            ev.CheckpointSaved(
                checkpoint=command.checkpoint, weights=weights, trainer=trainer, cycle=command.cycle,
                step=command.step, phase_end=command.phase_end,
            ),
        )  # fmt: skip
        keep = {c.checkpoint for c in self.state.checkpoints.values() if c.phase_end} | {command.checkpoint}
        self.compute.checkpoints.prune(keep)

    # --- the harness phase: search_step.py, acceptance_step.py ---

    def _do_Validate(self, command: d.Validate) -> None:
        search_step.validate(self, command)

    def _do_Propose(self, command: d.Propose) -> None:
        search_step.propose(self, command)

    def _do_CompleteScore(self, command: d.CompleteScore) -> None:
        search_step.complete_score(self, command)

    def _do_StopScore(self, command: d.StopScore) -> None:
        self.reporter.end()
        acceptance_step.stop_score(self, command)

    def _do_CompleteRescore(self, command: d.CompleteRescore) -> None:
        acceptance_step.complete_rescore(self, command)

    def _do_Judge(self, command: d.Judge) -> None:
        acceptance_step.judge(self, command)

    def _do_AwaitApproval(self, command: d.AwaitApproval) -> None:
        self.told.waits_for_reviewer(command.candidate, self.state)
        self._wait()

    def _do_ProposeTasks(self, command: d.ProposeTasks) -> None:
        task_step.propose(self, command.cycle)

    def _do_CompleteIteration(self, command: d.CompleteIteration) -> None:
        search_step.complete_iteration(self, command)

    def _do_Settle(self, command: d.Settle) -> None:
        acceptance_step.settle(self, command)

    def _do_CompleteEvaluation(self, command: d.CompleteEvaluation) -> None:
        evaluation.complete_evaluation(self, command)


def outcome(trajectory: Trajectory) -> ev.Outcome:
    """What the log keeps of a rollout."""
    return ev.Outcome(
        task=trajectory.task_id,
        sample=trajectory.sample,
        reward=float(trajectory.reward),
        status=trajectory.status,
        turns=len(trajectory.turns),
        generated=trajectory.generated,
        prompted=trajectory.prompted,
        truncated=trajectory.truncated,
        fabricated=trajectory.fabricated,
        metrics={name: float(value) for name, value in trajectory.metrics.items()},
    )


def fold_all(log: EventLog, until: int | None = None) -> State:
    """The state after event `until`."""
    return fold(reduce, State(), log.read(until=until))
