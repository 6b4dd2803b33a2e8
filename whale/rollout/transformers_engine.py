"""The engine on plain transformers: any Llama-like causal model, on CPU and any GPU.

Deterministic: the results of a session's calls depend on the weights, the requests of this session in their
order, the device and the number of threads, and on nothing else.
"""

import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whale.errors import UsageError, WhaleError
from whale.rollout.chat import ChatCodec
from whale.rollout.decoding import ContextError, TransformersSession
from whale.rollout.devices import resolve_device, resolve_dtype
from whale.rollout.kv import ATTENTION, KVShape
from whale.rollout.new_weights import fit_weights, named_parameters
from whale.rollout.packed_linear import pack_linears

_LOGPROB_TOKENS = 512
"""Tokens per forward pass of `logprobs`: bounds the logits, which are vocabulary times that."""


class TransformersEngine:
    """A causal language model from a Hugging Face folder, with its own batched decoding.

    `device` "auto" is CUDA if there is one, else the CPU. `dtype` "auto" is bfloat16 where the hardware
    multiplies it, else float32. `threads` sets torch's for the whole process. `version` names the weights;
    by default the folder's digest. `kv_bytes` bounds the KV that a session keeps between its calls, and
    splits a call whose own KV would take more.

    Raises UsageError for a folder without a model, WhaleError for a model that this engine cannot serve.
    """

    name = "transformers"
    deterministic = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        device: str = "auto",
        dtype: str = "auto",
        threads: int | None = None,
        *,
        version: str | None = None,
        kv_bytes: int = 2 << 30,
    ) -> None:
        path = Path(path)
        if not (path / "config.json").is_file():
            raise UsageError(f"no model in {path}: give a Hugging Face folder, or run `whale models fetch`")
        if threads is not None:
            torch.set_num_threads(threads)
        self.device = resolve_device(device)
        self.dtype = resolve_dtype(dtype, self.device)
        self.kv_bytes = kv_bytes
        if self.device.type == "cuda":
            # cuBLAS reads it once, at its first product.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self.model, self.tokenizer = _load(path, self.dtype, self.device)
        pack_linears(self.model)
        self.context_length, self.kv_shape = _limits(self.model, self.dtype, self.device)
        self.chat = ChatCodec(self.tokenizer, _eos_ids(self.model.generation_config))
        """Encodes and decodes for this model; holds the stop ids."""
        self._parameters = named_parameters(self.model)
        self._version = version if version is not None else _folder_version(path)
        self._sessions: weakref.WeakSet[TransformersSession] = weakref.WeakSet()

    @property
    def weights_version(self) -> str:
        """Digest of the weights that are loaded."""
        return self._version

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a generation; kept as its last output id."""
        return self.chat.stop_ids

    def session(self) -> TransformersSession:
        """Open a micro-batch."""
        session = TransformersSession(self)
        self._sessions.add(session)
        return session

    def forward(self, ids_BQ: Tensor, mask_B1QL: Tensor | None, positions_BQ: Tensor, cache: Any, keep: int) -> Tensor:
        """Return the logits (B, keep, V) of the last `keep` of Q tokens."""
        logits: Tensor = self.model(
            input_ids=ids_BQ,
            attention_mask=mask_B1QL,
            position_ids=positions_BQ,
            past_key_values=cache,
            use_cache=cache is not None,
            logits_to_keep=keep,
        ).logits
        return logits

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Inference mode, with deterministic kernels."""
        before = (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        if self.device.type == "cuda":
            torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            with torch.inference_mode():
                yield
        finally:
            if self.device.type == "cuda":
                torch.use_deterministic_algorithms(before[0], warn_only=before[1])

    def update_weights(self, state_dict: Mapping[str, Any], version: str) -> None:
        """Copy new weights in place, cast to the engine's kind, and close every open session.

        All parameters must be named; of tied ones any of the names will do. Raises WhaleError, with nothing
        copied, for a missing or unknown name, a wrong shape, or tied names with different tensors.
        """
        chosen = fit_weights(self._parameters, state_dict)
        for session in list(self._sessions):
            session.close()
        # The version is void until all is copied: a failure in between must not pass for the old weights.
        self._version = ""
        with torch.no_grad():
            for parameter, tensor in chosen:
                parameter.copy_(tensor)
        self._version = version

    def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """Per sequence: log π(id_t | id_<t) for t >= 1, by a plain forward pass without any cache."""
        results: list[list[float]] = []
        with self.computing():
            for ids in token_ids:
                if len(ids) > self.context_length:
                    raise ContextError(len(ids), 0, self.context_length)
                results.append(self._sequence_logprobs(ids) if len(ids) > 1 else [])
        return results

    def close(self) -> None:
        """Close every open session."""
        for session in list(self._sessions):
            session.close()

    def _sequence_logprobs(self, ids: Sequence[int]) -> list[float]:
        ids_1Q = torch.tensor([list(ids)], device=self.device)
        length = len(ids)
        mask = torch.ones(length, length, dtype=torch.bool, device=self.device).tril()[None, None]
        positions = torch.arange(length, device=self.device)[None]
        decoder, head = self.model.get_decoder(), self.model.get_output_embeddings()
        if type(self.model).__name__ not in _PLAIN_HEADS or length <= _LOGPROB_TOKENS:
            logits_QV = self.forward(ids_1Q, mask, positions, None, length)[0, :-1].float()
            values = logits_QV.gather(-1, ids_1Q[0, 1:, None])[:, 0] - logits_QV.logsumexp(-1)
            return [float(value) for value in values]
        hidden_QH = decoder(
            input_ids=ids_1Q, attention_mask=mask, position_ids=positions, use_cache=False
        ).last_hidden_state[0]
        out: list[float] = []
        for first in range(0, length - 1, _LOGPROB_TOKENS):
            last = min(first + _LOGPROB_TOKENS, length - 1)
            logits_QV = head(hidden_QH[first:last]).float()
            wanted = ids_1Q[0, first + 1 : last + 1, None]
            out.extend((logits_QV.gather(-1, wanted)[:, 0] - logits_QV.logsumexp(-1)).tolist())
        return out


_PLAIN_HEADS = frozenset({"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM"})
"""Models whose logits are the head's product and nothing more: their head can be applied in pieces."""


def _load(path: Path, dtype: torch.dtype, device: torch.device) -> tuple[Any, Any]:
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers' own
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, attn_implementation=ATTENTION, local_files_only=True
        )
    except (OSError, ValueError, ImportError) as error:
        reason = str(error).strip().splitlines()[0]
        raise WhaleError(f"cannot load the model in {path}: {reason}") from error
    return _placed(model, device), tokenizer


