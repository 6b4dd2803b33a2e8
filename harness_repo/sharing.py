"""Runs that share a Git remote, each in a namespace of its own.

On the remote, a run called NAME is `refs/heads/whale/NAME` (its accepted history, which anybody can clone),
`refs/whale/runs/NAME/candidates/*` and `refs/whale/runs/NAME/tags/*`. Two runs both have an `h0` and a
`c001-i01-m0`; under their names they cannot meet. The notes of all runs are one ref, `refs/notes/whale`, and
each of its records says whose it is. A run writes its own refs and its own records, and nobody else's.

What is pulled stays apart in the same way: `refs/whale/runs/*` and `refs/notes/whale-runs`. Nothing from a
remote can change a ref, a note or a commit of the run itself.
"""

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whale.harness_repo.cleanroom import CleanGit, GitObject, one_line_of, shown
from whale.harness_repo.creation import TAGS
from whale.harness_repo.errors import NameTaken, RefConflict, RepoError
from whale.harness_repo.lineage import ACCEPTED, CANDIDATES, RUNS, SHARED_NOTES, accepted_history
from whale.harness_repo.notes import NOTES, NotesTree, parse, records, sound, union
from whale.harness_repo.transaction import ATTEMPTS, NOTHING, move_refs, store_commit

BRANCHES = "refs/heads/whale/"
INCOMING = "refs/whale/incoming"
"""Holds on to notes that were fetched while they are merged."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MESSAGE = "Scores of several runs, each record by the run that it names\n"


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did."""

    run: str
    """The run's name on the remote."""
    candidates: int
    """New ones."""
    accepted: bool
    """The accepted history moved."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull did: run -> how many candidates of it are new here."""

    runs: dict[str, int]


def check_run_name(name: str) -> str:
    """The name itself, if a run can have it on a remote.

    Raises:
        RepoError: it cannot.
    """
    if not _NAME.fullmatch(name) or name == "accepted":
        raise RepoError(
            f"{name!r} cannot name a run on a remote: use up to 64 letters, digits, '_' and '-' (`--as NAME`)"
        )
    return name


def push(git: CleanGit, remote: str, run: str) -> Pushed:
    """Bring all of this store to `remote` under the name `run`, all or nothing.

    Raises:
        NameTaken: the remote has another run of that name, or one that was continued elsewhere.
        RepoError: the remote cannot be reached or refuses.
    """
    place = _place(git, remote)
    ours = _refs(git, CANDIDATES, ACCEPTED, TAGS)
    seen: dict[str, str] | None = None
    said = ""
    for _ in range(ATTEMPTS):
        there = _remote_refs(git, place)
        _check_ours(git, run, ours, there, remote)
        if there == seen:
            raise RepoError(f"{remote} refuses the push: {said}")
        seen = there
        specs = [f"{CANDIDATES}*:{RUNS}{run}/candidates/*", f"+{TAGS}*:{RUNS}{run}/tags/*"]
        if ACCEPTED in ours:
            specs.append(f"{ACCEPTED}:{BRANCHES}{run}")
        notes = _notes_to_push(git, place, run, ours, there)
        if notes is not None:
            specs.append(f"{notes}:{NOTES}")
        status, out, err = git.complete_remote(
            "push", "--atomic", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags",
            "--recurse-submodules=no", "--", place, *specs,
        )  # fmt: skip
        if status == 0:
            break
        # Somebody else pushed meanwhile: look again. If nobody did, the remote does not want it.
        said = _refusal(out, err)
    else:
        raise RepoError(f"{remote} refuses the push: {said}")
    _forget_incoming(git)
    prefix = f"{RUNS}{run}/candidates/"
    return Pushed(
        run=run,
        candidates=sum(ref.startswith(CANDIDATES) for ref in ours) - sum(ref.startswith(prefix) for ref in there),
        accepted=ours.get(ACCEPTED) != there.get(f"{BRANCHES}{run}"),
    )


