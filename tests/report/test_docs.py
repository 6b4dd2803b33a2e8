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
from whale.report.compare.render import as_markdown
from whale.report.compare.report import TABLES, tables
from whale.report.compare.sources import find
from whale.report.compare.systems import group
from whale.report.results import pair_rows, read_results

ROOT = Path(__file__).parents[2]


def test_the_tables_of_the_results_page_are_what_the_published_logs_give() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    grouped = group(find([str(ROOT / "docs" / "results" / "embedded")]).records)
    for name in ("success", "paired", "runs"):
        text = as_markdown(tables(grouped, [name])).rstrip("\n")
        assert text in page, f"run the command on the page again: the {name} table is another one"


def test_the_table_of_what_seeds_can_show_is_what_its_command_prints() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    command = [sys.executable, "benchmarks/power.py", "docs/results/embedded"]
    table = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert table.count("\n") > 10
    assert table.rstrip("\n") in page


def test_the_tables_of_searches_and_of_the_ablation_are_what_their_logs_give() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    searches = ROOT / "docs" / "results" / "search"
    assert as_markdown(tables(group(find([str(searches)]).records), ["runs"])).rstrip("\n") in page
    logs = {"none": searches / "searchqa-search-6.jsonl.gz"}
    for path in (ROOT / "docs" / "results" / "ablation").iterdir():
        logs[path.name.split("-")[2]] = path
    for left_out, path in logs.items():
        log = MemoryLog()
        log.restore(read_file(path))
        gain = pair_rows(read_results(log))[-1].gain
        assert gain is not None
        row = f"| {left_out} | {100 * gain.gain:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}] |"
        assert row in page


def test_the_tables_of_each_side_alone_and_of_the_probes_are_what_their_logs_give() -> None:
    sides = as_markdown(tables(group(find([str(ROOT / "docs" / "results" / "sides")]).records), ["runs"]))
    assert sides.rstrip("\n") in (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    command = [sys.executable, "benchmarks/diagnose_runs.py"]
    probes = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert probes.count("\n") > 10
    assert probes.rstrip("\n") in (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


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
    systems, schedules, acceptance = (
        load_experiment(ROOT / "examples" / "paper-small" / f"{name}.toml")
        for name in ("systems", "schedules", "acceptance")
    )
    for experiment in (systems, acceptance):
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
