import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.weights.conftest import tiny_llama
from whale.weights.digest import trainer_digest, weights_digest


def weights() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {
        "model.embed_tokens.weight": torch.randn(6, 4, generator=draw),
        "model.norm.weight": torch.ones(4),
        "scale": torch.tensor(2.0),
    }


def test_the_digest_of_given_weights_stays_the_same_between_releases() -> None:
    fixed = {
        "b": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        "a": torch.ones(2, dtype=torch.bfloat16),
    }
    assert weights_digest(fixed) == "b196993cf5d06d94b192cdc87a34b6dfe608f920100ebd9a541b8ea76c9cde11"


def test_the_order_of_names_and_the_layout_in_memory_do_not_matter() -> None:
    plain = weights()
    turned = {name: plain[name] for name in reversed(plain)}
    embedding = "model.embed_tokens.weight"
    turned[embedding] = plain[embedding].t().contiguous().t()
    assert weights_digest(turned) == weights_digest(plain)


@given(st.integers(0, 23), st.integers(0, 31))
def test_one_flipped_bit_changes_the_digest(entry: int, bit: int) -> None:
    changed = weights()
    flat = changed["model.embed_tokens.weight"].view(torch.int32).reshape(-1)
    flat[entry] ^= 1 << bit if bit < 31 else -(2**31)
    assert weights_digest(changed) != weights_digest(weights())


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.update({"other": w.pop("scale")}),
        lambda w: w.update({"scale": w["scale"].reshape(1)}),
        lambda w: w.update({"scale": w["scale"].view(torch.int32)}),
        lambda w: w.pop("scale"),
    ],
    ids=["name", "shape", "dtype", "missing"],
)
def test_name_shape_and_dtype_count(change: object) -> None:
    changed = weights()
    change(changed)  # type: ignore[operator]  # a lambda of the table above
    assert weights_digest(changed) != weights_digest(weights())


def test_a_tied_head_counts_once_whichever_name_is_listed() -> None:
    both = dict(tiny_llama().state_dict())
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= both.keys()
    head_only = {k: v for k, v in both.items() if k != "model.embed_tokens.weight"}
    embedding_only = {k: v for k, v in both.items() if k != "lm_head.weight"}
    copied = {**both, "lm_head.weight": both["lm_head.weight"].clone()}
    digests = {weights_digest(listed) for listed in (both, head_only, embedding_only, copied)}
    assert len(digests) == 1


def test_an_untied_head_counts() -> None:
    untied = dict(tiny_llama(tie_word_embeddings=False).state_dict())
    changed = {**untied, "lm_head.weight": untied["lm_head.weight"] + 1}
    assert weights_digest(untied) != weights_digest(changed)


def test_the_trainers_digest_covers_weights_and_optimiser() -> None:
    moments = {"a/exp_avg": torch.ones(2), "a/step": torch.tensor(1.0)}
    base = trainer_digest("w", moments)
    assert trainer_digest("v", moments) != base
    assert trainer_digest("w", {}) != base
    assert trainer_digest("w", {**moments, "a/step": torch.tensor(2.0)}) != base
