"""`whale gc`: room on the disk, without losing what a run needs."""

import re

from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State, reduce
from whale.cli.output import print_json, print_table, print_text
from whale.errors import CorruptLogError, UsageError, WhaleError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def gc(run: str, keep_bytes: str | None, drop_optimizers: bool, dry_run: bool, json: bool) -> None:
    """Say what goes and why; remove it unless it is a dry run. Exit 1 if the quota is not met."""
    from whale.alternation.retention import collect, collection

    quota = None if keep_bytes is None else parse_bytes(keep_bytes)
    folder = RunFolder.find(run)
    with folder.lease():
        state, named = _read(folder)
        found = collection(folder, state, named, keep_bytes=quota, drop_optimizers=drop_optimizers)
        if not dry_run:
            collect(folder, found.goes)
    if json:
        print_json(
            {
                "run": folder.name, "dry_run": dry_run, "bytes_before": found.before, "bytes_after": found.after,
                "goes": [
                    {"path": str(i.path.relative_to(folder.path)), "bytes": i.bytes, "kind": i.kind, "why": i.why}
                    for i in found.goes
                ],
                "could_go": sum(item.bytes for item in found.could),
            }
        )  # fmt: skip
    else:
        rows = [[str(i.path.relative_to(folder.path)), shown(i.bytes), i.kind, i.why] for i in found.goes]
        if rows:
            print_table(["would go" if dry_run else "gone", "size", "what", "why"], rows)
        print_text(f"{folder.path}: {shown(found.before)} -> {shown(found.after)}")
        spare = sum(item.bytes for item in found.could)
        if spare:
            print_text(
                f"--drop-optimizers could free {shown(spare)} more: {len(found.could)} optimiser "
                "states of older phase ends, without which a fork from there cannot train on"
            )
    if quota is not None and found.after > quota:
        raise WhaleError(
            f"{folder.name}: {shown(found.after)} stay, more than the quota of {shown(quota)}: "
            "what stays is needed by replay, resume, forks and the pairs"
        )


def _read(folder: RunFolder) -> tuple[State, set[str]]:
    """The state, and every artifact that an event names, from a log whose chain holds."""
    from whale.events import CorruptLog, UnknownEvent
    from whale.events import types as ev

    log = folder.open_log(readonly=True)
    try:
        log.verify()
        state, named = State(), set()
        for recorded in log.read():
            state = reduce(state, recorded)
            artifact = ev.artifact_of(recorded.event)
            if artifact is not None:
                named.add(artifact)
        return state, named
    except (CorruptLog, UnknownEvent) as error:
        raise CorruptLogError(f"{folder.log_place}: {error}; nothing was removed") from error
    finally:
        log.close()


def parse_bytes(text: str) -> int:
    """A size such as 500000, 20G or 1.5Gi. Raises UsageError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]i?)?b?", text.strip().lower())
    if not found:
        raise UsageError(f"--keep-bytes {text}: give a number of bytes, such as 500000, 20G or 1.5Gi")
    return int(float(found[1]) * _UNITS[found[2] or ""])


def shown(size: int) -> str:
    """A size for people."""
    for unit, one in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= one:
            return f"{size / one:.1f} {unit}"
    return f"{size} B"
