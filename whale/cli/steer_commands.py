"""Steering a run from another process: requests into the control stream, answered by its runner."""

import json
import sys
import time
from pathlib import Path

from whale.alternation.requests import answer_key, append_request, user
from whale.alternation.run_folder import RunFolder
from whale.cli.output import print_text
from whale.errors import ConflictError, UsageError, WhaleError
from whale.events import types as ev

MAX_FILES = 200
MAX_BYTES = 4 * 2**20


def request(folder: RunFolder, event: ev.Event) -> str:
    """Append a control request; returns its key."""
    with folder.open_log() as log:
        try:
            return append_request(log, event)
        except WhaleError as error:
            raise WhaleError(f"{folder.log_place}: {error}") from error


def wait_for_answer(folder: RunFolder, key: str, seconds: float) -> ev.ControlHandled | None:
    """Wait until the runner has answered, and say what it said; None if it did not in time.

    Raises WhaleError with the runner's reason if it refuses.
    """
    deadline = time.monotonic() + seconds
    log = folder.open_log(readonly=True)
    try:
        while True:
            found = log.find(answer_key(key), "run")
            if found is not None:
                handled = found.event
                assert isinstance(handled, ev.ControlHandled)
                if handled.outcome == "refused":
                    raise WhaleError(f"{folder.name}: refused: {handled.detail}")
                print_text(f"{handled.outcome}{': ' if handled.detail else ''}{handled.detail}")
                return handled
            if not folder.runner_pid():
                print("recorded; no runner is running: it takes effect with `whale resume`")
                return None
            if time.monotonic() > deadline:
                print(f"recorded; not answered within {seconds:g} s: it takes effect at the next safe point")
                return None
            time.sleep(0.2)
    finally:
        log.close()


def pause(run: str, wait: float) -> None:
    """Ask for a pause and wait until it holds."""
    folder = RunFolder.find(run)
    _needs_runner(folder, "pause")
    wait_for_answer(folder, request(folder, ev.PauseRequested(by=user())), wait)


def stop(run: str, after_phase: bool, wait: float) -> None:
    """Ask for the end of the runner's process and wait until it has ended, or until the stop is scheduled."""
    folder = RunFolder.find(run)
    _needs_runner(folder, "stop")
    if after_phase:
        wait_for_answer(folder, request(folder, ev.PhaseStopRequested(by=user())), wait)
        return
    deadline = time.monotonic() + wait
    wait_for_answer(folder, request(folder, ev.StopRequested(by=user())), wait)
    while folder.runner_pid() and time.monotonic() < deadline:
        time.sleep(0.1)


def _needs_runner(folder: RunFolder, verb: str) -> None:
    if not folder.runner_pid():
        raise WhaleError(f"{folder.name}: no runner is running, there is nothing to {verb}")


def revert(run: str, to: str, yes: bool, wait: float) -> None:
    """Ask for an earlier harness."""
    from whale.harness_repo import HarnessRepo, RepoError

    folder = RunFolder.find(run)
    state = folder.state()
    candidate = to
    if to not in state.candidates:
        try:
            with HarnessRepo.open(folder.harnesses) as repo:
                candidate = repo.candidate_of(repo.resolve(to)) or ""
        except RepoError as error:
            raise UsageError(f"{folder.name}: {error}") from error
    if candidate not in state.candidates:
        raise UsageError(f"{folder.name}: {to} names no candidate; `whale lineage {folder.name}` shows all")
    _confirm(yes, f"go back from {state.accepted} to {candidate} in {folder.name}?")
    key = request(folder, ev.RevertRequested(candidate=candidate, by=user()))
    _answer_or_settle(folder, key, wait)


def accept(run: str, candidate: str, yes: bool, wait: float) -> None:
    """Ask for a candidate to be accepted by hand."""
    folder = RunFolder.find(run)
    state = folder.state()
    if candidate not in state.candidates:
        raise UsageError(f"{folder.name}: {candidate} names no candidate; `whale lineage {folder.name}` shows all")
    _confirm(yes, f"accept {candidate} in place of {state.accepted} in {folder.name}?")
    _answer_or_settle(folder, request(folder, ev.AcceptRequested(candidate=candidate, by=user())), wait)


