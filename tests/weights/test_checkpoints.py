import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.weights.conftest import rollouts, tiny_llama
from whale.errors import CorruptLogError, UsageError, WhaleError
from whale.weights import state
from whale.weights.checkpoints import CheckpointStore
from whale.weights.digest import weights_digest
from whale.weights.lora import Lora
from whale.weights.trainer import Trainer, TrainerConfig

Build = Callable[..., Trainer]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


@pytest.fixture
def trained(trainer: Build) -> Trainer:
    learner = trainer()
    learner.step(rollouts(3), seed=0)
    return learner


def digests(learner: Trainer) -> dict[str, str]:
    return {"weights": learner.weights_digest(), "trainer": learner.trainer_digest()}


def test_training_goes_on_from_a_checkpoint_as_if_it_had_never_stopped(
    store: CheckpointStore, trained: Trainer, trainer: Build
) -> None:
    saved = store.save("c000-s001", trained)
    assert saved == digests(trained) == store.digests("c000-s001")
    resumed = trainer(seed=1)  # other weights until it loads
    resumed.load(store.open("c000-s001"))
    assert (digests(resumed), resumed.steps) == (saved, 1)
    for learner in (trained, resumed):
        learner.step(rollouts(5, seed=1), seed=1)
    assert digests(resumed) == digests(trained)


def test_a_checkpoint_before_the_first_update_can_be_loaded(store: CheckpointStore, trainer: Build) -> None:
    fresh, other = trainer(), trainer(seed=1)
    saved = store.save("start", fresh)
    other.step(rollouts(2), seed=0)
    other.load(store.open("start"))
    assert digests(other) == saved


def test_an_engine_gets_the_weights_without_a_trainer(store: CheckpointStore, trained: Trainer) -> None:
    store.save("one", trained)
    assert weights_digest(store.weights_of("one")) == trained.weights_digest()


def test_transformers_loads_a_checkpoint_folder_as_a_model(store: CheckpointStore, trained: Trainer) -> None:
    store.save("one", trained)
    model = AutoModelForCausalLM.from_pretrained(store.open("one"), dtype=torch.float32)
    assert weights_digest(model.state_dict()) == trained.weights_digest()
    assert model.config._attn_implementation == "sdpa"


def test_saving_again_under_the_same_id_replaces_it(store: CheckpointStore, trained: Trainer) -> None:
    first = store.save("one", trained)
    trained.step(rollouts(3), seed=1)
    second = store.save("one", trained)
    assert first != second
    assert store.verify("one", **second)
    assert [p.name for p in store.folder.iterdir()] == ["one"]


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors"])
def test_verify_names_the_file_with_a_changed_byte(store: CheckpointStore, trained: Trainer, file: str) -> None:
    saved = store.save("one", trained)
    assert store.verify("one", **saved) is True
    flip_a_byte(store.open("one") / file)
    with pytest.raises(CorruptLogError, match=file):
        store.verify("one", **saved)


def test_verify_compares_with_the_log_not_with_the_checkpoints_own_note(
    store: CheckpointStore, trained: Trainer
) -> None:
    store.save("one", trained)
    with pytest.raises(CorruptLogError, match="the log says 000000"):
        store.verify("one", weights="0" * 64)


def test_a_cut_file_is_an_error_that_names_it(store: CheckpointStore, trained: Trainer) -> None:
    saved = store.save("one", trained)
    path = store.open("one") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(WhaleError, match=r"model\.safetensors"):
        store.verify("one", **saved)


def test_load_refuses_another_model_and_changes_nothing(
    store: CheckpointStore, trained: Trainer, trainer: Build
) -> None:
    store.save("one", trained)
    other = trainer(model=tiny_llama(hidden_size=64))
    before = digests(other)
    with pytest.raises(WhaleError, match=r"of another model: model\.embed_tokens\.weight is \(48, 32\)") as caught:
        other.load(store.open("one"))
    assert "\n" not in str(caught.value)
    deeper = trainer(model=tiny_llama(num_hidden_layers=3))
    with pytest.raises(WhaleError, match=r"layers\.2.* is missing"):
        deeper.load(store.open("one"))
    assert digests(other) == before


def test_prune_keeps_what_it_is_told_and_drops_old_optimiser_states(
    store: CheckpointStore, trained: Trainer, trainer: Build
) -> None:
    saved = {name: store.save(name, trained) for name in ("a", "b", "c")}
    assert store.prune({"a", "c", "never"}, optimizer_for={"c"}) == ["b"]
    assert store.ids() == ["a", "c"]
    assert not (store.open("a") / "optimizer.safetensors").exists()
    assert store.verify("a", **saved["a"]) is False
    assert store.verify("c", **saved["c"]) is True
    assert weights_digest(store.weights_of("a")) == saved["a"]["weights"]
    with pytest.raises(WhaleError, match="pruned"):
        trainer().load(store.open("a"))
    assert store.prune({"a", "c"}, optimizer_for={"c"}) == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".tmp-x", "/etc"])
def test_an_id_cannot_leave_the_folder(store: CheckpointStore, name: str) -> None:
    with pytest.raises(UsageError, match="not a checkpoint's name"):
        store.path(name)


def test_an_absent_checkpoint_is_named_with_what_there_is(store: CheckpointStore, trained: Trainer) -> None:
    with pytest.raises(WhaleError, match="newest there: none"):
        store.open("one")
    store.save("one", trained)
    with pytest.raises(WhaleError, match=r"two is not in .*newest there: one"):
        store.open("two")


