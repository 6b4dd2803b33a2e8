"""A proposer's session in a whole run, against a local server: recorded, counted, and resumed after a kill."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.runs import TOY, WhaleProcess, toy_settings
from tests.search.messages_server import Answer, call, messages_server
from whale.alternation.run_folder import RunFolder
from whale.events import types as ev


def script(toy: str) -> list[Answer]:
    texts: dict[str, Any] = dict.fromkeys(("hypothesis", "axis", "changes", "critique"), "words")
    return [
        Answer([call("read_file", path="trajectories/h0.jsonl"), call("new_draft", draft="one", parent="h0")]),
        Answer([call("write_file", draft="one", path="harness.py", content=toy + "\n# one\n")]),
        Answer([call("try_draft", draft="one", tasks=2)]),
        Answer([call("submit_draft", draft="one", title="one", **texts)]),
        Answer([call("finish")]),
    ]


def config(path: Path, model: Path, base_url: str, **search: Any) -> Path:
    settings: dict[str, Any] = toy_settings(model)
    settings["schedule"] = {"cycles": 1, "epochs": "0.4", "iterations": 1}
    settings["evaluate"] = {"samples": 1}
    settings["search"] = {
        "proposer": "anthropic", "candidates": 2,
        "options": {"model": "played", "base_url": base_url, "patience": 1.0}, **search,
    }  # fmt: skip
    path.write_text(tomli_w.dumps(settings), encoding="utf-8")
    return path


def events(run: Path) -> list[ev.Event]:
    with RunFolder(run).open_log(readonly=True) as log:
        log.verify()
        return [recorded.event for recorded in log.read()]


def test_a_session_is_recorded_with_its_cost_its_trials_and_its_transcript(
    whale_here: WhaleProcess, toy_model: Path, tmp_path: Path
) -> None:
    toy = (TOY.parent / "h0" / "harness.py").read_text()
    with messages_server(script(toy)) as played:
        whale_here("run", str(config(tmp_path / "c.toml", toy_model, played.base_url)), "--name", "s", "--quiet")
        requests = len(played.requests)
    told = events(tmp_path / "runs" / "s")
    replies = [fact for fact in told if isinstance(fact, ev.ProposerReplied)]
    (ended,) = [fact for fact in told if isinstance(fact, ev.ProposerSessionEnded)]
    assert len(replies) == requests == 5
    assert (ended.outcome, ended.proposed, ended.turns) == ("submitted", 1, 5)
    trials = [fact for fact in told if isinstance(fact, ev.RolloutsRecorded) and fact.purpose == "try"]
    assert [len(fact.outcomes) for fact in trials] == [2]
    assert all(outcome.task.startswith("weight") for fact in trials for outcome in fact.outcomes)
    folder = RunFolder(tmp_path / "runs" / "s")
    assert b"try_draft" in folder.artifacts.get(ended.artifact)
    assert folder.state().totals["try"].rollouts == 2
    assert "c001-i01-m1" in folder.state().candidates
    whale_here("fork", "s", "--name", "copy")
    shown = whale_here("show", "s", "c001-i01-m1").stdout
    assert "\n  changes: words\n    Self-critique: words\n  tree: " in shown, "under its name, no fact of its own"
    status = whale_here("status", "s").stdout
    assert "proposer: 1 session, 650 tokens, dollars not known without prices" in status
    copy = RunFolder(tmp_path / "runs" / "copy")
    assert copy.artifacts.get(ended.artifact), "a copy of the run has its sessions too"
    folder.artifacts.path(ended.artifact).unlink()
    assert whale_here("replay", "s", check=False).returncode == 4, "a session that is lost is said"


def test_killed_in_mid_session_a_run_asks_only_for_the_replies_that_it_has_not(
    whale_here: WhaleProcess, toy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM here, at the session's second reply; then a process that dies between a reply and its tools."""
    from whale.alternation import workbench

    toy = (TOY.parent / "h0" / "harness.py").read_text()
    record = workbench.RunWorkbench.record
    killed: list[int] = []

    def record_and_stop(self: workbench.RunWorkbench, turn: int, *rest: Any) -> None:
        record(self, turn, *rest)
        if turn == 2 and not killed:
            killed.append(turn)
            os.kill(os.getpid(), signal.SIGTERM)
        if turn == 3 and len(killed) == 1:
            killed.append(turn)
            raise KeyboardInterrupt  # nothing after the recorded reply is done

    monkeypatch.setattr(workbench.RunWorkbench, "record", record_and_stop)
    with messages_server(script(toy)) as played:
        path = str(config(tmp_path / "c.toml", toy_model, played.base_url))
        whale_here("run", path, "--name", "k", "--quiet", check=False)
        assert len(played.requests) == 2
        assert whale_here("resume", "k", "--quiet", check=False).returncode == 130
        assert len(played.requests) == 3
        whale_here("resume", "k", "--quiet")
        assert len(played.requests) == 5
    told = events(tmp_path / "runs" / "k")
    assert [fact.turn for fact in told if isinstance(fact, ev.ProposerReplied)] == [1, 2, 3, 4, 5]
    assert sum(isinstance(fact, ev.RolloutsRecorded) and fact.purpose == "try" for fact in told) == 1
    assert killed == [2, 3]


