import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whale.errors import UsageError, WhaleError
from whale.rollout.devices import resolve_dtype
from whale.rollout.packed_linear import pack_linears
from whale.rollout.tiny_model import write_tiny_model
from whale.rollout.token_sampling import next_tokens, uniforms
from whale.rollout.transformers_engine import TransformersEngine
from whale.rollout.types import GenerateRequest, Generation

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> TransformersEngine:
    return TransformersEngine(tiny_model, device="cpu", dtype="float32", threads=1)


@pytest.fixture(scope="module")
def reference(tiny_model: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)


def ask(
    ids: Sequence[int], new: int = 8, temperature: float = 0.0, seed: int = 0, stop: Sequence[str] = ()
) -> GenerateRequest:
    return GenerateRequest(tuple(ids), new, temperature, seed, tuple(stop))


def ids(seed: int, length: int) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.randrange(3, 360) for _ in range(length))


def own_generate(model: Any, prompt: Sequence[int], new: int) -> tuple[int, ...]:
    """transformers' greedy continuation, one sequence at a time."""
    out = model.generate(torch.tensor([list(prompt)]), max_new_tokens=new, do_sample=False)
    return tuple(out[0, len(prompt) :].tolist())


def alone(engine: TransformersEngine, request: GenerateRequest) -> Generation:
    return engine.session().generate([request])[0]


def assert_close(a: Generation, b: Generation) -> None:
    assert a.output_ids == b.output_ids
    assert a.finish_reason == b.finish_reason
    assert np.allclose(a.logprobs, b.logprobs, atol=TOLERANCE)


def mixed_requests(count: int = 12, temperature: float = 0.8) -> list[GenerateRequest]:
    """Prompts of unequal length with a common beginning, some of them twice, some with their own limit."""
    shared = ids(1, 30)
    prompts = [shared + ids(100 + i % 9, 1 + (7 * i) % 23) for i in range(count)]
    return [ask(prompt, 4 + i % 7, temperature, seed=i) for i, prompt in enumerate(prompts)]


def test_greedy_output_is_transformers_own(engine: TransformersEngine, reference: Any) -> None:
    requests = [ask(request.prompt_ids, 10) for request in mixed_requests()]
    for request, generation in zip(requests, engine.session().generate(requests), strict=True):
        assert generation.output_ids == own_generate(reference, request.prompt_ids, 10)


def test_logprobs_are_those_of_a_full_forward_pass(engine: TransformersEngine) -> None:
    requests = mixed_requests()
    for request, generation in zip(requests, engine.session().generate(requests), strict=True):
        full = engine.logprobs([request.prompt_ids + generation.output_ids])[0]
        assert len(full) == len(request.prompt_ids) + len(generation.output_ids) - 1
        assert np.allclose(full[len(request.prompt_ids) - 1 :], generation.logprobs, atol=TOLERANCE)


@given(picked=st.permutations(range(12)), count=st.integers(1, 12))
@settings(max_examples=15, deadline=None)
def test_a_row_does_not_depend_on_its_batch(engine: TransformersEngine, picked: list[int], count: int) -> None:
    requests = mixed_requests()
    chosen = picked[:count]
    together = engine.session().generate([requests[i] for i in chosen])
    for i, generation in zip(chosen, together, strict=True):
        assert_close(generation, alone(engine, requests[i]))


def test_the_same_micro_batch_twice_is_equal_to_the_bit(engine: TransformersEngine) -> None:
    def rounds() -> list[Generation]:
        session = engine.session()
        first = session.generate(mixed_requests())
        again = [
            ask(request.prompt_ids + done.output_ids + ids(7, 3), 6, 0.7, seed=i)
            for i, (request, done) in enumerate(zip(mixed_requests(), first, strict=True))
        ]
        return first + session.generate(again)

    assert rounds() == rounds()


def test_a_common_prefix_and_equal_prompts_are_computed_once(engine: TransformersEngine) -> None:
    shared = ids(2, 60)
    session = engine.session()
    session.generate([ask(shared + ids(i % 4, 10), 2, 1.0, seed=i) for i in range(16)])
    assert session.prefilled == 60 + 4 * 10


