"""Services that a domain depends on are tried before a run exists, and a judge that dies stops a run cleanly."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.domains.servers import judge_reply, serve
from tests.domains.test_paper_searchqa import PASSAGES, row
from tests.domains.test_rows import write
from tests.runs import WhaleProcess, toy_model, whale  # noqa: F401 - fixtures


@pytest.fixture
def config(tmp_path: Path, toy_model: Path) -> dict[str, Any]:  # noqa: F811
    questions = [row(f"Who wrote book {n}?", [f"Author {n}"], "nq") for n in range(20)]
    write(tmp_path / "data" / "train.jsonl", questions)
    write(tmp_path / "data" / "test.jsonl", [row(f"Where is town {n}?", ["Here"], "nq") for n in range(3)])
    write(tmp_path / "wiki.jsonl", PASSAGES)
    return {
        "domain": "searchqa",
        "model": str(toy_model),
        "domain_options": {
            "size": "paper", "source": str(tmp_path / "data"), "test_sets": ["nq"], "harness": 2, "validation": 4,
            "retrieval": "bm25", "corpus": str(tmp_path / "wiki.jsonl"),
        },
        "engine": {"device": "cpu", "threads": 1, "micro_batch": 2},
        "sampling": {"max_generated_tokens": 48, "max_tokens_per_turn": 16},
        "weights": {"batch": 2, "rollouts_per_prompt": 1, "minibatch": 2},
        "schedule": {"cycles": 1, "epochs": "0.1", "iterations": 0},
        "evaluate": {"samples": 1},
    }  # fmt: skip


def test_a_dead_service_is_found_before_the_run_exists(
    whale: WhaleProcess,  # noqa: F811
    config: dict[str, Any],
    tmp_path: Path,
) -> None:
    config["domain_options"] |= {"retrieval": "remote", "url": "http://127.0.0.1:9/retrieve", "retries": 0}
    (tmp_path / "c.toml").write_text(tomli_w.dumps(config))
    done = whale("run", "c.toml", "--name", "dead", check=False)
    assert done.returncode == 1
    assert "http://127.0.0.1:9/retrieve does not answer" in done.stderr
    assert not (tmp_path / "runs" / "dead").exists()


def test_a_judge_that_dies_stops_the_run_and_resume_goes_on_without_a_lost_or_false_rollout(
    whale: WhaleProcess,  # noqa: F811
    config: dict[str, Any],
    tmp_path: Path,
) -> None:
    # The h0 of this run opens the tag itself, so that the random model's words reach the judge.
    prompt_only = {"provider": "openai", "model": "m", "retries": 0, "cache": str(tmp_path / "verdicts")}
    with serve(lambda request: judge_reply(request, "CORRECT")) as server:
        judge = {**prompt_only, "base_url": f"{server.url}/v1"}
        config["domain"] = f"{tmp_path}/judged.py:create"
        config["domain_options"]["judge"] = judge
        (tmp_path / "judged.py").write_text(JUDGED)
        (tmp_path / "c.toml").write_text(tomli_w.dumps(config))
        whale("run", "c.toml", "--name", "first", "--quiet")
        asked = len(server.requests)
        assert asked > 4, "the preflight and several verdicts"
        (tmp_path / "verdicts").rename(tmp_path / "old")
        server.failing += [(200, ""), (200, ""), (500, "{}")]
        stopped = whale("run", "c.toml", "--name", "second", "--quiet", check=False)
        assert stopped.returncode == 1 and "whale resume" in stopped.stderr, stopped.stderr
        whale("resume", "second", "--quiet")
    first, second = (json.loads(whale("status", name, "--json").stdout) for name in ("first", "second"))
    assert second["status"] == "completed"
    for name in ("success", "n", "weights", "metrics"):
        assert [pair[name] for pair in second["pairs"]] == [pair[name] for pair in first["pairs"]]
    assert second["total"]["rollouts"] == first["total"]["rollouts"]


JUDGED = """
from whale.domains.searchqa.paper.domain import PaperOptions, PaperSearchQA

HARNESS = b'''
from whale.harness import Harness

class Tagged(Harness):
    async def run(self, task, model, tools):
        asked = [{"role": "user", "content": task["question"]}]
        return await model.chat(asked, prefix="<answer>", stop=["</answer>"], max_tokens=8)
'''

class Judged(PaperSearchQA):
    def h0(self):
        return {"harness.py": HARNESS, "prompts/system.md": b""}

    def verify(self, task, completion):
        # The random model never closes the tag.
        from whale.rollout.types import Completion
        return super().verify(task, Completion(completion.prefix, completion.sampled + "</answer>"))

def create(options):
    return Judged(PaperOptions.parse({k: v for k, v in options.items() if k != "size"}))
"""
