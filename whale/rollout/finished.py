"""What another engine says it sampled, as a Generation: checked, and ended by our own rule."""

import math
from collections.abc import Sequence

from whale.errors import WhaleError
from whale.rollout.chat import ChatCodec
from whale.rollout.stopping import stopped_at
from whale.rollout.types import GenerateRequest, Generation


def generation_of(
    chat: ChatCodec,
    request: GenerateRequest,
    output_ids: Sequence[int],
    logprobs: Sequence[float],
    finish_reason: str,
    weights: str,
) -> Generation:
    """Translate; one rule says where a stop string ends, whatever engine sampled: the codec's.

    Raises WhaleError for a request that was not finished, and for log-probabilities that are not finite.
    """
    if finish_reason not in ("stop", "length") or not output_ids or len(logprobs) != len(output_ids):
        raise WhaleError(
            f"vLLM ended a request with {finish_reason!r}, {len(output_ids)} tokens and {len(logprobs)} logprobs: "
            "`whale resume` samples it again"
        )
    if not math.isfinite(math.fsum(logprobs)):
        raise WhaleError(
            f"the model's logits are not finite under weights {weights[:12]}: "
            "go back to an earlier checkpoint, or lower the learning rate"
        )
    end = stopped_at(chat, request.stop, output_ids)
    if end is not None and end < len(output_ids):
        return Generation(tuple(output_ids[:end]), tuple(logprobs[:end]), "stop")
    return Generation(tuple(output_ids), tuple(logprobs), "stop" if finish_reason == "stop" else "length")
