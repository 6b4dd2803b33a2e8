"""The log is on the path of every command: what it imports is what they wait for."""

import subprocess
import sys


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_event_types_and_the_package_import_no_database() -> None:
    loaded = modules_after("from whale.events import types, fold, MemoryLog, NewEvent")
    assert loaded.isdisjoint({"sqlmodel", "sqlalchemy", "pydantic", "numpy", "pytest"})


def test_opening_an_existing_log_does_not_import_sqlmodel(path: object) -> None:
    make = f"from whale.events import SqliteLog; SqliteLog({str(path)!r}).close()"
    assert "sqlmodel" in modules_after(make)  # it declares the table
    assert modules_after(make).isdisjoint({"sqlmodel", "pydantic"})


def test_every_public_name_is_there() -> None:
    import whale.events

    assert all(getattr(whale.events, name) is not None for name in whale.events.__all__)
