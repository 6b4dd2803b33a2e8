"""Is the store what the log says? Problems come back in words."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from whale.harness_repo.cleanroom import CleanGit
from whale.harness_repo.errors import RepoError
from whale.harness_repo.lineage import CANDIDATES, accepted_history
from whale.harness_repo.message import CommitFacts, compose, one_line, trailers
from whale.harness_repo.notes import NOTES, NotesTree, merge, parse, records


def verify(
    git: CleanGit,
    facts: Iterable[tuple[str, str] | tuple[int, str, str]],
    commits: Iterable[tuple[str, CommitFacts]] = (),
    scores: Iterable[tuple[str, Mapping[str, Any]]] | None = None,
) -> list[str]:
    """The problems of the store in `git` against the facts (see `HarnessRepo.verify`)."""
    problems: list[str] = []
    expected: list[tuple[int, str, str]] = []
    for fact in facts:
        if len(fact) == 2:
            problems += _candidate(git, *fact)
        else:
            expected.append(fact)
    problems += _history(git, sorted(expected))
    for candidate, said in commits:
        problems += _trailers(git, candidate, said)
    if scores is not None:
        problems += _notes(git, scores)
    # Content last: git's own check names every damaged or missing object.
    return problems + _objects(git)


def _candidate(git: CleanGit, candidate: str, tree: str) -> list[str]:
    try:
        commit = git.get(CANDIDATES + candidate)
        if commit is None:
            return [f"{candidate}: its ref or its commit is missing or damaged"]
        found = git.get(f"{commit.id}^{{tree}}")
    except RepoError as error:
        return [f"{candidate}: {error}"]
    problems = []
    if found is None:
        problems.append(f"{candidate}: its tree is missing")
    elif found.id != tree:
        problems.append(f"{candidate}: its tree is {found.id}, the log says {tree}")
    message = commit.data.decode("utf-8", "replace").partition("\n\n")[2]
    if trailers(message).get("Candidate") != candidate:
        problems.append(f"{candidate}: its ref names another commit, {commit.id}")
    return problems


def _trailers(git: CleanGit, candidate: str, facts: CommitFacts) -> list[str]:
    try:
        commit = git.get(CANDIDATES + candidate)
    except RepoError:
        return []  # named already
    if commit is None:
        return []
    found = trailers(commit.data.decode("utf-8", "replace").partition("\n\n")[2])
    expected = trailers(compose(candidate, facts))
    if "Position" not in found:
        expected.pop("Position", None)  # a commit that was made before positions were said
    return [
        f"{candidate}: its Whale-{key} is {found.get(key, '')!r}, the log says {expected.get(key, '')!r}"
        for key in sorted(found.keys() | expected.keys())
        if found.get(key) != expected.get(key)
    ]


def _notes(git: CleanGit, scores: Iterable[tuple[str, Mapping[str, Any]]]) -> list[str]:
    expected: dict[str, dict[str, Any]] = {}
    for candidate, note in scores:
        expected[candidate] = merge(expected.get(candidate), note)
    try:
        old = git.get(f"{NOTES}^{{tree}}")
        found = {commit: git.get(blob) for commit, blob in NotesTree(git.get, old.id if old else None).listed().items()}
        holders = [(c, sha.id) for c in expected if (sha := git.get(CANDIDATES + c)) is not None]
        holders += [(a.candidate, a.sha) for a in accepted_history(git) if a.candidate in expected]
    except RepoError as error:
        return [f"notes: {error}"]
    wrong = {
        candidate: None
        for candidate, sha in holders
        if (blob := found.get(sha)) is None or _own(blob.data) != records(expected[candidate])
    }
    return [f"{candidate}: its note is not what the log says: `whale resume` writes it anew" for candidate in wrong]


def _own(text: bytes) -> list[dict[str, Any]]:
    """The records in a note that are this store's own: a pull may have brought other runs' beside them."""
    return [record for record in records(parse(text.decode("utf-8", "replace"))) if "run" not in record]


def _history(git: CleanGit, expected: Sequence[tuple[int, str, str]]) -> list[str]:
    try:
        found = accepted_history(git)
    except RepoError as error:
        return [f"accepted: {error}"]
    problems = []
    for at in range(max(len(found), len(expected))):
        if at >= len(found):
            problems.append(f"accepted: acceptance {expected[at][0]} ({expected[at][1]}) is missing")
        elif at >= len(expected):
            problems.append(f"accepted: the log knows no acceptance {found[at].serial} ({found[at].candidate})")
        elif (found[at].serial, found[at].candidate, found[at].tree) != expected[at]:
            there, said = found[at], expected[at]
            problems.append(
                f"accepted: acceptance {there.serial} is {there.candidate} with tree {there.tree}, "
                f"the log says {said[0]}: {said[1]} with tree {said[2]}"
            )
    return problems


def _objects(git: CleanGit) -> list[str]:
    status, out, err = git.complete("fsck", "--strict", "--no-dangling", "--no-progress", "--name-objects")
    said = [line.strip() for line in (err + out).decode("utf-8", "replace").splitlines() if line.strip()]
    if status == 0:
        return []
    return [f"git fsck: {one_line(line, 300)}" for line in said] or [f"git fsck: exit {status}"]
