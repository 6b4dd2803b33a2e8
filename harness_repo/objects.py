"""Git objects as bytes: pure functions that build, name and read them.

A pack is composed here and handed to `git unpack-objects --strict`, so that all objects of one write go in
by one process, and git's own fsck looks at each of them before it is stored.
"""

import hashlib
import re
import struct
import unicodedata
import zlib
from collections.abc import Iterable, Mapping
from typing import Literal

from whale.harness_repo.errors import RepoError

Kind = Literal["commit", "tree", "blob"]
_PACK_TYPE: dict[Kind, int] = {"commit": 1, "tree": 2, "blob": 3}

FILE_LIMIT = 1_000_000
"""Bytes of one file."""
TREE_LIMIT = 4_000_000
"""Bytes of all files."""
FILES_LIMIT = 200
PATH_LIMIT = 500
"""Bytes of one path."""

FILE_MODE, TREE_MODE = "100644", "40000"


def object_id(kind: Kind, data: bytes) -> str:
    """Git's name of an object: SHA-1 over its header and content."""
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)) + data, usedforsecurity=False).hexdigest()


def pack(objects: Iterable[tuple[Kind, bytes]]) -> bytes:
    """A version 2 pack without deltas (git's gitformat-pack)."""
    listed = list(objects)
    parts = [struct.pack(">4sII", b"PACK", 2, len(listed))]
    for kind, data in listed:
        size = len(data)
        byte, size = (_PACK_TYPE[kind] << 4) | (size & 15), size >> 4
        header = bytearray()
        while size:
            header.append(byte | 0x80)
            byte, size = size & 0x7F, size >> 7
        header.append(byte)
        parts += [bytes(header), zlib.compress(data, 1)]
    body = b"".join(parts)
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def tree_bytes(entries: Mapping[bytes, tuple[str, str]]) -> bytes:
    """A tree object from name -> (mode, id), in git's order (a folder sorts as if it ended in "/")."""
    order = sorted(entries, key=lambda name: name + b"/" if entries[name][0] == TREE_MODE else name)
    return b"".join(b"%s %s\0" % (entries[name][0].encode(), name) + bytes.fromhex(entries[name][1]) for name in order)


def read_tree(data: bytes) -> dict[bytes, tuple[str, str]]:
    """The inverse of `tree_bytes`: name -> (mode, id)."""
    entries: dict[bytes, tuple[str, str]] = {}
    at = 0
    while at < len(data):
        space, end = data.index(b" ", at), data.index(b"\0", at)
        entries[data[space + 1 : end]] = (data[at:space].decode(), data[end + 1 : end + 21].hex())
        at = end + 21
    return entries


def commit_bytes(tree: str, parents: Iterable[str], seconds: int, message: str) -> bytes:
    """A commit object by the store's own identity. `seconds` since 1970, UTC."""
    who = f"WHALE <whale@localhost> {seconds} +0000"
    lines = [f"tree {tree}", *(f"parent {p}" for p in parents), f"author {who}", f"committer {who}"]
    return ("\n".join(lines) + "\n\n" + message).encode()


def tree_objects(files: Mapping[str, bytes]) -> tuple[str, list[tuple[Kind, bytes]]]:
    """The id of the tree of `files` (path -> content), and all objects it needs, parts before wholes.

    Raises:
        RepoError: a path or a size is not allowed in a harness (see `check_files`).
    """
    check_files(files)
    objects: list[tuple[Kind, bytes]] = []
    folders: dict[str, dict[bytes, tuple[str, str]]] = {"": {}}
    for path in sorted(files):
        folder, _, name = path.rpartition("/")
        objects.append(("blob", files[path]))
        folders.setdefault(folder, {})[name.encode()] = (FILE_MODE, object_id("blob", files[path]))
        while folder:
            folder = folder.rpartition("/")[0]
            folders.setdefault(folder, {})
    for folder in sorted(folders, key=lambda f: f.count("/") + bool(f), reverse=True):
        data = tree_bytes(folders[folder])
        objects.append(("tree", data))
        if folder:
            above, _, name = folder.rpartition("/")
            folders[above][name.encode()] = (TREE_MODE, object_id("tree", data))
    return object_id("tree", objects[-1][1]), objects


def check_files(files: Mapping[str, bytes]) -> None:
    """Refuse what a harness tree must not hold.

    Raises:
        RepoError: no files, too many or too large ones, or a path that is absolute, leaves the tree,
            belongs to git, is not UTF-8, or would meet another one on a case-insensitive disk.
    """
    if not files:
        raise RepoError("a harness needs at least one file")
    if len(files) > FILES_LIMIT:
        raise RepoError(f"a harness has at most {FILES_LIMIT} files, not {len(files)}")
    seen: dict[str, str] = {}
    total = 0
    for path, data in files.items():
        problem = _path_problem(path)
        if problem:
            raise RepoError(f"a harness file cannot be called {path!r}: {problem}")
        if len(data) > FILE_LIMIT:
            raise RepoError(f"{path}: {len(data):,} bytes; a harness file has at most {FILE_LIMIT:,}")
        total += len(data)
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            prefix = "/".join(parts[:depth])
            # A folder may be shared, but only under one spelling, and a file is never a folder as well.
            mark = prefix if depth == len(parts) else prefix + "/"
            key = unicodedata.normalize("NFC", prefix).casefold()
            other = seen.setdefault(key, mark)
            if other != mark:
                raise RepoError(f"{path!r} and {other!r} are the same path on some disks")
    if total > TREE_LIMIT:
        raise RepoError(f"the files of a harness are at most {TREE_LIMIT:,} bytes together, not {total:,}")


def _path_problem(path: str) -> str:
    """Why a path is not allowed, or nothing."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if len(encoded) > PATH_LIMIT:
        return f"it is longer than {PATH_LIMIT} bytes"
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return "it is absolute"
    if not path.isprintable() or "\\" in path:
        return "it has control characters or a backslash"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return "it has an empty, '.' or '..' part"
        # HFS+ drops invisible characters and NTFS short names alias .git; the rest of the family
        # (.gitattributes, .gitmodules) would steer the git of whoever clones the store.
        plain = "".join(c for c in part if unicodedata.category(c) != "Cf").casefold()
        if plain.startswith(".git") or re.fullmatch(r"git~\d+", plain):
            return "names that begin with .git are git's own"
        if len(part.encode()) > 255:
            return "a part is longer than 255 bytes"
    return ""
