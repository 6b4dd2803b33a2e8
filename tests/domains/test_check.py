"""`whale domains`: what breaks the contract is found, what keeps it passes, and the written domain works."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.domains.test_simple import rows
from tests.runs import WhaleProcess, toy_model, whale  # noqa: F401 - fixtures
from tests.toy.domain import ToyDomain
from whale.domains.base import SPLITS, Split, Task, Verdict
from whale.domains.check import THERE, Finding, check_domain
from whale.domains.check_rules import H0_RUNS, HIDDEN, REFERENCES, RULES, TOTAL
from whale.domains.math.domain import create as math
from whale.domains.simple import SimpleDomain, qa_domain
from whale.rollout.types import Completion


def broken_rules(make: Any) -> list[str]:
    return [finding.rule for finding in check_domain(make, run_h0=False) if not finding.holds]


def make() -> SimpleDomain:
    return qa_domain("d", rows())


def test_a_good_domain_breaks_no_rule() -> None:
    assert broken_rules(make) == []
    assert broken_rules(lambda: math({"weight": 20, "harness": 8, "validation": 8, "test": 8})) == []


class Twisted(SimpleDomain):
    """A domain with one fault, by the name of the test."""

    fault = ""
    calls = 0

    def splits(self) -> Mapping[Split, Any]:
        splits = dict(self.tasks)
        if self.fault == "empty":
            splits["test"] = ()
        if self.fault == "shared":
            splits["test"] = (*splits["test"], replace(splits["weight"][0], id="other"))
        if self.fault == "twice":
            splits["test"] = (*splits["test"], splits["test"][0])
        if self.fault == "json":
            splits["test"] = (*splits["test"], Task("odd", {"question": "set"}, {"answer": {1, 2}}))
        if self.fault == "open":
            splits = {
                split: [replace(task, public={**task.public, "solution": task.private["answer"]}) for task in tasks]
                for split, tasks in splits.items()
            }
        return splits

    def fingerprint(self) -> str:
        return str(id(self)) if self.fault == "fingerprint" else super().fingerprint()

    def verify(self, task: Task, completion: Completion) -> Verdict:
        Twisted.calls += 1
        if self.fault == "raises" and len(completion.sampled) > 10**5:
            raise RecursionError
        if self.fault == "distance" and completion.sampled == "<answer>1000</answer>":
            return Verdict(-998.0, {})
        if self.fault == "large":
            return Verdict(2.0)
        if self.fault == "random":
            return Verdict(0.0, {"calls": float(Twisted.calls)})
        if self.fault == "lenient":
            return Verdict(float("answer" in completion.sampled))
        return super().verify(task, completion)

    def leak(self, text: str) -> str | None:
        return None if self.fault == "blind" else "always" if self.fault == "jumpy" else super().leak(text)

    def h0(self) -> Mapping[str, bytes]:
        return {"harness.py": b"import os"} if self.fault == "harness" else super().h0()


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("empty", "four splits"), ("shared", "no two splits share"), ("twice", "an id of its own"),
        ("json", "are JSON"), ("fingerprint", "fingerprint"), ("raises", "judges any text"),
        ("distance", "the verifier judges any text, the same way each time, in bounded time"),
        ("large", "judges any text"), ("random", "judges any text"), ("lenient", "noise does not pass"),
        ("blind", "hidden question"), ("jumpy", "hidden question"), ("open", "no public field is the answer"),
        ("harness", "h0 is a valid harness"),
    ],
)  # fmt: skip
def test_each_fault_is_found(fault: str, rule: str) -> None:
    def twisted() -> Twisted:
        good = make()
        domain = Twisted(good.name, good.tasks, good.whole, None, 1.0, good.harness)
        domain.fault = fault
        return domain

    assert any(rule in broken for broken in broken_rules(twisted)), broken_rules(twisted)


def finding_of(rule: str, make: Callable[[], Any]) -> Finding:
    (found,) = (finding for finding in check_domain(make, run_h0=False) if finding.rule == rule)
    return found


@pytest.mark.parametrize("call", ["make", "splits", "fingerprint", "verify", "leak", "answer_in"])
def test_a_call_that_never_ends_is_named_with_its_limit_and_the_other_rules_go_on(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whale.domains.check.MAKING_SECONDS", 1.0)
    monkeypatch.setattr("whale.domains.check.CALL_SECONDS", 1.0)
    monkeypatch.setattr("whale.domains.check_rules.VERIFY_SECONDS", 1.0)

    def forever(*_: object) -> Any:
        while True:
            pass

    def hanging() -> Any:
        domain = forever() if call == "make" else make()
        setattr(domain, call, forever)
        domain.verify_seconds = 1.0
        return domain

    found = list(check_domain(hanging, run_h0=False))
    broken = [finding for finding in found if not finding.holds]
    assert broken and "did not end within 1 s: " in broken[0].detail
    if call in ("make", "splits"):
        assert [finding.rule for finding in found] == [THERE]
    else:
        assert {finding.rule for finding in found} == {THERE, *RULES} - {H0_RUNS}
    if call == "verify":
        assert (
            "task" in broken[0].detail
            and [f.detail for f in broken[1:]] == ["not tried, since a verdict did not end"] * 3
        )


def test_a_verifier_that_ends_its_process_is_a_finding() -> None:
    def dying() -> Any:
        domain = make()
        domain.verify = lambda *_: os._exit(7)  # type: ignore[method-assign]
        return domain

    assert "ended its process with code 7" in finding_of(TOTAL, dying).detail


def test_a_verifier_that_refuses_the_answers_of_its_own_data_is_found_with_a_count_and_the_first_task() -> None:
    def strict() -> SimpleDomain:
        return qa_domain("d", rows(), verify=lambda row, text: text == row["answer"] and int(text) % 4 == 0)

    found = finding_of(REFERENCES, strict)
    assert not found.holds and found.detail.startswith("20 of 40 tasks fail; the first is ")
    first = next(task for split in SPLITS for task in strict().splits()[split] if int(task.private["answer"]) % 4)
    assert first.id in found.detail and f"<answer>{first.private['answer']}</answer>" in found.detail
    assert finding_of(REFERENCES, make).detail == "40 tasks"
    raising = qa_domain("d", rows(), verify=lambda row, text: 1 / (int(text) - int(row["answer"])))
    found = finding_of(REFERENCES, lambda: raising)
    assert found.detail.startswith("40 of 40 tasks fail") and "ZeroDivisionError" in found.detail
    aliases = [{**row, "answer": [row["answer"], "</answer>"]} for row in rows()]
    assert not finding_of(REFERENCES, lambda: qa_domain("d", aliases)).holds


def test_a_choice_among_options_or_a_text_to_copy_from_gives_nothing_away() -> None:
    letters = [
        {"question": f"Write word{chr(97 + n)} in capital letters.", "answer": f"WORD{chr(65 + n)}"} for n in range(26)
    ]
    exact: dict[str, Any] = {"verify": lambda row, text: text == row["answer"]}
    assert broken_rules(lambda: qa_domain("d", letters)) == []
    assert broken_rules(lambda: qa_domain("d", letters, **exact)) == []
    capitals = [{**row, "question": row["answer"].lower()} for row in letters]
    assert broken_rules(lambda: qa_domain("d", capitals, **exact)) == []
    assert broken_rules(lambda: qa_domain("d", capitals)) == [HIDDEN], "copying the question passes"
    choice = [{"question": f"Which is even: {n}, {n + 1} or {n + 3}?", "answer": str(n)} for n in range(100, 140, 2)]
    assert broken_rules(lambda: qa_domain("d", choice)) == []
    assert "18 of 18 questions" in finding_of(HIDDEN, lambda: qa_domain("d", choice)).detail


def test_options_in_a_list_are_a_choice_and_a_list_of_one_is_the_answer() -> None:
    def listed(*more: str) -> SimpleDomain:
        domain = make()
        domain.tasks = {
            split: [replace(t, public={**t.public, "options": [t.private["answer"], *more]}) for t in tasks]
            for split, tasks in domain.tasks.items()
        }
        return domain

    assert finding_of(HIDDEN, lambda: listed("other")).holds
    assert not finding_of(HIDDEN, listed).holds


def test_a_domain_without_references_is_not_blamed() -> None:
    assert finding_of(REFERENCES, lambda: ToyDomain({})).detail.startswith("not tried")


def test_what_a_domain_prints_does_not_spoil_json(whale: WhaleProcess, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "loud.py").write_text(
        "from whale.domains.simple import qa_domain\n"
        "def create(options):\n"
        "    print('loading \\ud800')\n"
        "    return qa_domain('loud', [{'question': f'q {n}', 'answer': 'a'} for n in range(40)])\n"
    )
    done = whale("domains", "check", "loud.py:create", "--fast", "--json")
    assert all(finding["holds"] for finding in json.loads(done.stdout)) and "loading" in done.stderr


def test_a_new_domain_works_as_it_is_written(whale: WhaleProcess, tmp_path: Path) -> None:  # noqa: F811
    assert "domains check plants.py:create" in whale("domains", "new", "plants").stdout
    found = json.loads(whale("domains", "check", "plants.py:create", "--json").stdout)
    assert all(finding["holds"] for finding in found) and "h0 runs" in found[-1]["rule"]
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_plants.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert "3 passed" in tested.stdout, tested.stdout + tested.stderr
    again = whale("domains", "new", "plants", check=False)
    assert (again.returncode, "already" in again.stderr) == (2, True)
    assert whale("domains", "new", "Bad-Name", check=False).returncode == 2
    assert "math" in whale("domains", "list").stdout


def test_a_broken_domain_exits_1_and_names_the_rule(whale: WhaleProcess, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "bad.py").write_text(
        "from whale.domains.simple import qa_domain\n"
        "def create(options):\n"
        "    rows = [{'question': f'q {n}', 'answer': 'a'} for n in range(40)]\n"
        "    return qa_domain('bad', rows, verify=lambda row, text: 1 / len(text.strip('x')))\n"
    )
    done = whale("domains", "check", "bad.py:create", "--fast", check=False)
    assert done.returncode == 1
    assert "FAIL  the verifier judges any text" in done.stdout
    assert "rules do not hold" in done.stderr
    assert whale("domains", "check", "nope", check=False).returncode == 2


def test_a_whale_cycle_runs_on_the_example_of_twenty_lines(
    whale: WhaleProcess,  # noqa: F811
    toy_model: Path,  # noqa: F811
) -> None:
    example = Path("examples/own").resolve()
    whale(
        "run", str(example / "weekdays.toml"), "--name", "own", "--quiet",
        "--set", f"domain={example}/weekdays.py:create", "--set", f"model={toy_model}",
        "--set", "domain_options.weight=6", "--set", "domain_options.harness=3",
        "--set", "domain_options.validation=3", "--set", "weights.batch=2", "--set", "engine.threads=1",
        "--set", "search.candidates=1",
    )  # fmt: skip
    status = json.loads(whale("status", "own", "--json").stdout)
    assert status["status"] == "completed"
    assert [pair["n"] for pair in status["pairs"]] == [3, 3]
    rows = json.loads(whale("metrics", "own", "--json").stdout)
    assert {row["cycle"] for row in rows} == {0, 1} and {row["group"] for row in rows} >= {"all", "later"}
    for pair in status["pairs"]:
        (whole,) = (row for row in rows if (row["cycle"], row["group"]) == (pair["cycle"], "all"))
        assert (whole["figures"]["n"], whole["low"], whole["high"]) == (3, pair["low"], pair["high"])
        assert whole["figures"]["passed"] / 3 == pair["success"]
        parts = [r["figures"]["n"] for r in rows if r["cycle"] == pair["cycle"] and r["group"] != "all"]
        assert sum(parts) == 3
    assert "95 % interval" in whale("metrics", "own").stdout
