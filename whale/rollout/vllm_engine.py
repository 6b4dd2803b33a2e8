"""The engine on vLLM, in this process: continuous batching over all running episodes, prefix caching on.

Not deterministic: a logit's last bits depend on who else is in the batch, so that no digest follows from a seed.
A micro-batch seeds vLLM's generator with its first request's seed; the draws of a row are not its own, since a
generator for each row would cost a kernel for each row and token.
"""

import itertools
import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from whale.errors import UsageError, WhaleError
from whale.rollout.chat import ChatCodec
from whale.rollout.decoding import ContextError
from whale.rollout.devices import resolve_device, resolve_dtype
from whale.rollout.finished import generation_of
from whale.rollout.memory_plan import MemoryPlan, plan_memory
from whale.rollout.models import model_digest
from whale.rollout.new_weights import fit_weights, named_parameters
from whale.rollout.stopping import StopScanner
from whale.rollout.types import GenerateRequest, Generation
from whale.rollout.vllm_library import Ask, InProcess

_ROWS, _MOST_ROWS = 256, 4096
"""Rows of a step: at least, and as many as vLLM's room for a step's tokens allows on all devices."""


class VllmEngine:
    """A causal language model from a Hugging Face folder, served by vLLM in this process.

    `device` and `dtype` as in `TransformersEngine`. `kv_bytes` of 0 is planned from what is free, with room for a
    `trainer` of the same model on the device, and for the other engines `sharing` it (`plan_memory`). `at_once`: how
    many episodes a micro-batch has; vLLM gets room for as many rows. `options` go to vLLM's `EngineArgs` as they are.
    Raises UsageError for a folder without a model or an unknown option, WhaleError if vLLM is missing or cannot
    start.
    """

    name = "vllm"
    deterministic = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        device: str = "auto",
        dtype: str = "auto",
        threads: int | None = None,
        *,
        version: str | None = None,
        kv_bytes: int = 0,
        at_once: int = 0,
        options: Mapping[str, Any] | None = None,
        trainer: bool = True,
        sharing: int = 1,
        lora_rank: int = 0,
    ) -> None:
        path = Path(path)
        if not (path / "config.json").is_file():
            raise UsageError(f"no model in {path}: give a Hugging Face folder, or run `whale models fetch`")
        if threads is not None:
            torch.set_num_threads(threads)
        self.device = resolve_device(device)
        self.dtype = resolve_dtype(dtype, self.device)
        shape = model_shape(path)
        self._parameters = named_parameters(shape)
        self.memory: MemoryPlan = plan_memory(
            shape, self.dtype, self.device, kv_bytes, trainer=trainer, sharing=sharing, lora_rank=lora_rank
        )
        self._library = InProcess(
            path,
            dtype=self.dtype,
            device=self.device,
            kv_bytes=self.memory.kv_bytes,
            memory_share=self.memory.share,
            options={"max_num_seqs": _rows(at_once, options or {}), **(options or {})},
        )
        self.context_length = self._library.context_length
        self.chat = ChatCodec(*tokenizer_of(path))
        """Encodes and decodes for this model; holds the stop ids."""
        self._version = version if version is not None else model_digest(path)
        self._tickets = itertools.count()
        self._sessions: weakref.WeakSet[VllmSession] = weakref.WeakSet()

    @property
    def weights_version(self) -> str:
        """Digest of the weights that are loaded."""
        return self._version

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a generation; kept as its last output id."""
        return self.chat.stop_ids

    def session(self) -> "VllmSession":
        """Open a micro-batch."""
        session = VllmSession(self, self._library)
        self._sessions.add(session)
        return session

    def ticket(self) -> int:
        """A number that no other request has."""
        return next(self._tickets)

    def update_weights(self, state_dict: Mapping[str, Any], version: str) -> None:
        """Copy new weights in place, clear the prefix cache, and close every open session.

        All parameters must be named; of tied ones any of the names will do. Raises WhaleError, with nothing
        copied, for a missing or unknown name, a wrong shape, or tied names with different tensors; and if the
        cache is not cleared, when the engine is of no more use.
        """
        chosen = fit_weights(self._parameters, state_dict)
        names = {id(parameter): names for parameter, names in self._parameters}
        for session in list(self._sessions):
            session.close()
        # The version is void until all is copied: a failure in between must not pass for the old weights.
        self._version = ""
        # Under every one of its names: without "lm_head.weight" a tied head keeps the old weights on the CPU.
        self._library.load(
            (name, tensor.to(self.device, self.dtype)) for parameter, tensor in chosen for name in names[id(parameter)]
        )
        self._library.reset_cache()
        self._version = version

    def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """Per sequence: log π(id_t | id_<t) for t >= 1, without any cached prefix."""
        for ids in token_ids:
            if len(ids) >= self.context_length:  # vLLM samples one token behind what it scores
                raise ContextError(len(ids), 1, self.context_length)
        tickets = {}
        for at, ids in enumerate(token_ids):
            if len(ids) > 1:
                name = str(self.ticket())
                tickets[name] = at
                self._library.add(Ask(name, tuple(ids), 1, 0.0, frozenset(), score_prompt=True))
        results: list[list[float]] = [[] for _ in token_ids]
        while tickets:
            for done in self._library.step():
                if done.request in tickets:
                    results[tickets.pop(done.request)] = list(done.prompt_logprobs)
        return results

    def close(self) -> None:
        """End vLLM and free its memory."""
        for session in list(self._sessions):
            session.close()
        self._library.close()


class VllmSession:
    """A micro-batch on vLLM; a `ContinuousSession`. Prefixes are shared with all that is cached."""

    def __init__(self, engine: VllmEngine, library: InProcess) -> None:
        self._engine = engine
        self._library = library
        self._out: dict[str, GenerateRequest] = {}
        self._seeded = False
        self._closed = False

    def submit(self, request: GenerateRequest) -> int:
        """Queue a request; returns its ticket. Raises ContextError, RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError("the session is closed: open a new one after a weight update")
        if len(request.prompt_ids) + request.max_tokens > self._engine.context_length:
            raise ContextError(len(request.prompt_ids), request.max_tokens, self._engine.context_length)
        if not self._seeded:
            torch.manual_seed(request.seed % 2**63)
            self._seeded = True
        ticket = self._engine.ticket()
        self._library.add(
            Ask(
                str(ticket),
                request.prompt_ids,
                request.max_tokens,
                request.temperature,
                self._engine.stop_ids,
                StopScanner(self._engine.chat, request.stop).push if any(request.stop) else None,
            )
        )
        self._out[str(ticket)] = request
        return ticket

    def advance(self) -> list[tuple[int, Generation]]:
        """Compute one batch; returns what it finished, by ticket. Raises WhaleError for a dead engine."""
        if self._closed:
            raise RuntimeError("the session is closed: open a new one after a weight update")
        finished = [
            (
                int(done.request),
                generation_of(
                    self._engine.chat,
                    self._out.pop(done.request),
                    done.output_ids,
                    done.logprobs,
                    done.finish_reason,
                    self._engine.weights_version,
                ),
            )
            for done in self._library.step()
            if done.request in self._out
        ]
        if self._out and not self._library.busy():
            raise WhaleError(f"vLLM lost {len(self._out)} requests: `whale resume` samples them again")
        return finished

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Sample all requests together; results in request order. Raises as `submit` and `advance` do."""
        if self._closed:
            raise RuntimeError("the session is closed: open a new one after a weight update")
        for request in requests:
            if len(request.prompt_ids) + request.max_tokens > self._engine.context_length:
                raise ContextError(len(request.prompt_ids), request.max_tokens, self._engine.context_length)
        tickets = [self.submit(request) for request in requests]
        found: dict[int, Generation] = {}
        while len(found) < len(tickets):
            found.update(self.advance())
        return [found[ticket] for ticket in tickets]

    def close(self) -> None:
        """Drop what is not finished. A closed session samples no more."""
        if not self._closed:
            self._library.abort(self._out)
            self._out.clear()
            self._closed = True


def _rows(at_once: int, options: Mapping[str, Any]) -> int:
    """Rows of a step for a micro-batch of this size; no more than a step's tokens, if the options say these."""
    tokens = options.get("max_num_batched_tokens")
    return min(max(at_once, _ROWS), _MOST_ROWS, tokens if isinstance(tokens, int) else _MOST_ROWS)


def model_shape(path: Path) -> torch.nn.Module:
    """The model without its weights: names, shapes and which are tied."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(path, local_files_only=True)
    build: Any = AutoModelForCausalLM.from_config
    with torch.device("meta"):
        model: torch.nn.Module = build(config)
    return model


def tokenizer_of(path: Path) -> tuple[Any, list[int]]:
    """The tokenizer, and the ids that the model's own configuration calls ends."""
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    try:
        eos = GenerationConfig.from_pretrained(path, local_files_only=True).eos_token_id
    except OSError:
        eos = getattr(AutoConfig.from_pretrained(path, local_files_only=True), "eos_token_id", None)
    ids = eos if isinstance(eos, list) else [eos]
    return tokenizer, [int(value) for value in ids if value is not None]
