"""Content-addressed files of a run: an artifact is on disk, whole, before the event that names it."""

import contextlib
import hashlib
import os
from pathlib import Path

from whale.errors import CorruptLogError, WhaleError


class ArtifactStore:
    """`artifacts/<first two>/<sha256>`; equal content is stored once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        """Where this content lies, there or not."""
        return self.folder / digest[:2] / digest

    def put(self, content: bytes) -> str:
        """Store and return the SHA-256; the bytes are on disk when this returns.

        Raises:
            WhaleError: no space, or the folder cannot be written.
        """
        digest = hashlib.sha256(content).hexdigest()
        target = self.path(digest)
        if target.exists():
            return digest
        temporary = target.with_name(f".{digest}.{os.getpid()}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
            sync_folder(target.parent)
        except OSError as error:
            with contextlib.suppress(OSError):  # whatever is in the way is what the first error says
                temporary.unlink(missing_ok=True)
            raise WhaleError(
                f"{self.folder}: cannot store {len(content)} bytes: {error.strerror or error}; "
                "make room and `whale resume`"
            ) from error
        return digest

    def get(self, digest: str) -> bytes:
        """The content.

        Raises:
            CorruptLogError: it is missing, or its bytes are not what was stored.
        """
        path = self.path(digest)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise CorruptLogError(f"{path}: an artifact that the log names is missing") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise CorruptLogError(f"{path}: the artifact's bytes do not match its SHA-256")
        return content

    def clean(self) -> None:
        """Remove what a killed writer left half-written. Only the run's single writer may call this."""
        for leftover in self.folder.glob("*/.*.tmp"):
            leftover.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename in this folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
