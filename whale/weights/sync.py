"""Does an engine hold the weights that it was given? Its log-probabilities say so."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from whale.errors import WhaleError


class Scoring(Protocol):
    """What a check needs of an engine, whichever process it is in."""

    @property
    def name(self) -> str:
        """As an error names it."""
        ...

    def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """As `Engine.logprobs`."""
        ...


def check_engine(
    engine: Scoring, sequences: Sequence[Sequence[int]], expected: Sequence[Sequence[float]], tolerance: float
) -> float:
    """Return the mean |log π_engine - log π| over the tokens of `sequences`; `expected` is log π(id_t | id_<t).

    Run after a sync: stale caches and a head that stayed old both show here. The mean, since in bf16 a single
    unlikely token differs by a few tenths between two correct kernels. Raises WhaleError if it is above
    `tolerance` or not a number.
    """
    differences = [
        abs(a - b)
        for ours, theirs in zip(expected, engine.logprobs(sequences), strict=True)
        for a, b in zip(ours, theirs, strict=True)
    ]
    mean = math.fsum(differences) / len(differences) if differences else 0.0
    if not mean <= tolerance:  # also where it is not a number
        raise WhaleError(
            f"engine {engine.name} does not hold the trainer's weights: log-probabilities differ by "
            f"{mean:.3g} on average (tolerance {tolerance:g}) after the sync; `whale resume` loads the checkpoint"
        )
    return mean


def reference_logprobs(
    model: Path, weights: Mapping[str, Any], sequences: Sequence[Sequence[int]], device: torch.device
) -> list[list[float]]:
    """Return log π(id_t | id_<t) under `weights`, in fp32, by transformers' own forward pass.

    Builds the model for the call: seconds, and 4 bytes a parameter.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(model, local_files_only=True)
    build: Any = AutoModelForCausalLM.from_config
    reference = build(config, dtype=torch.float32)
    reference.load_state_dict(weights, strict=False)
    reference.tie_weights()
    reference.to(device).eval()
    results = []
    with torch.inference_mode():
        for ids in sequences:
            logits_QV = reference(torch.tensor([list(ids)], device=device)).logits[0, :-1].float()
            wanted = torch.tensor(list(ids[1:]), device=device)[:, None]
            results.append((logits_QV.gather(-1, wanted)[:, 0] - logits_QV.logsumexp(-1)).tolist())
    return results