class Interrupted:
    """Saves one file of a checkpoint, then fails."""

    def __init__(self, trainer: Trainer, error: BaseException) -> None:
        self.trainer, self.error = trainer, error

    def checkpoint_bytes(self) -> int:
        return self.trainer.checkpoint_bytes()

    def save(self, folder: Path) -> Mapping[str, str]:
        (folder / "model.safetensors").write_bytes(b"half")
        raise self.error


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_save_leaves_nothing_and_keeps_the_older_checkpoint(
    store: CheckpointStore, trained: Trainer, error: BaseException
) -> None:
    saved = store.save("one", trained)
    expected = WhaleError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected) as caught:
        store.save("one", Interrupted(trained, error))
    if expected is WhaleError:
        assert "No space left on device" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert [p.name for p in store.folder.iterdir()] == ["one"]
    assert store.verify("one", **saved)


def test_too_little_room_is_said_before_anything_is_written(
    store: CheckpointStore, trained: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(WhaleError, match=r"no space: it needs \d+ MiB, 0 MiB are free"):
        store.save("one", trained)
    assert list(store.folder.iterdir()) == []


@pytest.mark.parametrize("lora", [None, Lora(rank=4)])
def test_the_room_asked_for_is_what_a_checkpoint_takes(store: CheckpointStore, lora: Lora | None) -> None:
    learner = Trainer(tiny_llama(), TrainerConfig(device="cpu", lora=lora))
    learner.step(rollouts(3), seed=0)
    store.save("one", learner)
    written = sum(file.stat().st_size for file in store.path("one").glob("*.safetensors"))
    names = sum(
        len(name) + 100 for path in store.path("one").glob("*.safetensors") for name in state.read_tensors(path)
    )
    assert written - names <= learner.checkpoint_bytes() <= written, "all but names, places and AdamW's counts"


def test_a_write_that_the_system_refuses_in_the_middle_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    # A file-size limit stops the real write half way, as a full disk or a quota does.
    code = """
import resource, sys
from tests.weights.conftest import tiny_llama
from whale.errors import WhaleError
from whale.weights.checkpoints import CheckpointStore
from whale.weights.trainer import Trainer, TrainerConfig
trainer = Trainer(tiny_llama(), TrainerConfig(threads=1, device="cpu"))
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    CheckpointStore(sys.argv[1]).save("one", trainer)
except WhaleError as error:
    print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith("checkpoint one not saved in ")
    assert run.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# One process that has everything loaded forks savers, and kills each when it has got to a given stage.
KILLER = """
import os, signal, sys
from pathlib import Path
from tests.weights.conftest import rollouts, tiny_llama
from whale.weights.checkpoints import CheckpointStore
from whale.weights.trainer import Trainer, TrainerConfig

trainer = Trainer(tiny_llama(), TrainerConfig(threads=1, device="cpu"))
trainer.step(rollouts(2), seed=0)
store = CheckpointStore(sys.argv[1])
stages = ("", "/model.safetensors", "/optimizer.safetensors", "/config.json", "/trainer.json", "-old")
for stage in stages * 4:
    saver = os.fork()
    if not saver:
        while True:
            for name in "ab":
                store.save(name, trainer)
    while not any(store.folder.glob(f".tmp-[ab]-{saver}{stage}")):
        if os.waitpid(saver, os.WNOHANG)[0]:
            sys.exit("the saver ended by itself")
    os.kill(saver, signal.SIGKILL)
    os.waitpid(saver, 0)
    for name in store.ids():
        assert store.verify(name, **store.digests(name))
    left = {path.name for path in store.folder.iterdir()} - set(store.ids())
    assert all(name.startswith(".tmp-") for name in left), left
    assert set(store.clean()) == left
    print(len(left), len(store.ids()))
"""


def test_after_sigkill_in_the_middle_of_saving_each_checkpoint_is_complete_or_absent(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", KILLER, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    rounds = [tuple(map(int, line.split())) for line in run.stdout.splitlines()]
    assert len(rounds) == 24
    # Kills did hit half-written folders, and checkpoints did survive others.
    assert any(left for left, _ in rounds)
    assert any(complete for _, complete in rounds)


def test_a_folder_without_its_summary_is_no_checkpoint(store: CheckpointStore, trained: Trainer) -> None:
    store.save("one", trained)
    (store.path("one") / "trainer.json").unlink()
    assert not store.exists("one")
    assert store.ids() == []


def test_a_summary_of_another_format_is_refused(store: CheckpointStore, trained: Trainer) -> None:
    store.save("one", trained)
    path = store.open("one") / "trainer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(WhaleError, match="checkpoint format 99"):
        trained.load(store.open("one"))


@pytest.mark.parametrize(
    ("weights", "optimizer", "needs"),
    [
        (1_000, 0, 1_000 + 3_000 + (8 << 30)),  # a first step: the moments are still to come, like the gradient
        (1_000, 2_000, 3_000 + 1_000 + (8 << 30)),
        (4 << 30, 8 << 30, (12 << 30) + (4 << 30) + (14 << 30)),
    ],
)
def test_a_steps_copy_stays_on_a_gpu_only_where_the_step_still_fits_beside_it(
    monkeypatch: pytest.MonkeyPatch, weights: int, optimizer: int, needs: int
) -> None:
    gpu = torch.device("cuda", 0)
    for free, stays in ((needs, True), (needs - 1, False)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, 2 * free))
        assert state.has_room(gpu, weights, optimizer, weights // 4) is stays
    assert not state.has_room(torch.device("cpu"), 0, 0, 0)


def test_a_steps_copy_is_a_copy() -> None:
    weights, moments = {"a": torch.ones(3)}, {"a/exp_avg": torch.ones(2)}
    copies = state.copied(weights, moments, 3)
    weights["a"].zero_()
    moments["a/exp_avg"].zero_()
    assert [tensor.tolist() for copy in copies for tensor in copy.values()] == [[1, 1, 1], [1, 1]]
