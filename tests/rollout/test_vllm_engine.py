"""The vllm engine on a tiny model: it says what the transformers engine says, and takes new weights whole."""

import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tests.rollout.scripted import LIMITS, SAMPLING, FactsDomain, tree
from whale.domains.base import Task
from whale.errors import UsageError, WhaleError
from whale.rollout.decoding import ContextError
from whale.rollout.episodes import run_micro_batch
from whale.rollout.sandbox.host import HarnessWorker
from whale.rollout.sandbox.probe import best_tier
from whale.rollout.transformers_engine import TransformersEngine
from whale.rollout.types import ContinuousSession, EpisodeSpec, GenerateRequest
from whale.weights.sync import check_engine
from whale.weights.trainer import Trainer, TrainerConfig

if TYPE_CHECKING:
    from whale.rollout.vllm_engine import VllmEngine

pytestmark = pytest.mark.vllm
TOLERANCE = 1e-4


@pytest.fixture
def engine(vllm_engine: "VllmEngine", wide_model: Path) -> "Iterator[VllmEngine]":
    """The engine, whatever weights a test leaves in it."""
    yield vllm_engine
    if vllm_engine.weights_version != "own":
        vllm_engine.update_weights(plain(wide_model).model.state_dict(), "own")


def plain(folder: Path) -> TransformersEngine:
    return TransformersEngine(folder, device="cpu", dtype="float32", threads=1)


def ids(seed: int, length: int) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.randrange(3, 360) for _ in range(length))


def ask(prompt: Sequence[int], new: int = 8, temperature: float = 0.0, seed: int = 0) -> GenerateRequest:
    return GenerateRequest(tuple(prompt), new, temperature, seed)


def greedy(count: int = 8) -> list[GenerateRequest]:
    """Prompts with a common beginning longer than a block of the prefix cache."""
    return [ask(ids(1, 150) + ids(100 + i, 1 + 5 * i), 4 + i) for i in range(count)]


def assert_alike(engine: "VllmEngine", other: TransformersEngine) -> None:
    for a, b in zip(engine.session().generate(greedy()), other.session().generate(greedy()), strict=True):
        assert a.output_ids == b.output_ids
        assert a.finish_reason == b.finish_reason
        assert np.allclose(a.logprobs, b.logprobs, atol=TOLERANCE)


def test_greedy_tokens_and_logprobs_are_those_of_the_transformers_engine(
    engine: "VllmEngine", transformers_engine: TransformersEngine
) -> None:
    assert_alike(engine, transformers_engine)
    long = [ids(0, 300), ids(1, 20), ids(2, 1)]
    for a, b in zip(engine.logprobs(long), transformers_engine.logprobs(long), strict=True):
        assert np.allclose(a, b, atol=TOLERANCE)


def test_a_stop_string_ends_both_engines_at_the_same_token_with_the_same_logprobs(
    engine: "VllmEngine", transformers_engine: TransformersEngine
) -> None:
    """Stop strings of one to four characters from the middle of what is said, across token borders."""
    plain_requests = [replace(request, max_tokens=24) for request in greedy()]
    requests = []
    for at, (request, said) in enumerate(
        zip(plain_requests, transformers_engine.session().generate(plain_requests), strict=True)
    ):
        text = transformers_engine.chat.decode(said.output_ids)
        middle = len(text) // 3
        stop = text[middle : middle + 1 + at % 4]
        assert stop.strip("\ufffd"), "a stop string that can be found"
        requests.append(replace(request, stop=("never said", stop)))
    ours, theirs = engine.session().generate(requests), transformers_engine.session().generate(requests)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.output_ids, a.finish_reason) == (b.output_ids, b.finish_reason)
        assert np.allclose(a.logprobs, b.logprobs, atol=TOLERANCE)
    assert sum(len(a.output_ids) < 24 and a.finish_reason == "stop" for a in ours) >= 6
    assert not engine._library.busy(), "what a stop string ended is not sampled on"
    assert not engine._library._running


