"""The next token of each row, by a random number that belongs to the row alone."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

_BLOCK = 256
"""Ids per block of the two-level inverse CDF."""


def uniforms(seed: int, count: int) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Return the first `count` numbers in [0, 1) of the stream that belongs to `seed`.

    Philox (Salmon et al. 2011) is a counter-based generator: number t is a function of (seed, t), so that it
    depends neither on the batch nor on `count`. Taken from the raw 64-bit words, whose stream numpy keeps.
    """
    words = np.random.Philox(key=seed % 2**128).random_raw(count)
    return np.asarray((words >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def next_tokens(logits_BV: Tensor, temperature_B: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Sample one id per row; return ids (B,) and their log-probabilities under the untempered softmax (B,).

    Temperature 0 takes the largest logit, the lower id on a tie. Otherwise the id is the inverse CDF of
    softmax(logits / temperature), in the order of ids, at `uniform_B` (float64, in [0, 1)).
    Raises FloatingPointError if a row has no finite distribution.
    """
    logits = logits_BV.float()
    norm_B = logits.logsumexp(-1)
    if not bool(norm_B.isfinite().all()):
        raise FloatingPointError("the model's logits are not finite")
    greedy_B = temperature_B == 0
    if bool(greedy_B.all()):
        ids_B = logits.argmax(-1)
    else:
        scale_B = torch.where(greedy_B, torch.ones_like(temperature_B), temperature_B)
        ids_B = _inverse_cdf(torch.softmax(logits / scale_B[:, None], -1), uniform_B)
        if bool(greedy_B.any()):
            ids_B = torch.where(greedy_B, logits.argmax(-1), ids_B)
    return ids_B, logits.gather(-1, ids_B[:, None]).squeeze(-1) - norm_B


def _inverse_cdf(p_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Smallest id whose cumulative probability exceeds the uniform number.

    Two levels, block sums and then one block, in float64: a cumulative sum over a whole vocabulary would
    cost more than the softmax, and in float32 its rounding is as large as a rare token's probability.
    """
    rows, vocabulary = p_BV.shape
    padded = torch.nn.functional.pad(p_BV, (0, -vocabulary % _BLOCK)).view(rows, -1, _BLOCK)
    upto_BK = padded.sum(-1, dtype=torch.float64).cumsum(-1)
    # The float32 probabilities do not sum to exactly one: stretch, and let no number reach the end.
    total_B = upto_BK[:, -1]
    target_B1 = torch.minimum(uniform_B * total_B, total_B.nextafter(torch.zeros_like(total_B)))[:, None]
    block_B1 = (upto_BK <= target_B1).sum(-1, keepdim=True).clamp(max=upto_BK.shape[1] - 1)
    before_B1 = torch.where(block_B1 > 0, upto_BK.gather(-1, (block_B1 - 1).clamp(min=0)), 0.0)
    inside_BI = padded.gather(1, block_B1[:, :, None].expand(-1, 1, _BLOCK)).squeeze(1).double()
    within_B1 = (inside_BI.cumsum(-1) <= target_B1 - before_B1).sum(-1, keepdim=True)
    # Rounding between the two sums can step past the block: then its last possible id is meant.
    possible_BI = torch.arange(_BLOCK, device=p_BV.device) * (inside_BI > 0)
    within_B1 = torch.minimum(within_B1, possible_BI.max(-1, keepdim=True).values)
    return (block_B1 * _BLOCK + within_B1).squeeze(-1)
