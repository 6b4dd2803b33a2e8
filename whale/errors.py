"""The failures that a user can meet, and the exit code of each.

A `WhaleError` is expected: the CLI prints it as one line and exits with its code. Anything else is a fault
of ours: the CLI keeps its traceback in a log file. A bad *rollout* is neither; it is data
(`whale.rollout.types.Status`).
"""

from typing import Self


class WhaleError(Exception):
    """What is wrong, where, and what to do next, in one line."""

    exit_code = 1
    details: str = ""
    """More than the line, for the error log: the traceback of code that the user brought."""

    def with_details(self, text: str) -> Self:
        """Return the error, which keeps `text` for the error log."""
        self.details = text
        return self


class UsageError(WhaleError):
    """Bad input: a config key, a name, a path."""

    exit_code = 2


class ConflictError(WhaleError):
    """Another process holds what was asked for."""

    exit_code = 3


class Interrupted(WhaleError):
    """The user stopped it."""

    exit_code = 130


class CorruptLogError(WhaleError):
    """The log, or something that it names, is not what was written."""

    exit_code = 4
