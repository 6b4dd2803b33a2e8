"""`whale track`: a run's curves, made anew from its log."""

import sys

from whale.alternation.run_folder import RunFolder
from whale.cli.output import print_text, printable
from whale.errors import WhaleError


def track(run: str, to: list[str]) -> None:
    """Write all points of the log to the named trackers."""
    from whale.trackers.feed import write_all
    from whale.trackers.writers import FOLDER

    folder = RunFolder.find(run)
    try:
        write_all(folder, to, lambda text: print(printable(text), file=sys.stderr))
    except WhaleError:
        raise
    except Exception as error:
        raise WhaleError(f"{folder.name}: the tracker failed: {type(error).__name__}: {error}") from error
    if "tensorboard" in to:
        print_text(f"tensorboard --logdir {folder.path / FOLDER}")