def test_a_later_turn_computes_its_new_tokens_only(engine: TransformersEngine) -> None:
    session = engine.session()
    prompts = [ids(i, 40 + i) for i in range(6)]
    first = session.generate([ask(prompt, 3 + i) for i, prompt in enumerate(prompts)])
    before = session.prefilled
    turns = [p + g.output_ids + ids(50, 5) for p, g in zip(prompts, first, strict=True)]
    second = session.generate([ask(turn, 5) for turn in turns])
    # The last sampled token was never run through the model, so that it comes with the new ones.
    assert session.prefilled - before == 6 * (5 + 1)
    for turn, generation in zip(turns, second, strict=True):
        assert_close(generation, alone(engine, ask(turn, 5)))


def test_turns_continue_after_rows_have_ended_at_different_times(engine: TransformersEngine) -> None:
    session = engine.session()
    turns = {i: ids(i, 10 + 3 * i) for i in range(8)}
    rng = random.Random(0)
    for step in range(4):
        batch = sorted(rng.sample(sorted(turns), 8 - step))
        done = session.generate([ask(turns[i], 1 + (i * 5 + step) % 7, 0.9, seed=i) for i in batch])
        for i, generation in zip(batch, done, strict=True):
            assert_close(generation, alone(engine, ask(turns[i], 1 + (i * 5 + step) % 7, 0.9, seed=i)))
            turns[i] += generation.output_ids + ids(step, 2)


def test_a_prompt_longer_than_a_prefill_pass_is_cut_into_pieces(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [ask(ids(i, 90 - 20 * i), 5) for i in range(3)]
    whole = engine.session().generate(requests)
    monkeypatch.setattr("whale.rollout.decoding._PREFILL_WIDTH", 16)
    monkeypatch.setattr("whale.rollout.decoding._PREFILL_TOKENS", 40)
    for a, b in zip(engine.session().generate(requests), whole, strict=True):
        assert_close(a, b)


def test_little_memory_splits_a_call_and_keeps_no_more_than_the_bound(tiny_model: Path) -> None:
    small = TransformersEngine(tiny_model, dtype="float32", threads=1, kv_bytes=300 * 512)
    large = TransformersEngine(tiny_model, dtype="float32", threads=1)
    session = small.session()
    for a, b in zip(session.generate(mixed_requests()), large.session().generate(mixed_requests()), strict=True):
        assert_close(a, b)
    assert 0 < sum(block.nbytes for block in session._blocks) <= 300 * 512


def test_sampling_follows_the_models_distribution(engine: TransformersEngine) -> None:
    prompt, draws, temperature = ids(3, 12), 4000, 0.7
    done = engine.session().generate([ask(prompt, 1, temperature, seed=i) for i in range(draws)])
    with torch.inference_mode():
        logits = engine.model(torch.tensor([prompt])).logits[0, -1]
    p = torch.softmax(logits / temperature, -1).numpy()
    counts = np.bincount([g.output_ids[0] for g in done], minlength=len(p))
    often = p * draws >= 5
    observed = np.append(counts[often], counts[~often].sum())
    expected = np.append(p[often], p[~often].sum()) * draws
    chi2 = float(((observed - expected) ** 2 / expected).sum())
    freedom = len(observed) - 1
    assert freedom > 5
    # Four standard deviations of a chi-square: a wrong law is off by hundreds.
    assert chi2 < freedom + 4 * math.sqrt(2 * freedom)
    logprob = {g.output_ids[0]: g.logprobs[0] for g in done}
    untempered = torch.log_softmax(logits, -1)
    assert all(abs(float(untempered[i]) - value) < TOLERANCE for i, value in logprob.items())


@given(st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=700), st.floats(0, 1, exclude_max=True))
@settings(max_examples=100, deadline=None)
def test_the_sampled_id_is_the_inverse_cdf(values: list[float], uniform: float) -> None:
    logits = torch.tensor([values])
    got, logprob = next_tokens(logits, torch.tensor([0.5]), torch.tensor([uniform], dtype=torch.float64))
    p = torch.softmax(logits / 0.5, -1)[0].double()
    upto = p.cumsum(0) / p.sum()
    chosen = int(got)
    assert p[chosen] > 0
    assert upto[chosen] >= uniform - 1e-9
    assert chosen == 0 or upto[chosen - 1] <= uniform + 1e-9
    assert abs(float(logprob) - float(torch.log_softmax(logits, -1)[0, chosen])) < 1e-4


def test_zero_temperature_breaks_ties_to_the_lower_id() -> None:
    logits = torch.tensor([[0.0, 5.0, 5.0], [7.0, 7.0, 7.0]])
    got, _ = next_tokens(logits, torch.zeros(2), torch.full((2,), 0.9, dtype=torch.float64))
    assert got.tolist() == [1, 0]


