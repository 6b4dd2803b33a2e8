"""`whale`, and `python -m whale.cli`: one place where failures become a line and an exit code.

Exit codes: 0 ok, 1 failure, 2 usage, 3 conflict, 4 corrupt log, 130 interrupted.
"""

import errno
import os
import sys
import traceback
from pathlib import Path

from whale.errors import WhaleError

# Spinning OpenMP threads stall when a core is contested. Read when torch is loaded, so set before.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if not sys.stderr or not sys.stderr.isatty():
    os.environ.setdefault("TQDM_DISABLE", "1")  # bars of libraries, where no terminal shows them


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    import typer

    from whale.cli.app import app

    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - lives as long as the process
    try:
        result = app(args=arguments, prog_name="whale", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except WhaleError as error:
        return _fail(f"{error}{_kept(error.details)}", error.exit_code)
    except typer.Exit as error:
        # Typer makes Exit(130) of a KeyboardInterrupt that nobody caught.
        return _fail("interrupted", 130) if error.exit_code == 130 else int(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except (BrokenPipeError, SystemExit):
        # The reader went away (`whale events list demo | head`): not a failure, though Typer makes it exit(1).
        # Nothing may be flushed again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return _fail(f"no space left on {error.filename or 'the output'}: make room", 1)
        # Typer's usage errors, whichever Click they come from: they print themselves.
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            error.show(file=sys.stderr)
            # To `git bisect run`, 2 is a verdict: a mistyped option must stop it instead.
            words = sys.argv[1:] if arguments is None else arguments
            if words[:1] == ["score"]:
                from whale.cli.store_commands import BISECT_STOPS

                return BISECT_STOPS
            return int(error.exit_code)
        code = _store_failure(error)
        return _unexpected(error) if code is None else _fail(str(error), code)


def _store_failure(error: Exception) -> int | None:
    """Exit code of an expected failure of the log or of the harness store, which know no exit codes."""
    if "whale.events" in sys.modules:
        from whale.events import CorruptLog, KeyConflict, LogBusy, LogError, UnknownEvent, VersionConflict

        if isinstance(error, CorruptLog | UnknownEvent):
            return 4
        if isinstance(error, VersionConflict | KeyConflict | LogBusy):
            return 3
        if isinstance(error, LogError):
            return 1
    if "whale.harness_repo" in sys.modules:
        from whale.harness_repo import RepoError

        if isinstance(error, RepoError):
            return 1
    return None


def _fail(message: str, code: int) -> int:
    from whale.cli.output import printable

    print(f"whale: {printable(message)}", file=sys.stderr)
    return code


def _unexpected(error: Exception) -> int:
    summary = str(error).splitlines()[0] if str(error) else type(error).__name__
    kept = _kept("".join(traceback.format_exception(error)))
    return _fail(f"unexpected {type(error).__name__}: {summary}{kept}", 1)


def _kept(text: str) -> str:
    """Write a traceback into the error log; returns what the line says of it."""
    if not text:
        return ""
    path = Path(os.environ.get("WHALE_ERROR_LOG") or "whale-error.log").resolve()
    try:
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text.rstrip("\n") + "\n\n")
    except OSError:
        return f"\n{text}"
    return f"; the whole error is in {path}"


if __name__ == "__main__":
    main()
