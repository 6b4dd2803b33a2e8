"""SearchQA's counts from recorded rollouts, and the control."""

from collections.abc import Sequence

import pytest

from whale.domains.base import Domain, Task
from whale.domains.searchqa.domain import SearchQADomain, SearchQAOptions
from whale.domains.searchqa.report import control_report, count
from whale.rollout.types import Completion, FinishReason, ToolCall, Trajectory, Turn


def rollout(domain: Domain, task: Task, text: str, *, finish: FinishReason = "stop") -> Trajectory:
    """A rollout that searched for its question and then sampled `text`."""
    found = domain.tools(task)["search"](query=task.public["question"])
    verdict = domain.verify(task, Completion("", text))
    turn = Turn((1,), (2,), (-1.0,), finish, "w", 0, text, "", ())
    call = ToolCall(0, "search", {"query": task.public["question"]}, found)
    return Trajectory(task.id, 0, 0, (turn,), (call,), "ok", "", 0, reward=verdict.reward, metrics=verdict.metrics)


def test_counts_tell_retrieval_from_extraction() -> None:
    domain = SearchQADomain()
    task = next(t for t in domain.splits()["validation"] if t.private["relation"] == "country_of_city")
    right = f"<answer>{task.private['answers'][0]}</answer>"
    rollouts = [
        rollout(domain, task, right),
        rollout(domain, task, "<answer>nowhere</answer>"),
        rollout(domain, task, "I do not", finish="length"),
    ]
    counts = count(domain, [task], rollouts)
    assert counts["all"] == counts["1-hop"]
    row = counts["all"]
    assert (row.n, row.passed, row.formatted, row.truncated) == (3, 1, 2, 1)
    assert (row.answer_bearing, row.extracted) == (3, 1)
    with pytest.raises(KeyError):
        count(domain, [], rollouts)


def test_the_control_shows_that_a_reader_needs_its_own_passages() -> None:
    def read(domain: Domain, tasks: Sequence[Task]) -> list[Trajectory]:
        """Knows nothing, and answers right exactly where a passage holds the answer."""
        rollouts = []
        for task in tasks:
            found = domain.tools(task)["search"](query=task.public["question"])
            held = [a for p in found for a in task.private["answers"] if domain.answer_in(task, p["text"])]
            rollouts.append(rollout(domain, task, f"<answer>{held[0] if held else '?'}</answer>"))
        return rollouts

    report = control_report(read, SearchQAOptions(seed=3), limit=60)
    assert report.own["all"].n == report.control["all"].n == 60
    assert report.own["1-hop"].passed > 0.7 * report.own["1-hop"].n
    assert report.own["all"].passed == report.own["all"].extracted
    assert (report.control["all"].passed, report.control["all"].answer_bearing) == (0, 0)