def pull(git: CleanGit, remote: str, run: str) -> Pulled:
    """Fetch what all other runs have on `remote`, with their notes. Nothing of this run changes.

    Raises:
        NameTaken: the remote has another run that is called as this one is.
        RepoError: the remote cannot be reached, or a run there was rewritten.
    """
    place = _place(git, remote)
    there = _remote_refs(git, place)
    _check_ours(git, run, _refs(git, CANDIDATES), there, remote, ahead=True)
    others = sorted({name for ref in there if (name := _run_of(ref)) and _NAME.fullmatch(name)} - {run, "accepted"})
    before = _refs(git, RUNS)
    specs = []
    for name in others:
        specs += [f"{RUNS}{name}/candidates/*:{RUNS}{name}/candidates/*", f"+{RUNS}{name}/tags/*:{RUNS}{name}/tags/*"]
        if BRANCHES + name in there:
            specs.append(f"{BRANCHES}{name}:{RUNS}{name}/accepted")
    if NOTES in there:
        specs.append(f"+{NOTES}:{INCOMING}")
    if specs:
        _fetch(git, place, specs)
    if NOTES in there:
        _merge_notes(git, run, _fetched(git, there[NOTES], remote))
        _forget_incoming(git)
    after = _refs(git, RUNS)
    new = [ref for ref in after.keys() - before.keys() if "/candidates/" in ref]
    return Pulled({name: sum(ref.startswith(f"{RUNS}{name}/") for ref in new) for name in others})


def _place(git: CleanGit, remote: str) -> str:
    """A remote as a folder (seen from where the user is) or a URL; the store may have a name for it."""
    if remote.startswith("-") or not remote:
        raise RepoError(f"{remote!r} is no remote: give a folder, a URL or a name from `git remote`")
    if Path(remote).exists():
        return str(Path(remote).absolute())
    # By its URL, or git would also write refs/remotes/ and follow what else the user has set for that name.
    status, out, _ = git.complete("config", "--get", f"remote.{remote}.url")
    url = out.decode("utf-8", "surrogateescape").strip()
    if status or not url:
        return remote
    return str(git.git_dir / url) if (git.git_dir / url).exists() else url


def _refs(git: CleanGit, *prefixes: str) -> dict[str, str]:
    listed = git.run("for-each-ref", "--format=%(objectname) %(refname)", *prefixes).decode()
    return {ref: sha for sha, _, ref in (line.partition(" ") for line in listed.splitlines())}


def _remote_refs(git: CleanGit, place: str) -> dict[str, str]:
    status, out, err = git.complete_remote("ls-remote", "--refs", "--", place, f"{BRANCHES}*", f"{RUNS}*", NOTES)
    if status:
        raise RepoError(f"{place} cannot be read: {one_line_of(err)}")
    lines = out.decode("utf-8", "replace").splitlines()
    # ls-remote matches the tails of names: somebody's x/refs/notes/whale is none of these.
    wanted = (BRANCHES, RUNS, NOTES)
    return {ref: sha for sha, _, ref in (line.partition("\t") for line in lines) if ref.startswith(wanted)}


def _run_of(ref: str) -> str:
    for prefix in (BRANCHES, RUNS):
        if ref.startswith(prefix):
            return ref.removeprefix(prefix).partition("/")[0]
    return ""


def _check_ours(
    git: CleanGit, run: str, ours: Mapping[str, str], there: Mapping[str, str], remote: str, *, ahead: bool = False
) -> None:
    """Is `run` on the remote this very run? `ahead`: it may hold more than we have."""
    prefix = f"{RUNS}{run}/candidates/"
    missing = []
    for ref, sha in there.items():
        if not ref.startswith(prefix):
            continue
        candidate = ref.removeprefix(prefix)
        mine = ours.get(CANDIDATES + candidate)
        if mine is None:
            missing.append(candidate)
        elif mine != sha:
            raise NameTaken(f"{remote} has another run called {run}: give this one a name of its own with `--as NAME`")
    if ahead:
        return
    tip = there.get(f"{BRANCHES}{run}")
    known = {acceptance.sha for acceptance in accepted_history(git)}
    if missing or (tip is not None and tip not in known):
        what = f"candidates that are not here, such as {missing[0]}" if missing else "acceptances that are not here"
        raise NameTaken(
            f"{remote} has a run called {run} with {what}: it was continued elsewhere; "
            "give this one a name of its own with `--as NAME`"
        )