def test_logits_that_are_not_finite_are_refused() -> None:
    with pytest.raises(FloatingPointError):
        next_tokens(torch.tensor([[0.0, math.nan]]), torch.zeros(1), torch.zeros(1, dtype=torch.float64))


@given(st.integers(-(2**70), 2**70), st.integers(1, 40))
def test_random_numbers_are_a_function_of_seed_and_step(seed: int, count: int) -> None:
    stream = uniforms(seed, 40)
    assert (uniforms(seed, count) == stream[:count]).all()
    assert ((stream >= 0) & (stream < 1)).all()
    assert (uniforms(seed + 1, 40) != stream).any()


def with_token_forced(engine: TransformersEngine, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """Greedy tokens of a prompt, for tests that stop at one of them."""
    return alone(engine, ask(prompt, 12)).output_ids


@pytest.fixture
def stopping_at(engine: TransformersEngine) -> Iterator[Any]:
    kept = engine.chat.stop_ids

    def use(token: int) -> None:
        engine.chat.stop_ids = frozenset({token})

    yield use
    engine.chat.stop_ids = kept


def test_a_generation_ends_with_exactly_one_stop_token(engine: TransformersEngine, stopping_at: Any) -> None:
    prompts = [ids(i, 9) for i in range(5)]
    plain = [with_token_forced(engine, prompt) for prompt in prompts]
    token = plain[0][4]
    stopping_at(token)
    for whole, done in zip(plain, engine.session().generate([ask(p, 12) for p in prompts]), strict=True):
        cut = whole[: whole.index(token) + 1] if token in whole else whole
        assert done.output_ids == cut
        assert done.finish_reason == ("stop" if token in whole else "length")
        assert len(done.logprobs) == len(cut)


def test_finished_rows_leave_the_batch(engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    forward = engine.forward

    def spy(ids_BQ: Any, *args: Any, **kwargs: Any) -> Any:
        sizes.append(len(ids_BQ))
        return forward(ids_BQ, *args, **kwargs)

    monkeypatch.setattr(engine, "forward", spy)
    engine.session().generate([ask(ids(i, 5), new) for i, new in enumerate([1, 2, 4, 4])])
    assert sizes == [4, 3, 2, 2]


@given(seed=st.integers(0, 30), first=st.integers(0, 14), width=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_a_stop_string_ends_at_the_token_that_completes_it(
    engine: TransformersEngine, seed: int, first: int, width: int
) -> None:
    prompt = ids(seed, 7)
    whole = alone(engine, ask(prompt, 16, 0.9, seed)).output_ids
    text = engine.chat.decode(whole)
    stop = text[first : first + width]
    if not stop or "\ufffd" in stop:
        return
    done = alone(engine, ask(prompt, 16, 0.9, seed, (stop, "never said")))
    ends = next(n for n in range(1, len(whole) + 1) if stop in engine.chat.decode(whole[:n]))
    assert done.output_ids == whole[:ends]
    assert done.finish_reason == "stop"


def test_a_request_beyond_the_context_is_refused_before_anything_is_computed(
    engine: TransformersEngine,
) -> None:
    session = engine.session()
    with pytest.raises(WhaleError, match="1020 prompt tokens and 8 new ones exceed the model's context of 1024"):
        session.generate([ask(ids(0, 5)), ask(ids(0, 1020), 8)])
    assert session.prefilled == 0
    with pytest.raises(WhaleError, match="context"):
        engine.logprobs([ids(0, 1025)])


def test_new_weights_give_what_a_fresh_engine_gives(tmp_path: Path, tiny_model: Path) -> None:
    other = write_tiny_model(tmp_path / "other", seed=5)
    fresh = TransformersEngine(other, dtype="float32", threads=1, version="new")
    changed = TransformersEngine(tiny_model, dtype="float32", threads=1, version="old")
    before = changed.session()
    stale = before.generate(mixed_requests())
    changed.update_weights(fresh.model.state_dict(), "new")
    assert changed.weights_version == "new"
    with pytest.raises(RuntimeError, match="closed"):
        before.generate(mixed_requests())
    now = changed.session().generate(mixed_requests())
    assert now == fresh.session().generate(mixed_requests())
    assert now != stale
    assert changed.logprobs([ids(0, 20)]) == fresh.logprobs([ids(0, 20)])


@pytest.mark.parametrize("left_out", ["lm_head.weight", "model.embed_tokens.weight"])
def test_either_name_of_a_tied_weight_moves_both(tmp_path: Path, tiny_model: Path, left_out: str) -> None:
    fresh = TransformersEngine(write_tiny_model(tmp_path / "other", seed=5), dtype="float32", threads=1)
    changed = TransformersEngine(tiny_model, dtype="float32", threads=1)
    state = {name: tensor for name, tensor in fresh.model.state_dict().items() if name != left_out}
    changed.update_weights(state, "new")
    assert changed.logprobs([ids(0, 20)]) == fresh.logprobs([ids(0, 20)])


def broken(state: dict[str, torch.Tensor], how: str) -> dict[str, torch.Tensor]:
    changed = {name: tensor + 1 for name, tensor in state.items()}
    if how == "missing":
        del changed["model.norm.weight"]
    elif how == "unknown":
        changed["model.extra"] = torch.zeros(1)
    elif how == "is \\(3,\\)":
        changed["model.norm.weight"] = torch.zeros(3)
    else:
        changed["lm_head.weight"] = changed["lm_head.weight"] + 1
    return changed


@pytest.mark.parametrize("how", ["missing", "unknown", "is \\(3,\\)", "tied"])
def test_weights_that_do_not_fit_are_refused_and_change_nothing(engine: TransformersEngine, how: str) -> None:
    before = {name: tensor.clone() for name, tensor in engine.model.state_dict().items()}
    session = engine.session()
    with pytest.raises(WhaleError, match=how):
        engine.update_weights(broken(before, how), "new")
    assert all(torch.equal(tensor, before[name]) for name, tensor in engine.model.state_dict().items())
    assert engine.weights_version != "new"
    assert session.generate([ask(ids(0, 5))])


def test_broken_weights_are_one_clear_error(tmp_path: Path) -> None:
    engine = TransformersEngine(write_tiny_model(tmp_path / "m"), dtype="float32", threads=1)
    state = {name: tensor * math.nan for name, tensor in engine.model.named_parameters()}
    engine.update_weights(state, "nan")
    with pytest.raises(WhaleError, match="not finite under weights nan"):
        engine.session().generate([ask(ids(0, 5))])


def test_closing_frees_the_cache(engine: TransformersEngine) -> None:
    session = engine.session()
    session.generate([ask(ids(0, 5))])
    session.close()
    assert session._blocks == []
    with pytest.raises(RuntimeError):
        session.generate([ask(ids(0, 5))])


def test_an_empty_call_gives_an_empty_result(engine: TransformersEngine) -> None:
    assert engine.session().generate([]) == []


def test_a_long_sequence_has_the_same_logprobs_in_pieces(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = engine.logprobs([ids(0, 70)])[0]
    monkeypatch.setattr("whale.rollout.transformers_engine._LOGPROB_TOKENS", 16)
    assert np.allclose(engine.logprobs([ids(0, 70)])[0], whole, atol=TOLERANCE)


def test_packed_weights_follow_the_plain_ones() -> None:
    plain = torch.nn.Linear(24, 40)
    model = torch.nn.Sequential(plain)
    assert pack_linears(model) == 1
    assert [name for name, _ in model.named_parameters()] == ["0.weight", "0.bias"]
    x = torch.randn(3, 5, 24)
    with torch.no_grad():
        for _ in range(3):
            plain.weight.mul_(-2)
            assert torch.allclose(model(x), plain(x), atol=1e-5)
    model(x).sum().backward()
    assert plain.weight.grad is not None


def test_a_folder_without_a_model_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no model in"):
        TransformersEngine(tmp_path)


def test_a_config_value_names_the_dtype_and_the_device(tiny_model: Path) -> None:
    assert resolve_dtype("bfloat16", torch.device("cpu")) is torch.bfloat16
    with pytest.raises(UsageError, match="unknown dtype 'int4'"):
        resolve_dtype("int4", torch.device("cpu"))
    with pytest.raises(UsageError, match="unknown device 'abacus'"):
        TransformersEngine(tiny_model, device="abacus")


def test_bfloat16_generates_and_reports_finite_logprobs(tiny_model: Path) -> None:
    engine = TransformersEngine(tiny_model, dtype="bfloat16", threads=1)
    for done in engine.session().generate(mixed_requests()):
        assert all(math.isfinite(value) and value <= 0 for value in done.logprobs)
