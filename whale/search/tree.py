"""A harness tree as plain data: its digest and its limits."""

import hashlib
import re
from collections.abc import Mapping

MAX_FILES = 64
MAX_FILE_BYTES = 256 * 1024
MAX_TREE_BYTES = 1024 * 1024

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 over paths and contents; equal for equal trees, whatever the order of the mapping."""
    total = hashlib.sha256()
    for path in sorted(files):
        content = hashlib.sha256(files[path]).hexdigest()
        total.update(f"{len(path.encode())}:{path}:{content}\n".encode())
    return total.hexdigest()


def check_tree(files: Mapping[str, bytes]) -> str | None:
    """Why a tree is too large or has a path that cannot be stored, or None."""
    if len(files) > MAX_FILES:
        return f"{len(files)} files; a harness has at most {MAX_FILES}"
    if sum(map(len, files.values())) > MAX_TREE_BYTES:
        return f"the tree is larger than {MAX_TREE_BYTES} bytes"
    folders = {folder for path in files for folder in _folders(path)}
    folded: dict[str, str] = {}
    for path, content in files.items():
        if len(path) > 200 or not all(_PART.fullmatch(part) for part in path.split("/")):
            return f"the path {path[:200]!r} is not made of letters, digits, '.', '_' and '-'"
        if path in folders:
            return f"{path} is a file and a folder"
        # Two such paths are one file on some machines, and not on others.
        if folded.setdefault(path.lower(), path) != path:
            return f"{path} and {folded[path.lower()]} differ in case only"
        if len(content) > MAX_FILE_BYTES:
            return f"{path} is larger than {MAX_FILE_BYTES} bytes"
    return None


def _folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