def test_every_request_keeps_its_own_settings(engine: "VllmEngine", transformers_engine: TransformersEngine) -> None:
    """Requests are copies of one that vLLM has checked: nothing of another's settings stays in them."""
    cold = [ask(ids(20 + i, 10 + i), 3 + i) for i in range(6)]
    hot = [ask(ids(20 + i, 10 + i), 9, 2.0, seed=i) for i in range(6)]
    stopped = [replace(request, stop=("e",), max_tokens=9) for request in hot]
    mixed = [request for three in zip(cold, hot, stopped, strict=True) for request in three]
    done = engine.session().generate(mixed)
    for a, b in zip(done[::3], transformers_engine.session().generate(cold), strict=True):
        assert (a.output_ids, a.finish_reason) == (b.output_ids, b.finish_reason)
    assert [len(a.output_ids) for a in done[1::3] if a.finish_reason == "length"] == [
        9 for a in done[1::3] if a.finish_reason == "length"
    ]
    assert any("e" in engine.chat.decode(a.output_ids[:-1]) for a in done[1::3]), "hot ones run past an e"
    assert not any("e" in engine.chat.decode(a.output_ids[:-1]) for a in done[2::3])
    again = engine.session().generate(cold)
    assert [a.output_ids for a in again] == [a.output_ids for a in done[::3]]


def test_a_micro_batch_of_hundreds_is_sampled_at_once(engine: "VllmEngine") -> None:
    """With the 128 rows that a bare engine of vLLM has this takes 12 steps, with the 256 of its `LLM` 8."""
    session, steps = engine.session(), 0
    left = {session.submit(ask(ids(n, 4), 4)) for n in range(300)}
    while left:
        left -= {ticket for ticket, _ in session.advance()}
        steps += 1
    assert steps < 2 * 4


def test_a_closed_session_leaves_nothing_to_sample(engine: "VllmEngine") -> None:
    session = engine.session()
    for i in range(4):
        session.submit(ask(ids(i, 20), 500, 1.0, seed=i))
    session.advance()
    session.close()
    assert not engine._library.busy()
    assert not engine._library._running
    assert engine.session().generate([ask(ids(0, 5), 4)])[0].output_ids


def test_an_id_that_the_model_has_no_row_for_is_refused(engine: "VllmEngine") -> None:
    session = engine.session()
    with pytest.raises(WhaleError, match="the tokenizer is of another model"):
        session.submit(ask([5, 100_000]))
    session.close()
    assert engine.session().generate([ask(ids(0, 5), 4)])[0].output_ids


def test_sampling_follows_the_models_distribution(engine: "VllmEngine", wide_model: Path) -> None:
    prompt, draws, temperature = ids(3, 12), 1500, 0.7
    done = engine.session().generate([ask(prompt, 1, temperature, seed=i) for i in range(draws)])
    with torch.inference_mode():
        logits = plain(wide_model).model(torch.tensor([prompt])).logits[0, -1]
    p = torch.softmax(logits / temperature, -1).numpy()
    counts = np.bincount([g.output_ids[0] for g in done], minlength=len(p))
    often = p * draws >= 5
    observed, expected = np.append(counts[often], counts[~often].sum()), np.append(p[often], p[~often].sum()) * draws
    freedom = len(observed) - 1
    assert freedom > 5
    assert float(((observed - expected) ** 2 / expected).sum()) < freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.vllm_sample
def test_new_weights_give_what_a_fresh_engine_gives_behind_cached_prefixes(
    engine: "VllmEngine", other_model: Path
) -> None:
    engine.session().generate(greedy())  # fills the prefix cache under the old weights
    fresh = plain(other_model)
    before = engine.session()
    engine.update_weights(fresh.model.state_dict(), "new")
    assert engine.weights_version == "new"
    with pytest.raises(RuntimeError, match="closed"):
        before.generate(greedy())
    assert_alike(engine, fresh)


@pytest.mark.vllm_sample
@pytest.mark.parametrize("left_out", ["lm_head.weight", "model.embed_tokens.weight"])
def test_either_name_of_a_tied_weight_moves_both(engine: "VllmEngine", other_model: Path, left_out: str) -> None:
    fresh = plain(other_model)
    engine.update_weights({n: t for n, t in fresh.model.state_dict().items() if n != left_out}, "new")
    assert np.allclose(engine.logprobs([ids(0, 20)])[0], fresh.logprobs([ids(0, 20)])[0], atol=TOLERANCE)


