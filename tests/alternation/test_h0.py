"""A run whose first harness cannot be: said before anything is paid."""

from pathlib import Path

from tests.runs import WhaleProcess
from whale.alternation.run_folder import RunFolder


def test_a_search_space_without_h0_is_refused_before_anything_is_paid(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    rule = tmp_path / "rule.py"
    rule.write_text("def never(files, base):\n    return 'not this one'\n", encoding="utf-8")
    done = whale_here(
        "run", str(toy_config), "--name", "toy", "--quiet", "--set", f"search.space={rule}:never", check=False
    )
    assert done.returncode == 1
    assert "h0, the domain's first harness, cannot be run: not this one" in done.stderr
    assert RunFolder(tmp_path / "runs" / "toy").state().totals == {}