def test_a_service_that_stays_overloaded_stops_the_run_and_resume_pays_only_what_is_missing(
    whale_here: WhaleProcess, toy_model: Path, tmp_path: Path
) -> None:
    toy = (TOY.parent / "h0" / "harness.py").read_text()
    whole = script(toy)
    with messages_server([*whole[:2], Answer(status=529)], forever=True) as played:
        path = str(config(tmp_path / "c.toml", toy_model, played.base_url))
        failed = whale_here("run", path, "--name", "o", "--quiet", check=False)
        assert failed.returncode == 1
        assert "529" in failed.stderr and "whale resume" in failed.stderr and "Traceback" not in failed.stderr
        told = events(tmp_path / "runs" / "o")
        assert not [fact for fact in told if isinstance(fact, ev.HarnessProposed) and fact.candidate != "h0"]
        assert sum(isinstance(fact, ev.RunInterrupted) for fact in told) == 1
        played.answers = whole[2:]
        before = len(played.requests)
        whale_here("resume", "o", "--quiet")
        assert len(played.requests) - before == 3
    told = events(tmp_path / "runs" / "o")
    assert [fact.turn for fact in told if isinstance(fact, ev.ProposerReplied)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("fault", ["key", "address"])
def test_a_wrong_key_or_address_is_found_before_anything_is_paid_and_the_run_goes_on_once_it_is_mended(
    fault: str, whale_here: WhaleProcess, toy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = (TOY.parent / "h0" / "harness.py").read_text()
    monkeypatch.setenv("MY_KEY", "wrong")
    run = tmp_path / "runs" / "w"
    with messages_server(script(toy)) as played:
        played.key = "right"
        address = played.base_url if fault == "key" else "http://127.0.0.1:9"
        options = {"model": "played", "base_url": address, "api_key_env": "MY_KEY"}
        path = config(tmp_path / "c.toml", toy_model, address, options=options)
        failed = whale_here("run", str(path), "--name", "w", "--quiet", check=False)
        assert failed.returncode == 1 and "Traceback" not in failed.stderr
        assert ("MY_KEY" if fault == "key" else "http://127.0.0.1:9") in failed.stderr
        assert "whale resume" in failed.stderr
        assert not events(run), "no rollout, no start"
        monkeypatch.setenv("MY_KEY", "right")
        whale_here("resume", "w", "--quiet", "--set", f"search.options.base_url={played.base_url}")
        assert len(played.requests) == 5
    assert any(isinstance(fact, ev.ProposerSessionEnded) for fact in events(run))


def test_in_a_prompt_search_a_character_elsewhere_is_recorded_as_invalid_and_a_new_prompt_is_scored(
    whale_here: WhaleProcess, toy_model: Path, tmp_path: Path
) -> None:
    toy = (TOY.parent / "h0" / "harness.py").read_text()
    texts: dict[str, Any] = dict.fromkeys(("hypothesis", "axis", "changes", "critique"), "words")
    played_by_hand = [
        Answer([call("new_draft", draft="code", parent="h0"), call("new_draft", draft="words", parent="h0")]),
        Answer([call("write_file", draft="code", path="harness.py", content=toy + " ")]),
        Answer([call("write_file", draft="words", path="prompts/system.md", content="Réponds ! 漢字\n")]),
        Answer([call("submit_draft", draft="code", title="code", **texts)]),
        Answer([call("submit_draft", 1, draft="words", title="words", **texts)]),
        Answer([call("finish")]),
    ]
    with messages_server(played_by_hand) as played:
        path = str(config(tmp_path / "c.toml", toy_model, played.base_url, space="prompts"))
        whale_here("run", path, "--name", "p", "--quiet")
    found = {c.title: c for c in RunFolder(tmp_path / "runs" / "p").state().candidates.values()}
    assert found["code"].valid is False and not found["code"].scores
    assert "harness.py was changed" in found["code"].reason
    assert found["words"].valid is True and found["words"].scores


def test_gepa_in_a_run_commits_what_it_hands_over_and_a_kill_costs_nothing_twice(
    whale_here: WhaleProcess, toy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gepa", reason="the extra `gepa` is not installed")
    from whale.alternation import workbench

    record = workbench.RunWorkbench.record
    killed: list[int] = []

    def record_and_die(self: workbench.RunWorkbench, turn: int, *rest: Any) -> None:
        record(self, turn, *rest)
        if not killed:
            killed.append(turn)
            raise KeyboardInterrupt

    monkeypatch.setattr(workbench.RunWorkbench, "record", record_and_die)
    replies = [Answer([{"type": "text", "text": f"```\nText {n}\n```"}], "end_turn") for n in range(3)]
    with messages_server(replies) as played:
        options = {"model": "played", "base_url": played.base_url, "test": False, "minibatch": 2, "steps": 3}
        path = config(
            tmp_path / "c.toml", toy_model, played.base_url,
            proposer="gepa", candidates=1, space="prompts", options=options,
        )  # fmt: skip
        path.write_text(path.read_text().replace("iterations = 1", "iterations = 2"))
        assert whale_here("run", str(path), "--name", "g", "--quiet", check=False).returncode == 130
        asked = len(played.requests)
        whale_here("resume", "g", "--quiet")
    told = events(tmp_path / "runs" / "g")
    paid = [(fact.iteration, fact.turn) for fact in told if isinstance(fact, ev.ProposerReplied)]
    assert asked == 1 and len(played.requests) == len(paid) == len(set(paid))
    proposed = [fact for fact in told if isinstance(fact, ev.HarnessProposed) and fact.proposer == "gepa"]
    committed = {fact.candidate for fact in told if isinstance(fact, ev.HarnessCommitted)}
    assert proposed and {fact.candidate for fact in proposed} <= committed
    trials = [fact for fact in told if isinstance(fact, ev.RolloutsRecorded) and fact.purpose == "try"]
    assert trials and all(outcome.task.startswith("weight") for fact in trials for outcome in fact.outcomes)
    state = RunFolder(tmp_path / "runs" / "g").state()
    assert all(state.candidates[fact.candidate].valid for fact in proposed)


def test_claude_code_in_a_run_is_recorded_and_goes_on_after_a_stop(
    whale_here: WhaleProcess, toy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("claude_agent_sdk", reason="the extra `claude-code` is not installed")
    from whale.alternation import workbench

    record = workbench.RunWorkbench.record
    stopped: list[int] = []

    def record_and_stop(self: workbench.RunWorkbench, turn: int, *rest: Any) -> None:
        record(self, turn, *rest)
        if turn == 3 and not stopped:
            stopped.append(turn)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(workbench.RunWorkbench, "record", record_and_stop)
    toy = (TOY.parent / "h0" / "harness.py").read_text()
    script_of_ours = script(toy)
    for answer in script_of_ours:
        answer.blocks = [{**block, "name": f"mcp__whale__{block['name']}"} for block in answer.blocks]
    with messages_server(script_of_ours) as played:
        path = str(config(tmp_path / "c.toml", toy_model, played.base_url, proposer="claude-code"))
        whale_here("run", path, "--name", "cc", "--quiet", check=False)
        assert len(played.requests) == 3
        whale_here("resume", "cc", "--quiet")
        assert len(played.requests) == 5
    told = events(tmp_path / "runs" / "cc")
    assert [fact.turn for fact in told if isinstance(fact, ev.ProposerReplied)] == [1, 2, 3, 4, 5]
    (ended,) = [fact for fact in told if isinstance(fact, ev.ProposerSessionEnded)]
    assert (ended.outcome, ended.proposed) == ("submitted", 1)
    assert sum(isinstance(fact, ev.RolloutsRecorded) and fact.purpose == "try" for fact in told) == 1


@pytest.mark.parametrize("how", ["SIGTERM", "Ctrl-C"])
def test_left_in_the_middle_of_a_scoring_batch_a_run_samples_no_recorded_batch_again(
    how: str, whale_here: WhaleProcess, toy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM lets the batch end; Ctrl-C leaves it, and it alone is sampled again."""
    from whale.alternation.compute import Compute
    from whale.rollout.decoding import TransformersSession

    toy = (TOY.parent / "h0" / "harness.py").read_text()
    sampled: list[str] = []
    left: list[str] = []
    now = [""]
    run, generate = Compute.run, TransformersSession.generate

    def watched(self: Compute, state: Any, batch: Any, *rest: Any) -> Any:
        now[0] = batch.key
        result = run(self, state, batch, *rest)
        sampled.append(batch.key)
        return result

    def stopping(self: TransformersSession, *rest: Any) -> Any:
        if "c001-i01-m1" in now[0] and now[0].endswith("/b0001") and not left:
            left.append(now[0])
            if how == "Ctrl-C":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGTERM)
        return generate(self, *rest)

    monkeypatch.setattr(Compute, "run", watched)
    monkeypatch.setattr(TransformersSession, "generate", stopping)
    with messages_server(script(toy)) as played:
        path = str(config(tmp_path / "c.toml", toy_model, played.base_url))
        whale_here("run", path, "--name", "b", "--quiet", check=False)
        before = list(sampled)
        whale_here("resume", "b", "--quiet")
        assert len(played.requests) == 5
    assert left
    assert len(sampled) == len(set(sampled)), "no batch was sampled to its end twice"
    assert (left[0] in before) == (how == "SIGTERM")
    told = [fact.batch for fact in events(tmp_path / "runs" / "b") if isinstance(fact, ev.RolloutsRecorded)]
    assert len(told) == len(set(told)) and set(sampled) <= set(told)


def test_a_run_whose_server_has_moved_goes_on_there_and_its_log_keeps_what_it_began_with(
    whale_here: WhaleProcess, toy_model: Path, tmp_path: Path
) -> None:
    toy = (TOY.parent / "h0" / "harness.py").read_text()
    whole = script(toy)
    with messages_server([*whole[:2], Answer(status=529)], forever=True) as first:
        path = str(config(tmp_path / "c.toml", toy_model, first.base_url))
        assert whale_here("run", path, "--name", "m", "--quiet", check=False).returncode == 1
        begun = RunFolder(tmp_path / "runs" / "m").state().config
    failed = whale_here("resume", "m", "--quiet", check=False)
    assert failed.returncode == 1
    assert "whale resume RUN --set search.options.base_url=URL" in failed.stderr, "the advice that works"
    with messages_server(whole[2:]) as second:
        whale_here("fork", "m", "--name", "there", "--set", f"search.options.base_url={second.base_url}")
        whale_here("resume", "m", "--quiet", "--set", f"search.options.base_url={second.base_url}")
        assert len(second.requests) == 3
    told = events(tmp_path / "runs" / "m")
    assert [fact.turn for fact in told if isinstance(fact, ev.ProposerReplied)] == [1, 2, 3, 4, 5]
    assert RunFolder(tmp_path / "runs" / "m").state().config == begun
    whale_here("fork", "m", "--name", "after")
    for name in ("there", "after"):
        assert second.base_url in (tmp_path / "runs" / name / "whale.toml").read_text(), name
    there = events(tmp_path / "runs" / "there")
    (forked,) = [fact for fact in there if isinstance(fact, ev.RunForked)]
    assert not forked.changed, "another address is no other experiment"
    assert [fact.turn for fact in there if isinstance(fact, ev.ProposerReplied)] == [1, 2], "inside the session"


def test_a_resume_sets_nothing_that_is_the_runs_own(whale_here: WhaleProcess, toy_model: Path, tmp_path: Path) -> None:
    own = ("seed", "model", "engine.micro_batch", "engine", "search.options", "search.options.model",
           "search.options.budget.dollars", "schedule.cycles", "events.url", "typo")  # fmt: skip
    with messages_server([Answer(status=529)], forever=True) as played:
        path = str(config(tmp_path / "c.toml", toy_model, played.base_url))
        whale_here("run", path, "--name", "r", "--quiet", check=False)
    file = tmp_path / "runs" / "r" / "whale.toml"
    before = file.read_bytes(), len(events(file.parent))
    for key in own:
        refused = whale_here("resume", "r", "--set", f"{key}=7", "--quiet", check=False)
        assert refused.returncode == 2, key
        assert f"--set {key}: " in refused.stderr
        assert ("whale fork r --set" in refused.stderr) == (key != "events.url")
    assert (file.read_bytes(), len(events(file.parent))) == before


def test_a_wrong_value_or_a_second_runner_changes_no_setting(
    whale_here: WhaleProcess, toy_model: Path, tmp_path: Path
) -> None:
    with messages_server([Answer(status=529)], forever=True) as played:
        path = str(config(tmp_path / "c.toml", toy_model, played.base_url))
        whale_here("run", path, "--name", "v", "--quiet", check=False)
    file = tmp_path / "runs" / "v" / "whale.toml"
    before = file.read_bytes()
    for item in ("engine.threads=-1", "engine.threads=many", "search.options.patience=long", "search.options.cli=x"):
        refused = whale_here("resume", "v", "--set", item, "--quiet", check=False)
        assert refused.returncode == 2, item
        assert item.partition("=")[0].split(".")[-1] in refused.stderr
    with RunFolder(file.parent).lease():
        refused = whale_here("resume", "v", "--set", "engine.threads=2", "--quiet", check=False)
    assert refused.returncode == 3
    assert file.read_bytes() == before


def test_the_word_that_marks_data_is_the_sessions_own_and_the_same_when_it_is_played_again() -> None:
    from types import SimpleNamespace

    from whale.alternation.state import State
    from whale.alternation.workbench import RunWorkbench

    def word(name: str = "a", seed: int = 1, cycle: int = 1, iteration: int = 1) -> str:
        runner: Any = SimpleNamespace(state=State(name=name), config=SimpleNamespace(seed=seed))
        return RunWorkbench(runner, cycle, iteration).fence()

    sessions: list[dict[str, Any]] = [{}, {"name": "b"}, {"seed": 2}, {"cycle": 2}, {"iteration": 2}]
    words = [word(**session) for session in sessions]
    assert len(set(words)) == len(sessions)
    assert words == [word(**session) for session in sessions]
    assert all(len(one) == 16 for one in words)
