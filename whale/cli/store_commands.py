"""Commands on a run's harness store as a whole: push, pull, pack; and score, which judges one commit."""

import sys
from pathlib import Path

import typer

from whale.alternation.run_folder import RunFolder
from whale.cli.output import print_json, print_text, printable
from whale.errors import ConflictError, UsageError, WhaleError

NOT_JUDGED = 125
"""Exit code for `git bisect run`: skip this commit."""
BISECT_STOPS = 128
"""Exit code for `git bisect run`: stop. Any lower one would be taken for a verdict on the commit."""


def push(run: str, remote: str, as_: str | None, json: bool) -> None:
    """Bring a run's harnesses to a Git remote."""
    from whale.harness_repo import HarnessRepo, NameTaken

    folder = RunFolder.find(run)
    with HarnessRepo.open(folder.harnesses) as repo:
        name = as_ or repo.shared_name or folder.name
        try:
            done = repo.push(remote, run=name)
        except NameTaken as error:
            raise ConflictError(f"{folder.name}: {error}") from error
        repo.shared_name = name
    if json:
        print_json({"run": done.run, "remote": remote, "new_candidates": done.candidates, "accepted": done.accepted})
    else:
        moved = ", the accepted history" if done.accepted else ""
        print_text(f"{remote} has {done.run}: {done.candidates} new candidates{moved}; branch whale/{done.run}")


def pull(run: str, remote: str, as_: str | None, json: bool) -> None:
    """Fetch the harnesses of the other runs on a Git remote."""
    from whale.harness_repo import HarnessRepo, NameTaken

    folder = RunFolder.find(run)
    with HarnessRepo.open(folder.harnesses) as repo:
        name = as_ or repo.shared_name or folder.name
        try:
            done = repo.pull(remote, run=name)
        except NameTaken as error:
            raise ConflictError(f"{folder.name}: {error}") from error
        repo.shared_name = name
    if json:
        print_json({"run": name, "remote": remote, "new_candidates": done.runs})
        return
    for other, count in done.runs.items():
        print_text(f"{other}: {count} new candidates; `whale diff {folder.name} accepted {other}/accepted` compares")
    if not done.runs:
        print_text(f"{remote} has no other run")


def pack(run: str, json: bool) -> None:
    """Pack a run's harness store. No runner may be at work meanwhile."""
    from whale.harness_repo import HarnessRepo

    folder = RunFolder.find(run)
    with folder.lease(), HarnessRepo.open(folder.harnesses, exclusive=True) as repo:
        before = repo.size()
        after = repo.pack()
    if json:
        print_json({"run": folder.name, "bytes_before": before.bytes, "bytes": after.bytes, "loose": after.loose})
    else:
        print(f"{folder.harnesses}: {before.bytes / 2**20:.1f} MB -> {after.bytes / 2**20:.1f} MB, "
              f"{before.loose} -> {after.loose} loose objects")  # fmt: skip


def score(run: str, commit: str, least: float | None, json: bool) -> None:
    """A harness's recorded score; with `least`, a verdict as `git bisect run` reads it."""
    from whale.harness_repo import HarnessRepo, RepoError, score_text

    try:
        folder = RunFolder.find(run)
        with HarnessRepo.open(folder.harnesses) as repo:
            note = repo.note(_checked_out() if commit == "HEAD" else commit)
    except (WhaleError, RepoError) as error:
        if least is None:
            raise UsageError(f"{run}: {error}") from error
        print(f"whale: {printable(str(error))}", file=sys.stderr)
        raise typer.Exit(BISECT_STOPS) from error
    value = (note or {}).get("score")
    if json:
        print_json({"commit": commit, "note": note})
    elif note is not None and isinstance(value, int | float):
        print_text(f"{score_text(note)}, weights {str(note.get('weights', ''))[:12]}, cycle {note.get('cycle', '?')}")
    else:
        print("no score")
    if least is None:
        return
    if not isinstance(value, int | float):
        raise typer.Exit(NOT_JUDGED)
    raise typer.Exit(0 if value >= least else 1)


def _checked_out() -> str:
    """The commit that is checked out where the user is: `git bisect run` puts it there."""
    from whale.harness_repo.cleanroom import checked_out

    return checked_out(Path.cwd())
