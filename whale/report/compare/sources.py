"""What a user names, as records: runs, folders of runs, exported logs, experiments."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from whale.alternation.run_folder import RunFolder, runs_folder
from whale.errors import CorruptLogError, UsageError, WhaleError
from whale.events import CorruptLog, EventLog, LogError, MemoryLog, UnknownEvent
from whale.events.transfer import EXPORTS, read_file
from whale.report.compare.records import RunRecord, read_record


@dataclass(frozen=True, slots=True)
class Found:
    """The runs behind the words of a command, and the names that an experiment gives to their systems."""

    records: tuple[RunRecord, ...]
    names: dict[str, str]
    empty: tuple[str, ...]
    """Runs that have recorded nothing yet."""


def find(words: Sequence[str], runs: Path | None = None) -> Found:
    """Read all of them; `runs` is where an experiment's runs lie, if not in its folder under the runs.

    Raises:
        UsageError: a word names nothing, or nothing was found.
        CorruptLogError: a log is damaged.
    """
    records: list[RunRecord] = []
    names: dict[str, str] = {}
    empty: list[str] = []
    for word in words:
        for path, system in _expand(word, runs):
            record = _read(path)
            if record is None:
                empty.append(str(path))
                continue
            records.append(record)
            if system:
                names[record.source] = system
    if not records:
        told = f" ({', '.join(empty)}: nothing is recorded yet)" if empty else ""
        raise UsageError(f"there is no run to report on in {', '.join(words)}{told}")
    return Found(tuple(records), names, tuple(empty))


def _expand(word: str, runs: Path | None) -> Iterator[tuple[Path, str]]:
    """The run folders and exported logs that a word means, each with its system's name if it has one."""
    path = Path(word)
    if path.is_file() and path.name.endswith(EXPORTS):
        yield path, ""
        return
    if path.is_file() and path.suffix == ".toml":
        from whale.experiment.grid import load_experiment

        experiment = load_experiment(path)
        there = {cell.name: cell.system for cell in experiment.cells}
        for name, system in there.items():
            folder = (runs or runs_folder() / experiment.name) / name
            if (folder / "whale.toml").exists():
                yield folder, system
        return
    for folder in (path, runs_folder() / word):
        if (folder / "whale.toml").exists() or (folder / "events.db").exists():
            yield folder, ""
            return
        inside = sorted(child.parent for child in folder.glob("*/whale.toml"))
        inside += sorted(child for child in folder.glob("*") if child.name.endswith(EXPORTS))
        if inside:
            yield from ((child, "") for child in inside)
            return
    raise UsageError(
        f"{word}: neither a run, a folder of runs or exported logs, an exported log ({', '.join(EXPORTS)}) nor an "
        f"experiment's file; runs are looked for in {runs_folder()}"
    )


def _read(path: Path) -> RunRecord | None:
    try:
        if path.is_file():
            log: EventLog = MemoryLog()
            log.restore(read_file(path))  # checks the whole chain
        else:
            folder = RunFolder(path)
            if not folder.has_log():
                return None
            log = folder.open_log(readonly=True)
        try:
            return read_record(log, str(path)) if log.head().position else None
        finally:
            log.close()
    except (CorruptLog, UnknownEvent) as error:
        raise CorruptLogError(f"{path}: {error}") from error
    except LogError as error:
        raise WhaleError(f"{path}: {error}") from error