@pytest.mark.parametrize("how", ["missing", "unknown", "is \\(3,\\)"])
def test_weights_that_do_not_fit_are_refused_and_change_nothing(
    engine: "VllmEngine", other_model: Path, how: str
) -> None:
    before, version = engine.logprobs([ids(0, 20)]), engine.weights_version
    state: dict[str, Any] = dict(plain(other_model).model.state_dict())
    if how == "missing":
        del state["model.norm.weight"]
    elif how == "unknown":
        state["model.extra"] = torch.zeros(1)
    else:
        state["model.norm.weight"] = torch.zeros(3)
    with pytest.raises(WhaleError, match=how):
        engine.update_weights(state, "new")
    assert engine.weights_version == version
    assert engine.logprobs([ids(0, 20)]) == before


@pytest.mark.vllm_sample
def test_after_a_step_the_engine_equals_the_trainer_and_a_stale_one_is_found_out(
    engine: "VllmEngine", wide_model: Path
) -> None:
    from whale.weights.types import Sample

    trainer = Trainer(wide_model, TrainerConfig(lr=1e-2, minibatch=2, dtype="float32", device="cpu", threads=1))
    rollouts = [[Sample(ids(i, 30), (False,) * 10 + (True,) * 20)] for i in range(4)]
    trainer.step(rollouts, seed=1)
    probe = [ids(9, 40)]
    with pytest.raises(WhaleError, match="does not hold the trainer's weights"):
        trainer.check_engine(engine, probe, tolerance=0.01)
    engine.update_weights(trainer.state_dict(), "stepped")
    assert trainer.check_engine(engine, probe, tolerance=1e-4) < 1e-4
    with pytest.raises(WhaleError, match="on average"):
        check_engine(engine, probe, [[math.nan] * 39], tolerance=1.0)


@pytest.mark.vllm_sample
def test_a_cache_that_is_not_cleared_stops_the_run(
    engine: "VllmEngine", other_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(engine._library._engine, "reset_prefix_cache", lambda: False)
        with pytest.raises(WhaleError, match="did not clear its prefix cache"):
            engine.update_weights(plain(other_model).model.state_dict(), "new")
    assert engine.weights_version == "", "half a sync passes for no weights"


def test_a_dead_engine_is_one_clear_error(engine: "VllmEngine", monkeypatch: pytest.MonkeyPatch) -> None:
    def dies() -> None:
        raise RuntimeError("the core is gone\nand more")

    with monkeypatch.context() as broken:
        broken.setattr(engine._library._core, "get_output", dies)
        session = engine.session()
        session.submit(ask(ids(0, 5)))
        with pytest.raises(WhaleError, match=r"died while sampling \(RuntimeError: the core is gone\)"):
            session.advance()
    session.close()
    assert engine.session().generate([ask(ids(0, 5))]), "what was aborted holds nothing up"


def test_a_request_that_vllm_loses_is_an_error_and_no_hang(
    engine: "VllmEngine", monkeypatch: pytest.MonkeyPatch
) -> None:
    session = engine.session()
    session.submit(ask(ids(0, 5)))
    with monkeypatch.context() as broken:
        broken.setattr(engine._library, "step", list)
        broken.setattr(engine._library, "busy", lambda: False)
        with pytest.raises(WhaleError, match="vLLM lost 1 requests"):
            session.advance()
    session.close()


def test_broken_weights_are_one_clear_error(engine: "VllmEngine", other_model: Path) -> None:
    state = {name: tensor * math.nan for name, tensor in plain(other_model).model.named_parameters()}
    engine.update_weights(state, "nan")
    with pytest.raises(WhaleError, match="not finite under weights nan"):
        engine.session().generate([ask(ids(0, 5))])


def test_a_request_beyond_the_context_is_refused_before_anything_is_computed(engine: "VllmEngine") -> None:
    session = engine.session()
    with pytest.raises(ContextError, match="1020 prompt tokens and 8 new ones exceed the model's context of 1024"):
        session.generate([ask(ids(0, 5)), ask(ids(0, 1020), 8)])
    assert not session._out
    with pytest.raises(ContextError):
        engine.logprobs([ids(0, 1025)])


def test_an_unknown_option_is_a_usage_error(wide_model: Path, engine: "VllmEngine") -> None:
    from whale.rollout.vllm_engine import VllmEngine

    with pytest.raises(UsageError, match=r"engine\.options: vLLM .* takes no such option.*wheels"):
        VllmEngine(wide_model, options={"wheels": 4})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_model_len": 100_000}, "engine.options: .*max_model_len .100000. is greater than"),
        ({"max_num_seqs": 0}, "engine.options: .*max_num_seqs Input should be greater than"),
    ],
)
def test_options_that_vllm_cannot_take_are_one_line_with_their_fault(
    wide_model: Path, engine: "VllmEngine", options: dict[str, Any], says: str
) -> None:
    from whale.rollout.vllm_engine import VllmEngine

    with pytest.raises(UsageError, match=says) as raised:
        VllmEngine(wide_model, device="cpu", dtype="float32", threads=1, kv_bytes=64 << 20, options=options)
    assert "\n" not in str(raised.value)


