"""Our proposals beside two peers' commits of the same files, and reads of a large store, in one run.

    python benchmarks/git_store.py [--commits 40] [--rounds 3] [--candidates 10000]

A proposal is ours in full: tree and commit checked by git, a ref of its own, lineage and facts in the message,
durable (fsync). The peers commit the same files to a branch: GitPython's `index.commit` with a work tree
(write, add, commit; no fsync of their own accord), and pygit2's `create_commit` into a bare repository, in
process. The three take turns in each round, so that a busy machine is busy for all of them; ratios are of the
best rounds. `pip install pygit2` for the second peer.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import git
from harness_stores import build, facts, files, name

from whale.harness_repo import HarnessRepo, render_lineage


def ours(folder: Path, count: int) -> None:
    with HarnessRepo.create(folder) as repo:
        for at in range(count):
            tree = repo.write_tree(files(at))
            repo.propose(name(at), tree, [name(at - 1)] if at else [], facts(at))


def gitpython(folder: Path, count: int) -> None:
    repo = git.Repo.init(folder)
    for at in range(count):
        for path, data in files(at).items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_bytes(data)
        repo.index.add(list(files(at)))
        repo.index.commit(f"{name(at)}: {facts(at).title}\n\n{facts(at).hypothesis}\n", skip_hooks=True)
    repo.close()


def pygit2_bare(folder: Path, count: int) -> None:
    import pygit2

    repo = pygit2.init_repository(str(folder), bare=True)
    who = pygit2.Signature("WHALE", "whale@localhost", 0, 0)
    parents: list[Any] = []
    for at in range(count):
        index = pygit2.Index()
        for path, data in files(at).items():
            index.add(pygit2.IndexEntry(path, repo.create_blob(data), pygit2.enums.FileMode.BLOB))
        message = f"{name(at)}: {facts(at).title}\n\n{facts(at).hypothesis}\n"
        parents = [repo.create_commit("refs/heads/main", who, who, message, index.write_tree(repo), parents)]


def writes(count: int, rounds: int) -> None:
    peers: dict[str, Callable[[Path, int], None]] = {"ours": ours, "GitPython index.commit": gitpython}
    try:
        peers[f"pygit2 {version('pygit2')}"] = pygit2_bare
    except PackageNotFoundError:
        print("pygit2 is not installed: left out", file=sys.stderr)
    rates: dict[str, list[float]] = {peer: [] for peer in peers}
    for at in range(rounds):
        for peer, make in peers.items():
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                make(Path(folder) / "store", count)
                rates[peer].append(count / (time.perf_counter() - began))
        print(f"round {at + 1} of {rounds}", file=sys.stderr)
    best = {peer: max(measured) for peer, measured in rates.items()}
    print(f"\nproposals a second ({count} each, {rounds} rounds)")
    for peer, rate in best.items():
        spread = f"{min(rates[peer]):.1f} to {rate:.1f}"
        print(f"  {peer:24} {rate:8.1f}   ours is {best['ours'] / rate:5.2f} x   ({spread})")


def fastest(call: Callable[[], Any], times: int = 5) -> str:
    """The best wall seconds, and the fewest CPU seconds of us and our children: read those on a busy machine."""
    wall, cpu = [], []
    for _ in range(times):
        began, before = time.perf_counter(), sum(os.times()[:4])
        call()
        wall.append(time.perf_counter() - began)
        cpu.append(sum(os.times()[:4]) - before)
    return f"{min(wall):7.3f} wall {min(cpu):6.2f} CPU"


def reads(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "large"
        run.mkdir()
        build(run / "harnesses.git", count)
        (run / "events.db").touch()  # these commands read Git alone
        with HarnessRepo.open(run / "harnesses.git") as repo:
            entries = repo.lineage()
            rows: Iterable[tuple[str, Callable[[], Any]]] = (
                ("first page of lineage (50)", lambda: repo.page(50)),
                ("whole lineage", repo.lineage),
                ("whole lineage as a tree", lambda: render_lineage(entries)),
                ("diff of two candidates", lambda: repo.diff("accepted~1", "accepted")),
            )
            print(f"\n{count} candidates, seconds (best of 5)")
            for what, call in rows:
                print(f"  {what:36} {fastest(call)}")
            size = repo.size()
        before = _children()
        with HarnessRepo.open(run / "harnesses.git") as repo:
            for at in range(1000):
                repo.files(name(at % count))
            during = _children()
        print(f"  child processes: {before} before, {during} in 1,000 reads, {_children()} after")
        print(f"  store: {size.bytes / 2**20:.1f} MB, {size.packed} objects, packed")
        whale = [sys.executable, "-m", "whale"]
        print("whole commands, seconds (best of 5)")
        for words in (["--version"], ["lineage", str(run)], ["lineage", str(run), "--all"], ["diff", str(run)]):

            def command(words: list[str] = words) -> None:
                subprocess.run([*whale, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

            shown = " ".join(word if word != str(run) else "RUN" for word in words)
            print(f"  whale {shown:30} {fastest(command)}")


def _children() -> int:
    done = subprocess.run(["ps", "--no-headers", "--ppid", str(os.getpid())], capture_output=True)
    return len(done.stdout.splitlines()) - 1  # ps itself


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commits", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--candidates", type=int, default=10_000)
    options = parser.parse_args()
    if shutil.which("git") is None:
        raise SystemExit("git is not on PATH")
    writes(options.commits, options.rounds)
    reads(options.candidates)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"\npeak memory of this process: {used / 1024:.0f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
