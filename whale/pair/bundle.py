"""An exported pair as a folder: what lies where, and reading it back with its digests checked.

README.md  pair.json  requirements.txt  model/  harness/  [domain/]  [licences/]
"""

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from whale.config import Config, config_from
from whale.errors import CorruptLogError, UsageError
from whale.rollout.models import file_sha256

RECORD = "pair.json"
CARD = "README.md"
MODEL = "model"
ADAPTER = "adapter"
HARNESS = "harness"
DOMAIN = "domain"
LICENCES = "licences"
REQUIREMENTS = "requirements.txt"
FORMAT = 1


class Measured(msgspec.Struct, frozen=True):
    """Held-out success of the pair, and its paired gain over (θ0, h0) in [-1, 1]."""

    split: str
    success: float
    low: float
    high: float
    n: int
    tasks: int
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """pair.json."""

    format: int
    whale: str
    """The version that wrote it."""
    name: str
    run: str
    cycle: int
    candidate: str
    tree: str
    """Git's id of the harness tree."""
    weights: str
    """Digest of θ."""
    initial: str
    """Digest of θ0."""
    data: str
    """Fingerprint of the domain's data, which must be the same where the pair is used."""
    position: int
    head: str
    """The log's newest event and its hash."""
    config: dict[str, Any]
    measured: list[Measured]
    lineage: list[str]
    interventions: list[str]
    files: dict[str, str]
    """SHA-256 of every other file by its path."""


def is_bundle(path: Path) -> bool:
    """Whether this folder is an exported pair."""
    return (path / RECORD).is_file()


def read_record(folder: Path) -> Record:
    """pair.json. Raises UsageError for one of another format, CorruptLogError for one that is damaged."""
    path = folder / RECORD
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError) as error:
        raise CorruptLogError(f"{path}: not a pair's record: {error}; export the pair again") from None
    if record.format != FORMAT:
        raise UsageError(f"{path}: format {record.format}, this release of whale reads {FORMAT}")
    return record


def config_of(folder: Path, record: Record) -> Config:
    """The run's config, with model and domain as they lie in the folder."""
    return config_from(located(folder, record.config), source=str(folder / RECORD))


def located(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """A stored config, in which model and an own domain are named relative to the folder."""
    domain = str(config["domain"])
    if ".py:" in domain:
        domain = str(folder.resolve() / DOMAIN / domain)
    return {**config, "model": str(folder.resolve() / MODEL), "domain": domain}


def check_files(folder: Path, record: Record) -> None:
    """Compare every file with its digest. Raises CorruptLogError naming the first that differs."""
    for name, digest in record.files.items():
        path = folder / name
        if not path.is_file():
            raise CorruptLogError(f"{path}: missing; export the pair again")
        if file_sha256(path) != digest:
            raise CorruptLogError(f"{path}: its bytes are not those that were exported; export the pair again")


def harness_files(folder: Path, record: Record) -> dict[str, bytes]:
    """The harness tree that is in the record; files that were added since are no part of it."""
    prefix = f"{HARNESS}/"
    names = (name for name in record.files if name.startswith(prefix))
    return {name.removeprefix(prefix): (folder / name).read_bytes() for name in names}


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a folder by its path, but for the record's own."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != RECORD)
    return {path.relative_to(folder).as_posix(): file_sha256(path) for path in paths}


def content_digest(content: bytes) -> str:
    """SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()