def _placed(model: Any, device: torch.device) -> Any:
    return model.to(device).eval()


def _limits(model: Any, dtype: torch.dtype, device: torch.device) -> tuple[int, KVShape]:
    """Context length and the KV's shape; WhaleError for what the right-aligned cache cannot hold."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if not kinds <= {"full_attention", "sliding_attention"}:
        raise WhaleError(
            f"the transformers engine cannot serve {type(model).__name__}: its layers are {sorted(kinds)}, "
            "and it knows full attention only; use the vllm engine"
        )
    context = int(config.max_position_embeddings)
    window = getattr(config, "sliding_window", None)
    if window and ("sliding_attention" in kinds or not hasattr(config, "layer_types")):
        # Within its window a sliding layer sees everything: below that length both kinds are one.
        context = min(context, int(window))
    heads = config.num_attention_heads
    return context, KVShape(
        layers=config.num_hidden_layers,
        heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        dtype=dtype,
        device=device,
    )


def _eos_ids(generation_config: Any) -> list[int]:
    eos = getattr(generation_config, "eos_token_id", None)
    if eos is None:
        return []
    return [int(value) for value in eos] if isinstance(eos, Iterable) else [int(eos)]


def _folder_version(path: Path) -> str:
    from whale.rollout.models import model_digest

    return model_digest(path)
