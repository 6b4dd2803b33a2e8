"""The temporary folder that a worker starts from: what exists of WHALE inside, and the candidate's tree."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

_PREFIX = "whale-sandbox-"
_STALE_SECONDS = 60.0
_INSIDE = ("worker", "episode", "loop", "frames", "seccomp", "landlock")


class WorkerFolder:
    """`path`/lib and `path`/tree. Made whole or not at all; ValueError for a path that leaves the tree."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        _sweep(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._mark = _mark(self.path)
        try:
            _write_library(self.path / "lib")
            _write_tree(self.path / "tree", files)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove it. May be called again."""
        if self._mark >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._mark)
            self._mark = -1


def _mark(folder: Path) -> int:
    """Lock a folder for as long as this process lives; returns the lock's descriptor."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _sweep(parent: Path) -> None:
    """Remove the folders that killed hosts have left: old ones that no process holds locked."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime < _STALE_SECONDS:
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def _write_library(folder: Path) -> None:
    """Write what exists of WHALE inside: the harness contract and the worker's own modules."""
    here = Path(__file__).parent
    contract = here.parent.parent / "harness"
    sources = {f"whale/rollout/sandbox/{name}.py": here / f"{name}.py" for name in _INSIDE}
    sources |= {f"whale/harness/{name}.py": contract / f"{name}.py" for name in ("__init__", "api")}
    for path in ("whale", "whale/rollout", "whale/rollout/sandbox", "whale/harness"):
        (folder / path).mkdir(parents=True)
        (folder / path / "__init__.py").touch()
    for path, source in sources.items():
        shutil.copyfile(source, folder / path)


def _write_tree(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir()
    for name, content in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"not a path inside a harness tree: {name!r}")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