FROM_HERE = """
import sys
from whale.rollout.types import GenerateRequest
from whale.rollout.vllm_engine import VllmEngine
if __name__ == "__main__":
    made = VllmEngine(sys.argv[1], device="cpu", dtype="float32", threads=1, kv_bytes=int(sys.argv[2]),
                      options={"max_num_batched_tokens": 64})
    print(len(made.session().generate([GenerateRequest((3,) * 100, 3, 0.0, n) for n in range(2)])), "done")
"""


@pytest.mark.parametrize(
    ("kv_bytes", "says"), [(64 << 20, "2 done"), (1_000_000, "raise engine.kv_gb, or lower max_model_len")]
)
def test_a_step_of_few_tokens_has_no_more_rows_and_a_cache_too_small_says_what_to_raise(
    wide_model: Path, engine: "VllmEngine", tmp_path: Path, kv_bytes: int, says: str
) -> None:
    """In a process of its own: vLLM's second engine would end the first one's groups with its own."""
    (tmp_path / "made.py").write_text(FROM_HERE)
    command = [sys.executable, str(tmp_path / "made.py"), str(wide_model), str(kv_bytes)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert says in done.stdout + done.stderr


def test_vllm_leaves_torch_as_it_was(engine: "VllmEngine") -> None:
    """A trainer's digest depends on the number of threads, and vLLM takes the switch away."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)
    assert torch.get_default_dtype() is torch.float32
    assert torch.is_grad_enabled()


BODY = """
opening = [{'role': 'user', 'content': task['question']}]
first = await model.chat(opening, prefix='Query:', max_tokens=5)
found = await tools.lookup(key='france')
return await model.chat([*opening, first, {'role': 'user', 'content': found[0]['text']}], max_tokens=7)
"""


def test_episodes_flow_through_the_sandbox_with_every_turns_weights(engine: "VllmEngine") -> None:
    assert isinstance(engine.session(), ContinuousSession)
    tasks = {f"t{i}": Task(f"t{i}", {"question": f"Which is {i}?"}, {}) for i in range(12)}
    specs = [EpisodeSpec(name, 0, seed) for seed, name in enumerate(tasks)]
    with HarnessWorker(tree(BODY), best_tier(), replace(LIMITS, cpu_seconds=5)) as worker:
        done = run_micro_batch(
            engine, engine.chat, worker.files, tasks, specs, FactsDomain(), SAMPLING, worker.limits, worker
        )
    assert [trajectory.task_id for trajectory in done] == list(tasks)
    for trajectory in done:
        assert trajectory.status == "ok", trajectory.reason
        first, second = trajectory.turns
        assert second.prompt_ids[: len(first.prompt_ids + first.output_ids)] == first.prompt_ids + first.output_ids
        assert {turn.weights for turn in trajectory.turns} == {engine.weights_version}
