"""A large store for measurements, made at once instead of candidate by candidate."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from whale.harness_repo import CommitFacts, HarnessRepo
from whale.harness_repo.creation import _write_refs
from whale.harness_repo.message import compose
from whale.harness_repo.objects import Kind, commit_bytes, object_id, tree_objects
from whale.harness_repo.transaction import store_objects

START = datetime(2026, 1, 1, tzinfo=UTC)
PROGRAM = "".join(f"def step_{at}(state):\n    return state + {at}\n\n" for at in range(60))


def files(at: int) -> dict[str, bytes]:
    """Harness number `at`: a program of 180 lines, of which one changes, and prompts."""
    changed = PROGRAM.replace(f"state + {at % 60}\n", f"state + {at} * 1000\n")
    return {
        "harness.py": changed.encode(),
        "prompts/system.md": f"You answer questions. Variant {at}.\n".encode(),
        "prompts/user.md": b"{question}\n",
    }


def name(at: int) -> str:
    """Its id: 20 candidates a cycle."""
    return "h0" if at == 0 else f"c{(at - 1) // 20 + 1:03d}-i{(at - 1) // 5 % 4 + 1:02d}-m{(at - 1) % 5}"


def facts(at: int) -> CommitFacts:
    """Its facts."""
    return CommitFacts(
        run="large", cycle=(at + 19) // 20, iteration=(at - 1) // 5 % 4 + 1 if at else 0, proposer="mutation",
        title=f"Try {at} in place of what was there", hypothesis="The step was too small for longer questions.",
        event_hash=f"{at:064x}", when=START + timedelta(seconds=at),
    )  # fmt: skip


def build(path: Path, count: int, *, per_acceptance: int = 20) -> dict[str, str]:
    """A store of `count` candidates with notes; every 20th is accepted. Returns candidate -> tree."""
    repo = HarnessRepo.create(path)
    objects: list[tuple[Kind, bytes]] = []
    refs, trees, commits = dict[str, str](), dict[str, str](), list[str]()
    head = ""
    for at in range(count):
        tree, parts = tree_objects(files(at))
        parent = [commits[(at - 1) // per_acceptance * per_acceptance]] if at else []
        commit = commit_bytes(tree, parent, facts(at).seconds, compose(name(at), facts(at)))
        commits.append(object_id("commit", commit))
        objects += [*parts, ("commit", commit)]
        refs[f"refs/whale/candidates/{name(at)}"] = commits[-1]
        trees[name(at)] = tree
        if at % per_acceptance == 0:
            message = compose(name(at), facts(at), serial=at // per_acceptance)
            merge = commit_bytes(tree, [*filter(None, [head]), commits[-1]], facts(at).seconds, message)
            head = object_id("commit", merge)
            objects.append(("commit", merge))
            refs[f"refs/tags/accepted/c{facts(at).cycle:03d}"] = head
    refs["refs/heads/accepted"] = head
    store_objects(repo._git, objects)
    _write_refs(path, refs)
    repo.rebuild_notes(
        (name(at), {"score": at % 97 / 97, "low": 0.1, "high": 0.9, "n": 32, "weights": f"{at // 20:064x}",
                    "cycle": facts(at).cycle, "iteration": facts(at).iteration, "failures": {"ok": 32}})
        for at in range(count)
    )  # fmt: skip
    repo.close()
    return trees
