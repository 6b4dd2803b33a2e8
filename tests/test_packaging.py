"""What is shipped, and what may import what."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    ["import whale.cli.app", "import whale.alternation.state, whale.alternation.decide", "import whale.tui"],
)
def test_the_command_table_and_the_state_load_nothing_heavy(statement: str) -> None:
    heavy = {"torch", "transformers", "vllm", "git", "sqlmodel", "pyarrow", "anthropic"}
    assert not loaded_by(statement) & heavy


def test_the_wheel_holds_every_package_and_its_data(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, package in (
        ("events", "whale/events"),
        ("harness_repo", "whale/harness_repo"),
        ("tui", "whale/tui"),
        ("whale", "whale"),
    ):
        for path in (ROOT / folder).rglob("*"):
            relative = path.relative_to(ROOT / folder)
            if path.is_symlink() or not path.is_file() or "__pycache__" in relative.parts:
                continue
            if set(relative.parts) & {"events", "harness_repo", "tui"} and folder == "whale":
                continue
            assert f"{package}/{relative.as_posix()}" in names
    assert not [name for name in names if name.startswith(("events/", "harness_repo/", "tui/"))]


def test_import_directions_hold() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout
