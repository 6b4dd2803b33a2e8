"""What a run's first event says of the code and the machine."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.runs import WhaleProcess
from whale.alternation.provenance import code_digest
from whale.alternation.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
DIGEST = "from whale.alternation.provenance import code_digest; print(code_digest())"


def test_a_run_says_what_code_and_device_it_began_with(
    toy_config: Path, tmp_path: Path, whale_here: WhaleProcess
) -> None:
    whale_here("run", str(toy_config), "--name", "toy", "--quiet")
    with RunFolder(tmp_path / "runs" / "toy").open_log(readonly=True) as log:
        meta = next(iter(log.read())).meta
    assert meta["code"] == code_digest()
    assert meta["device"] in ("cpu",) or "NVIDIA" in meta["device"]
    assert meta["dtype"] in ("float32", "bfloat16")
    assert meta["torch"]


def test_equal_code_has_one_digest_wherever_it_lies_and_any_file_changes_it(tmp_path: Path) -> None:
    for name in ("whale", "events", "harness_repo", "tui"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))

    def there() -> str:
        done = subprocess.run(
            [sys.executable, "-c", DIGEST], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    assert there() == code_digest()
    changed = [tmp_path / "whale" / "weights" / "rsft.py", tmp_path / "events" / "chain.py"]
    seen = {code_digest()}
    for path in changed:
        with path.open("a", encoding="utf-8") as file:
            file.write("\n# another line\n")
        seen.add(there())
    assert len(seen) == 3
