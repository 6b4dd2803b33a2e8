"""A seccomp filter for an episode: what pure computation needs, and nothing else.

An allow-list: a system call that is not named fails with EPERM. So there is no fork, thread, exec, socket,
signal, ptrace, mount, keyring, io_uring or bpf, nor whatever a later kernel adds; nor file locks or inotify,
by which two episodes could speak. Numbers: Linux, arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h. The x32 ABI sets bit 30 of the number, so it meets no allowed one; another
architecture's entry (int 0x80) kills the process.
"""

import ctypes
import errno
import platform
import struct

# name: (x86_64, aarch64); None where the architecture has no such call.
_ALLOWED: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "open": (2, None),
    "close": (3, 57),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "poll": (7, None),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "access": (21, None),
    "select": (23, None),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "dup": (32, 23),
    "getpid": (39, 172),
    "exit": (60, 93),
    "uname": (63, 160),
    "getcwd": (79, 17),
    "readlink": (89, None),
    "gettimeofday": (96, 169),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "times": (100, 153),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "time": (201, None),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "getdents64": (217, 61),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "exit_group": (231, 94),
    "openat": (257, 56),
    "newfstatat": (262, 79),
    "readlinkat": (267, 78),
    "faccessat": (269, 48),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "set_robust_list": (273, 99),
    "getrandom": (318, 278),
    "statx": (332, 291),
    "rseq": (334, 293),
    "faccessat2": (439, 439),
}

# Allowed for some values of one argument only: (x86_64, aarch64), argument, values.
_ALLOWED_IF: dict[str, tuple[tuple[int, int], int, tuple[int, ...]]] = {
    # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC: no locks, no signals, no seals.
    "fcntl": ((72, 25), 1, (0, 1, 2, 3, 1030)),
    # TCGETS (isatty), FIOCLEX, FIONCLEX.
    "ioctl": ((16, 29), 1, (0x5401, 0x5451, 0x5450)),
    # new_limit = NULL: a limit can be read, not set.
    "prlimit64": ((302, 261), 2, (0,)),
}

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _KILL, _DENY = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16

_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_SECCOMP_MODE_FILTER = 2

_Instruction = struct.Struct("HBBI")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def supported() -> bool:
    """Whether this machine's architecture is in the table."""
    return platform.system() == "Linux" and platform.machine() in _ARCHITECTURES


def build(machine: str | None = None) -> bytes:
    """Return the filter as BPF instructions. KeyError for an unknown machine."""
    column, arch = _ARCHITECTURES[machine or platform.machine()]
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_IF_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for numbers in _ALLOWED.values():
        number = numbers[column]
        if number is not None:
            code += [(_JUMP_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for pair, argument, values in _ALLOWED_IF.values():
        low = _ARGUMENTS + 8 * argument
        # An argument is 64 bits: the high half must be zero, or a pointer could pass for a small number.
        block = [(_LOAD, 0, 0, low + 4), (_JUMP_IF_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _DENY)]
        block.append((_LOAD, 0, 0, low))
        for value in values:
            block += [(_JUMP_IF_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW)]
        block.append((_RETURN, 0, 0, _DENY))
        code.append((_JUMP_IF_EQUAL, 0, len(block), pair[column]))
        code += block
    code.append((_RETURN, 0, 0, _DENY))
    return b"".join(_Instruction.pack(*instruction) for instruction in code)


class Lock:
    """The filter, ready to install: built before the fork, so that an episode only makes the calls."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        code = build()
        self._buffer = ctypes.create_string_buffer(code, len(code))
        self._program = _Program(len(code) // _Instruction.size, ctypes.addressof(self._buffer))

    def install(self) -> None:
        """Lock this process for good. OSError if the kernel refuses."""
        self._call(_PR_SET_NO_NEW_PRIVS, 1)
        self._call(_PR_SET_DUMPABLE, 0)
        self._call(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(self._program))

    def _call(self, option: int, second: int, third: int = 0) -> None:
        if self._libc.prctl(option, ctypes.c_ulong(second), ctypes.c_ulong(third), 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"prctl({option}) refused")
