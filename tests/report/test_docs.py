"""What the pages say of experiments and reports is what the code does."""

import re
import subprocess
import sys
from pathlib import Path

from whale.domains.registry import load_domain
from whale.events import MemoryLog
from whale.events.transfer import read_file
from whale.experiment.budget import check_matched
from whale.experiment.grid import load_experiment
from whale.report.compare.report import TABLES

ROOT = Path(__file__).parents[2]


def test_each_table_is_what_the_command_above_it_prints() -> None:
    command = [sys.executable, "benchmarks/pages.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert page.count("<!-- output -->") == page.count("<!-- end -->") > 10
    assert not re.findall(r"<!-- output -->\s*<!-- end -->", page)


def test_each_interval_in_the_prose_of_the_results_stands_in_a_table_with_its_value() -> None:
    """But for its sign, which a sentence may turn; a paragraph with a command of its own has its figures from there."""
    number, page = r"[+-]?(\d+\.\d+)", (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    figure = re.compile(rf"{number}(?: points| %)?,? \[{number}, {number}\]")
    tables = [line for line in page.splitlines() if line.startswith("|")]
    prose = [line for line in page.splitlines() if not line.startswith("|")]
    cells = {cell.strip() for line in tables for cell in line.split("|")}
    shown = {(a, *sorted((b, c))) for cell in cells for a, b, c in figure.findall(cell)}
    readme = re.findall(r"^.*results\.md\): four systems.*?\n\n", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    paragraphs = re.split(r"\n(?=\n|- |#)", "\n".join(prose)) + readme
    told = [
        (a, *sorted((b, c)), paragraph[:60])
        for paragraph in paragraphs
        if "`python benchmarks/" not in paragraph
        for a, b, c in figure.findall(paragraph)
    ]
    assert len(told) > 25
    assert [figures for figures in told if figures[:3] not in shown] == []


def test_every_published_log_is_whole_and_they_stay_small() -> None:
    logs = sorted((ROOT / "docs" / "results").rglob("*.jsonl.xz"))
    assert len(logs) > 200
    assert sum(path.stat().st_size for path in logs) < 12e6
    for path in logs:
        head = MemoryLog().restore(read_file(path))  # refuses a byte that is not what was hashed
        assert head.position > 50, path


def test_each_test_that_the_schedules_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")))
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"def (test_\w+)\(", source))
    assert len(named) > 20
    assert named <= there


def test_the_experiments_page_names_every_table() -> None:
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(TABLES)


def test_the_grid_on_the_experiments_page_can_be_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "page.toml"
    path.write_text(example, encoding="utf-8")
    experiment = load_experiment(path)
    check_matched(experiment)
    assert len(experiment.cells) == 12
    for cell in experiment.cells[:4]:
        assert load_domain(cell.config.domain, cell.config.domain_options).name == cell.domain


def test_the_example_compares_all_systems_at_equal_budgets() -> None:
    experiment = load_experiment(ROOT / "examples" / "compare-small.toml")
    check_matched(experiment)
    assert {cell.system for cell in experiment.cells} == {
        "weight-only", "harness-only", "stagewise", "fst", "whale", "adaptive"
    }  # fmt: skip
    assert len({cell.seed for cell in experiment.cells}) > 1


def test_the_experiments_of_the_paper_at_small_scale_can_be_run() -> None:
    systems, schedules, acceptance, sides, explanations = (
        load_experiment(ROOT / "examples" / "paper-small" / f"{name}.toml")
        for name in ("systems", "schedules", "acceptance", "sides", "explanations")
    )
    assert {cell.config.weights.learning_rate for cell in explanations.cells} == {3e-5, 1e-4}
    for experiment in (systems, acceptance, sides):
        check_matched(experiment)
    assert {(cell.domain, cell.system) for cell in systems.cells} == {
        (domain, system)
        for domain in ("searchqa", "math", "chess")
        for system in ("weight-only", "harness-only", "fst", "whale")
    }
    assert {cell.config.schedule.kind for cell in schedules.cells} == {"fixed", "stagewise", "adaptive"}
    assert {cell.config.search.acceptance for cell in acceptance.cells} == {"archive-best", "racing", "confirm"}
    for cell in {cell.domain: cell for cell in systems.cells}.values():
        assert load_domain(cell.config.domain, cell.config.domain_options).name == cell.domain
