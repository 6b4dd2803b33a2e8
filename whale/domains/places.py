"""Files and folders that a user's option names."""

from pathlib import Path

from whale.errors import UsageError


def place(named: str, about: str) -> Path:
    """The path, `~` resolved, whether or not something is there.

    Raises UsageError, which begins with `about`, for what no path can be, or where it may not be looked.
    """
    try:
        path = Path(named).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, RuntimeError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        shown = named if len(named) < 100 else f"{named[:100]}..."
        raise UsageError(f"{about}: {shown!r} cannot be read: {reason}") from error
    return path