def _notes_to_push(
    git: CleanGit, place: str, run: str, ours: Mapping[str, str], there: Mapping[str, str]
) -> str | None:
    """The commit of the remote's notes with ours in them, or None if nothing changes."""
    theirs = None
    if NOTES in there:
        _fetch(git, place, [f"+{NOTES}:{INCOMING}"])
        theirs = _fetched(git, there[NOTES], place)
    mine = git.get(NOTES)
    if mine is None:
        return None
    commits = {sha for ref, sha in ours.items() if ref.startswith(CANDIDATES)}
    commits |= {acceptance.sha for acceptance in accepted_history(git)}
    notes = NotesTree(git.get, _tree(git, theirs.id) if theirs else None)

    def united(commit: str, own: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        yield from (r for r in sound(notes.read(commit)) if r.get("run") != run)
        yield from ({**record, "run": run} for record in own)

    for commit, note in _notes(git, mine.id, commits):
        notes.write(commit, union(united(commit, records(note))))
    tree, objects = notes.objects()
    if theirs is not None and tree == _tree(git, theirs.id):
        return None
    return store_commit(git, tree, [theirs.id] if theirs else [], 0, _MESSAGE, objects)


def _fetched(git: CleanGit, sha: str, remote: str) -> GitObject:
    """The notes by their id: another process may fetch into the same ref meanwhile."""
    found = git.get(sha)
    if found is None:
        raise RepoError(f"the notes on {remote} were replaced while they were read: try again")
    return found


def _forget_incoming(git: CleanGit) -> None:
    with contextlib.suppress(RepoError):  # somebody else did
        if git.get(INCOMING) is not None:
            move_refs(git, {INCOMING: (None, None)})


def _merge_notes(git: CleanGit, run: str, incoming: GitObject) -> None:
    """Unite what was fetched with what was pulled before, and forget records of our own: we have them."""
    for _ in range(ATTEMPTS):
        old = git.get(SHARED_NOTES)
        notes = NotesTree(git.get, _tree(git, old.id) if old else None)
        for commit, note in _notes(git, incoming.id):
            found = [r for r in [*sound(note), *records(notes.read(commit))] if r.get("run") not in (None, run)]
            if found:
                notes.write(commit, union(found))
        tree, objects = notes.objects()
        if old is not None and _tree(git, old.id) == tree:
            return
        # The fetched commit as a parent: the next fetch then brings only what is new.
        parents = [incoming.id, old.id] if old else [incoming.id]
        sha = store_commit(git, tree, parents, 0, _MESSAGE, objects)
        try:
            move_refs(git, {SHARED_NOTES: (sha, old.id if old else NOTHING)})
        except RefConflict as error:
            conflict = error
            continue
        return
    raise conflict


def _notes(git: CleanGit, notes: str, only: Iterable[str] | None = None) -> Iterable[tuple[str, dict[str, Any]]]:
    listed = NotesTree(git.get, _tree(git, notes)).listed()
    for commit in listed if only is None else sorted(listed.keys() & set(only)):
        blob = git.get(listed[commit])
        note = parse(blob.data.decode("utf-8", "replace")) if blob else None
        if note is not None:
            yield commit, note


def _tree(git: CleanGit, commit: str) -> str:
    found = git.get(f"{commit}^{{tree}}")
    if found is None:
        raise RepoError(f"the commit {commit} is missing from {shown(git.git_dir)}")
    return found.id


def _fetch(git: CleanGit, place: str, specs: list[str]) -> None:
    status, _, err = git.complete_remote(
        "fetch", "--quiet", "--no-tags", "--no-prune", "--no-write-fetch-head", "--no-recurse-submodules",
        "--no-auto-gc", "--refmap=", "--", place, *specs,
    )  # fmt: skip
    if status:
        raise RepoError(f"{place} cannot be fetched: {one_line_of(err)}")


def _refusal(out: bytes, err: bytes) -> str:
    """What a push that failed says: the refs that were refused, or else git's error."""
    refused = [line.split("\t") for line in out.decode("utf-8", "replace").splitlines() if line.startswith("!\t")]
    reasons = dict.fromkeys(words[2] for words in refused if len(words) > 2 and "atomic" not in words[2])
    return one_line_of("; ".join(reasons).encode() or err)
