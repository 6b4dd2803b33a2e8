"""vLLM's options of a started run: what a resume may change of them, and what stays the run's own."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from whale.alternation.fork import _differences
from whale.alternation.movable import MOVABLE, moved, present_config, without_movable
from whale.alternation.run_folder import RunFolder
from whale.alternation.session import write_config
from whale.config import Config, EngineConfig, for_the_log
from whale.errors import UsageError
from whale.events import NewEvent
from whale.events import types as ev
from whale.report.compare.telling import telling

BEGAN: dict[str, Any] = {"max_num_seqs": 8, "max_num_batched_tokens": 4, "max_model_len": 512}


def config(options: dict[str, Any]) -> Config:
    return Config(engine=EngineConfig(name="vllm", options=options))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run whose log has its first event."""
    run = RunFolder(tmp_path / "r")
    run.path.mkdir()
    write_config(run, config(BEGAN))
    started = ev.RunStarted(
        name="r", config=for_the_log(config(BEGAN)), model="m", data="d",
        splits={"weight": 1, "harness": 1, "validation": 1, "test": 1},
    )  # fmt: skip
    with run.open_log() as log:
        log.append("run", [NewEvent(event=started, key="started")], expected_version=0)
    return run


@pytest.mark.parametrize(
    "override, options",
    [
        (
            "engine.options={max_num_seqs=2, max_num_batched_tokens=64, max_model_len=512}",
            BEGAN | {"max_num_seqs": 2, "max_num_batched_tokens": 64},
        ),
        ("engine.options.enforce_eager=false", BEGAN | {"enforce_eager": False}),
        ("engine.options={max_model_len=512}", {"max_model_len": 512}),
    ],
)
def test_options_of_memory_and_steps_are_set_or_dropped_and_stay_so(
    override: str, options: dict[str, Any], folder: RunFolder
) -> None:
    state = folder.state()
    write_config(folder, moved(folder, state, [override]))
    assert present_config(folder, state).engine.options == options
    old, new = for_the_log(config(BEGAN)), for_the_log(present_config(folder, state))
    assert {key for key in _differences(old, new) if key not in MOVABLE} == set(), "no other experiment for a fork"
    assert without_movable(old) == without_movable(new)
    assert telling(old) == telling(new)


@pytest.mark.parametrize(
    "override, name",
    [
        ("engine.options={max_num_seqs=8, max_num_batched_tokens=4}", "max_model_len"),
        ("engine.options.max_model_len=1024", "max_model_len"),
        ("engine.options.quantization=fp8", "quantization"),
    ],
)
def test_options_that_bear_on_what_is_sampled_stay(override: str, name: str, folder: RunFolder) -> None:
    state = folder.state()
    with pytest.raises(UsageError, match=rf"^--set engine.options.{name}: r keeps .*whale fork r --set .*max_num_seqs"):
        moved(folder, state, [override])
    other = config(BEGAN | {"max_model_len": 1024})
    write_config(folder, other)
    assert present_config(folder, state).engine.options == BEGAN, "nor by hand"
    assert telling(for_the_log(other)) != telling(for_the_log(config(BEGAN)))


def test_a_table_where_options_have_to_be_is_told(folder: RunFolder) -> None:
    with pytest.raises(UsageError, match=r"engine\.options"):
        moved(folder, folder.state(), ["engine.options=64"])
    assert msgspec.structs.asdict(present_config(folder, folder.state()).engine)["options"] == BEGAN
