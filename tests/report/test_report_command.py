"""`whale report` from the command line: formats, sources, and what goes wrong."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import tomli_w

from tests.report.made import two_cycles
from tests.runs import WhaleProcess, toy_settings
from whale.alternation.run_folder import RunFolder
from whale.events import types as ev

COLUMNS = (
    "table,domain,system,against,seed,split,cycle,quantity,value,low,high,seeds,tasks,rollouts,select,interventions,"
    "complete"
)
HOSTILE = '<script>alert("|x|")<script>\x1b[31m'


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Exported logs of two systems, one of them with a name that tries to be code."""
    folder = tmp_path / "logs"
    folder.mkdir()
    start, half = (1, 0, 0, 0), (1, 1, 0, 0)
    two_cycles(1, start, half, (1, 1, 1, 1)).export(folder / "a.jsonl")
    two_cycles(2, start, half, (1, 1, 1, 0)).export(folder / "b.jsonl")
    two_cycles(1, start, half, (1, 1, 1, 0), schedule={"kind": "weight-only", "epochs": "0.5"}, domain=HOSTILE).export(
        folder / "c.jsonl"
    )
    return folder


def test_csv_has_the_same_columns_for_every_table_and_full_precision(logs: Path, whale_here: WhaleProcess) -> None:
    text = whale_here("report", str(logs), "--format", "csv").stdout
    assert text.splitlines()[0] == COLUMNS
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["table"] for row in rows} == {"success", "capability", "schedules", "curves", "runs"}
    success = next(
        row for row in rows if (row["table"], row["quantity"], row["domain"]) == ("success", "success", "math")
    )
    assert (success["value"], success["seeds"], success["complete"]) == ("0.875", "2", "true")


def test_json_has_what_the_csv_has(logs: Path, whale_here: WhaleProcess) -> None:
    rows = list(csv.DictReader(io.StringIO(whale_here("report", str(logs), "--format", "csv").stdout)))
    document = json.loads(whale_here("report", str(logs), "--json").stdout)
    figures = [(name, figure) for name, table in document["tables"].items() for figure in table]
    assert len(figures) == len(rows)
    for (name, figure), row in zip(figures, rows, strict=True):
        assert (name, figure["system"], str(figure["value"])) == (row["table"], row["system"], row["value"])


@pytest.mark.parametrize("form", ["text", "markdown", "html", "csv"])
def test_the_same_logs_give_the_same_bytes(form: str, logs: Path, tmp_path: Path, whale_here: WhaleProcess) -> None:
    for name in ("one", "two"):
        whale_here("report", str(logs), "--format", form, "--output", str(tmp_path / name))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


