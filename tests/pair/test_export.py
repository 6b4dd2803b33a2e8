"""An exported pair: complete or absent, and the same pair as inside its run."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runs import WhaleProcess
from whale.alternation.compute import Compute
from whale.alternation.decide import config_of, selected
from whale.alternation.progress import Silent
from whale.alternation.run_folder import RunFolder
from whale.domains.registry import load_domain
from whale.pair.served import from_bundle
from whale.rollout.types import EpisodeSpec, Trajectory


@pytest.fixture
def finished(toy_runs: Path, tmp_path: Path) -> Path:
    """A run folder of one's own, completed."""
    shutil.copytree(toy_runs / "toy", tmp_path / "runs" / "toy")
    return tmp_path / "runs" / "toy"


def answers(compute: Compute, state: object, weights: str, files: dict[str, bytes]) -> list[Trajectory]:
    tasks = list(compute.tasks["validation"])
    episodes = [(task, EpisodeSpec(task.id, 0, 1000 + i)) for i, task in enumerate(tasks)]
    return compute.sample(state, weights, files, compute.domain, episodes)  # type: ignore[arg-type]


def test_an_exported_pair_samples_the_very_tokens_that_it_samples_in_its_run(
    finished: Path, whale_here: WhaleProcess, tmp_path: Path
) -> None:
    whale_here("export", "toy", "-o", "pair")
    folder = RunFolder(finished)
    state = folder.state()
    config = config_of(state)
    best = selected(state)
    assert best.weights != state.model, "the test needs trained weights"
    inside = Compute(config, folder, load_domain(config.domain, config.domain_options), Silent())
    served = from_bundle(tmp_path / "pair")
    files = dict(served.files)
    before = answers(inside, state, best.weights, files)
    inside.close()

    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "pair").rename(elsewhere)
    shutil.rmtree(tmp_path / "runs")
    served = from_bundle(elsewhere)
    outside = Compute(served.config, served.folder, served.domain, Silent())
    after = answers(outside, served.state, served.weights, dict(served.files))
    outside.close()
    assert [t.turns for t in after] == [t.turns for t in before]
    assert all(t.turns[0].output_ids for t in after)


def test_the_card_and_the_record_say_what_the_log_says(
    finished: Path, whale_here: WhaleProcess, tmp_path: Path
) -> None:
    whale_here("export", "toy", "-o", "pair")
    pair = tmp_path / "pair"
    record = json.loads((pair / "pair.json").read_text())
    verified = json.loads(whale_here("events", "verify", "toy", "--json").stdout)
    best = next(p for p in json.loads(whale_here("status", "toy", "--json").stdout)["pairs"] if p["selected"])
    assert record["head"] in json.dumps(verified)
    assert record["measured"][0]["success"] == best["success"]
    assert (record["measured"][0]["n"], record["weights"]) == (best["n"], best["weights"])
    card = (pair / "README.md").read_text()
    for told in (record["head"], record["candidate"], f"| {best['n']} |", "95 % interval", "## Licences", "not stated"):
        assert told in card
    assert str(tmp_path) not in card + (pair / "pair.json").read_text(), "no path of this machine"
    assert f"whale-evolve[serve]=={record['whale']}" in (pair / "requirements.txt").read_text()
    for name, digest in record["files"].items():
        assert hashlib.sha256((pair / name).read_bytes()).hexdigest() == digest
    tree = subprocess.run(
        ["git", f"--git-dir={finished}/harnesses.git", "ls-tree", "-r", "--name-only", record["tree"]],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert sorted(p.relative_to(pair / "harness").as_posix() for p in (pair / "harness").rglob("*") if p.is_file()) == (
        sorted(tree)
    )


def test_plain_transformers_loads_the_exported_model(finished: Path, whale_here: WhaleProcess, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from whale.weights.digest import weights_digest

    whale_here("export", "toy", "-o", "pair")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "pair" / "model")
    record = json.loads((tmp_path / "pair" / "pair.json").read_text())
    assert weights_digest(model.state_dict()) == record["weights"]
    assert AutoTokenizer.from_pretrained(tmp_path / "pair" / "model").chat_template


def test_a_pair_that_was_never_evaluated_has_no_scores(
    finished: Path, whale_here: WhaleProcess, tmp_path: Path
) -> None:
    whale_here("export", "toy", "-o", "pair", "--harness", "c001-i01-m1", "--cycle", "2")
    record = json.loads((tmp_path / "pair" / "pair.json").read_text())
    assert (record["candidate"], record["measured"]) == ("c001-i01-m1", [])
    assert "never evaluated" in (tmp_path / "pair" / "README.md").read_text()


def test_the_initial_pair_is_exported_with_the_models_own_weights(
    finished: Path, whale_here: WhaleProcess, tmp_path: Path
) -> None:
    whale_here("export", "toy", "-o", "pair", "--cycle", "0")
    record = json.loads((tmp_path / "pair" / "pair.json").read_text())
    assert record["weights"] == record["initial"]
    assert from_bundle(tmp_path / "pair").weights == record["initial"]


def test_an_export_never_overwrites_and_leaves_nothing_behind_when_it_fails(
    finished: Path, whale_here: WhaleProcess, tmp_path: Path
) -> None:
    (tmp_path / "pair").mkdir()
    done = whale_here("export", "toy", "-o", "pair", check=False)
    assert done.returncode == 3
    assert "is there already" in done.stderr
    weights = next((finished / "checkpoints").glob("c002-*/model.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    done = whale_here("export", "toy", "-o", "other", check=False)
    assert done.returncode == 4
    assert "digest" in done.stderr
    assert not list(tmp_path.glob("*other*")) and not list(tmp_path.glob(".*other*"))


def test_weights_that_are_not_kept_are_named(finished: Path, whale_here: WhaleProcess) -> None:
    shutil.rmtree(finished / "checkpoints")
    done = whale_here("export", "toy", check=False)
    assert done.returncode == 1
    assert "no checkpoint holds the weights" in done.stderr
    assert "there are: 0, 1, 2" in whale_here("export", "toy", "--cycle", "9", check=False).stderr


@pytest.mark.parametrize("name", ["harness/harness.py", "model/model.safetensors", "README.md"])
def test_a_changed_or_missing_file_of_a_pair_is_found_before_it_is_served(
    name: str, finished: Path, whale_here: WhaleProcess, tmp_path: Path
) -> None:
    whale_here("export", "toy", "-o", "pair")
    path = tmp_path / "pair" / name
    path.write_bytes(path.read_bytes() + b"\n")
    done = whale_here("serve", "pair", "--port", "0", check=False)
    assert (done.returncode, name in done.stderr) == (4, True)
    path.unlink()
    assert "missing" in whale_here("serve", "pair", "--port", "0", check=False).stderr
