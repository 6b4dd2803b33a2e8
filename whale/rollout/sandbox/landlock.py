"""Landlock by its three system calls: this process may read the named paths, and touch no other file.

https://docs.kernel.org/userspace-api/landlock.html. Rights are handled as far as the kernel's ABI knows them:
files (1), refer (2), truncate (3), TCP (4), device ioctl (5), abstract sockets and signals (6).
"""

import ctypes
import os
import struct
from collections.abc import Iterable

# The same numbers on x86_64 and aarch64.
_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_PR_SET_NO_NEW_PRIVS = 38


def abi() -> int:
    """Return the kernel's Landlock version, 0 if there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    return max(0, int(version))


def confine(readable: Iterable[str]) -> None:
    """Confine this process and its children for good; paths that do not exist are left out.

    Raises OSError if the kernel refuses.
    """
    version = abi()
    if version == 0:
        raise OSError("this kernel has no Landlock")
    libc = ctypes.CDLL(None, use_errno=True)
    rights = (1 << 13) - 1
    for since, bit in ((2, 13), (3, 14), (5, 15)):
        if version >= since:
            rights |= 1 << bit
    attributes = struct.pack("=Q", rights)
    if version >= 4:
        attributes += struct.pack("=Q", 0b11)
    if version >= 6:
        attributes += struct.pack("=Q", 0b11)
    ruleset = _checked(libc.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)))
    try:
        for path in readable:
            _allow(libc, ruleset, path)
        _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _checked(libc.syscall(_RESTRICT, ruleset, ctypes.c_uint32(0)))
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rights = _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0)  # noqa: PTH112 - pathlib costs start-up
        rule = struct.pack("=Qi", rights, descriptor)
        _checked(libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, ctypes.c_uint32(0)))
    finally:
        os.close(descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return int(result)