class Page(HTMLParser):
    """What a page would ask the network for, and whether its tags close."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.asked += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "srcset", "xlink:href", "data")]
        if tag not in ("meta", "br", "line", "path", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            assert self.open.pop() == tag


def test_the_page_asks_for_nothing_and_runs_nothing(logs: Path, tmp_path: Path, whale_here: WhaleProcess) -> None:
    path = tmp_path / "report.html"
    whale_here("report", str(logs), "--format", "html", "-o", str(path))
    text = path.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.asked == []
    assert page.open == []
    assert not {"script", "link", "iframe", "img", "object"} & set(page.tags)
    assert not re.search(r"https?:|@import|url\(", text)
    assert "default-src 'none'" in text
    assert page.tags.count("svg") >= 4, "a forest and curves for each of two domains"
    assert HOSTILE not in text


def test_markdown_keeps_its_columns_whatever_a_name_holds(logs: Path, whale_here: WhaleProcess) -> None:
    text = whale_here("report", str(logs), "--format", "markdown", "--table", "success").stdout
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert "\\|x\\|" in text, "the name is there"
    assert "<script" not in text
    assert "\x1b" not in text


def test_a_real_run_by_the_papers_rule_is_marked_and_its_log_has_what_the_domain_observed(
    tmp_path: Path, toy_model: Path, whale_here: WhaleProcess
) -> None:
    settings = toy_settings(toy_model)
    settings["domain"] = f"{Path(__file__).parents[1] / 'experiment' / 'acting.py'}:create"
    settings["evaluate"] |= {"select": "test"}
    settings["schedule"] = {"cycles": 2, "epochs": "0.5", "iterations": 0}
    config = tmp_path / "toy.toml"
    config.write_text(tomli_w.dumps(settings))
    shown = whale_here("run", str(config), "--name", "toy", "--quiet").stdout
    assert "the test chose the pair" in shown
    folder = RunFolder(tmp_path / "runs" / "toy")
    with folder.open_log(readonly=True) as log:
        recorded = [r.event for r in log.read()]
    evaluated = [e for e in recorded if isinstance(e, ev.Evaluated)]
    assert [(e.split, e.cycle) for e in evaluated] == [
        (split, cycle) for cycle in (0, 1, 2) for split in ("validation", "test")
    ]  # fmt: skip
    tests = [e for e in evaluated if e.split == "test"]
    best = max(tests, key=lambda e: (e.score, -e.cycle))
    assert isinstance(recorded[-1], ev.RunCompleted)
    assert (recorded[-1].cycle, recorded[-1].score) == (best.cycle, best.score)
    outcomes = [
        o for e in recorded if isinstance(e, ev.RolloutsRecorded) and e.purpose == "evaluate" for o in e.outcomes
    ]
    assert all("answer_bearing" in o.metrics for o in outcomes)
    assert all(("extraction" in o.metrics) == (o.metrics["answer_bearing"] == 1) for o in outcomes)
    text = whale_here("report", "toy").stdout
    assert text.count("‡ evaluate.select") >= 4
    assert whale_here("report", str(tmp_path / "runs")).stdout == text, "by name or by folder: the same run"


def test_an_experiments_file_brings_its_systems_names(tmp_path: Path, whale_here: WhaleProcess) -> None:
    base = {"domain": "math", "weights": {"rollouts_per_prompt": 2}}
    grid = {"seeds": [1], "base": base, "systems": {"mine": {"schedule": {"kind": "weight-only"}}, "other": {}}}
    path = tmp_path / "small.toml"
    path.write_text(tomli_w.dumps(grid))
    exported = two_cycles(1, (1, 0), (1, 0), (1, 1), schedule={"kind": "weight-only"}).export(tmp_path / "a.jsonl")
    runs = tmp_path / "runs" / "small"
    runs.mkdir()
    whale_here("events", "import", str(exported), "--name", "math-mine-s1")
    (tmp_path / "runs" / "math-mine-s1").rename(runs / "math-mine-s1")
    document = json.loads(whale_here("report", str(path), "--json", "--table", "success").stdout)
    assert {figure["system"] for figure in document["tables"]["success"]} == {"mine"}
    by_name = json.loads(whale_here("report", "small", "--json", "--table", "success").stdout)
    assert {figure["system"] for figure in by_name["tables"]["success"]} == {"weight-only"}


@pytest.mark.parametrize(
    "words, code, told",
    [
        (["nowhere"], 2, "neither a run"),
        (["logs", "--format", "pdf"], 2, "text, markdown, html, csv"),
        (["logs", "--json", "--format", "csv"], 2, "leave --format"),
        (["logs", "--table", "sucess"], 2, "there are success"),
        (["damaged.jsonl"], 4, "damaged.jsonl"),
        (["no.jsonl.gz"], 4, "no.jsonl.gz"),
        (["logs", "-o", "none/there.txt"], 1, "cannot be written"),
    ],
)
def test_what_cannot_be_reported_is_one_line(
    words: list[str], code: int, told: str, logs: Path, tmp_path: Path, whale_here: WhaleProcess
) -> None:
    text = (logs / "a.jsonl").read_text()
    (tmp_path / "damaged.jsonl").write_text(text.replace('"reward"', '"x"').replace('"passed":1', '"passed":2', 1))
    (tmp_path / "no.jsonl.gz").write_bytes(b"no gzip")
    done = whale_here("report", *words, check=False)
    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