def approve(run: str, candidate: str, decline: bool, why: str, wait: float) -> None:
    """Answer the acceptance that waits for a reviewer."""
    folder = RunFolder.find(run)
    event = ev.ApprovalGiven(candidate=candidate, approved=not decline, by=user(), note=why)
    _answer_or_settle(folder, request(folder, event), wait)


def note(run: str, candidate: str, text: str) -> None:
    """Record words on a candidate."""
    folder = RunFolder.find(run)
    if candidate not in folder.state().candidates:
        raise UsageError(f"{folder.name}: {candidate} names no candidate; `whale lineage {folder.name}` shows all")
    if not _text("the note", text).strip():
        raise UsageError("an empty note says nothing")
    request(folder, ev.NoteAdded(candidate=candidate, text=text, by=user()))
    print("recorded")


def _text(what: str, value: str) -> str:
    """Words from the command line, which the shell may have given as any bytes."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"{what} is not UTF-8 text") from None
    return value


def _confirm(yes: bool, question: str) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("this changes what the run goes on with: say --yes")
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise WhaleError("nothing was changed")


def _answer_or_settle(folder: RunFolder, key: str, wait: float) -> ev.ControlHandled | None:
    """Wait for the runner; where none runs, a completed run's request is answered here and now."""
    if not folder.runner_pid() and folder.state().status == "completed":
        from whale.alternation.progress import Silent
        from whale.alternation.session import open_runner

        try:
            with folder.lease() as alive, open_runner(folder, Silent(), alive) as runner:
                runner.settle_requests()
        except ConflictError:
            pass  # a runner came in between: it answers
    return wait_for_answer(folder, key, wait)


def propose(run: str, path: Path, title: str, hypothesis: str, wait: float) -> None:
    """Submit the files of a folder as a candidate."""
    folder = RunFolder.find(run)
    files = read_tree(path)
    from whale.harness.validation import check_source

    reason = check_source({name: text.encode("utf-8") for name, text in files.items()})
    if reason:
        raise UsageError(f"{path}: not a valid harness: {reason}")
    content = json.dumps(files, sort_keys=True, separators=(",", ":")).encode("ascii")
    event = ev.ProposalSubmitted(
        artifact=folder.artifacts.put(content),
        title=" ".join(_text("--title", title).split()) or path.resolve().name,
        hypothesis=_text("--hypothesis", hypothesis),
        by=user(),
    )
    _answer_or_settle(folder, request(folder, event), wait)


def extend(run: str, cycles: int, wait: float) -> None:
    """Ask for more cycles after the planned ones."""
    folder = RunFolder.find(run)
    handled = _answer_or_settle(folder, request(folder, ev.ExtendRequested(cycles=cycles, by=user())), wait)
    if handled is not None and handled.outcome == "extended" and not folder.runner_pid():
        print(f"`whale resume {folder.spoken}` goes on")


def read_tree(path: Path) -> dict[str, str]:
    """The text files below a folder; hidden ones and caches are left out."""
    if not path.is_dir():
        raise UsageError(f"{path}: not a folder; give the folder that holds harness.py")
    files: dict[str, str] = {}
    size = 0
    for file in sorted(path.rglob("*")):
        relative = file.relative_to(path)
        if any(part.startswith(".") or part == "__pycache__" for part in relative.parts):
            continue
        if file.is_symlink():  # to a folder, too: left out in silence, the harness would be another one
            raise UsageError(f"{file}: a harness holds plain files only, no links")
        if file.is_dir():
            continue
        try:
            files[relative.as_posix()] = file.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file}: cannot be read as UTF-8 text: {error}") from None
        size += file.stat().st_size
        if len(files) > MAX_FILES or size > MAX_BYTES:
            raise UsageError(f"{path}: more than {MAX_FILES} files or {MAX_BYTES // 2**20} MB")
    return files
