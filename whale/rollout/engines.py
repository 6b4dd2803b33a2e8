"""The engine that a config names, behind the one protocol."""

import os
from pathlib import Path
from typing import Protocol

import torch

from whale.config import EngineConfig
from whale.errors import UsageError
from whale.rollout.chat import ChatCodec
from whale.rollout.devices import replica_devices, resolve_device
from whale.rollout.types import Engine

_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
"""Of vLLM's options those that need more processes than one; it would wait for them without a word."""


class ChatEngine(Engine, Protocol):
    """An engine with its model's codec."""

    chat: ChatCodec
    device: torch.device
    dtype: torch.dtype

    def close(self) -> None:
        """Free what it holds. May be called again."""
        ...


def server_url(settings: EngineConfig) -> str:
    """The address of vllm-server: `WHALE_ENGINE_URL`, for one start alone, or the config's."""
    return os.environ.get("WHALE_ENGINE_URL") or settings.url


def require_engine(settings: EngineConfig) -> None:
    """Check that this engine can be had here, without loading it.

    Raises UsageError for a device that is not there or a setting that its engine does not know, WhaleError with
    the command that brings it for an engine that is not installed or a server that does not answer.
    """
    resolve_device(settings.device)
    replica_devices(settings.replicas, settings.device)
    if settings.name == "vllm":
        from whale.rollout.vllm_library import require_vllm

        require_vllm()
        for name in _PARALLEL:
            if settings.options.get(name, 1) != 1:
                raise UsageError(
                    f"engine.options: {name} = {settings.options[name]}: an engine is one process on one device; "
                    "for several GPUs set engine.replicas"
                )
    elif settings.kv_gb or settings.options:
        raise UsageError(f'engine.kv_gb and engine.options are of engine.name = "vllm"; {settings.name} knows neither')
    if settings.name == "vllm-server":
        from whale.rollout.vllm_server import VllmServer

        server = VllmServer(server_url(settings))
        server.model()
        server.close()
    elif settings.url or settings.weights_folder:
        raise UsageError('engine.url and engine.weights_folder are of engine.name = "vllm-server"')


def load_engine(
    settings: EngineConfig, model: Path, version: str, *, trainer: bool = True, sharing: int = 1, lora_rank: int = 0
) -> ChatEngine:
    """Load the engine with the model's own weights, whose digest is `version`.

    Its device keeps room for a trainer of the same model if there is one, of adapters where they have a rank, and for
    `sharing` such engines.
    """
    threads = settings.threads or None
    if settings.name == "vllm":
        from whale.rollout.vllm_engine import VllmEngine

        return VllmEngine(
            model,
            device=settings.device,
            dtype=settings.dtype,
            threads=threads,
            version=version,
            kv_bytes=int(settings.kv_gb * 2**30),
            at_once=-(-settings.micro_batch // settings.replicas),
            options=settings.options,
            trainer=trainer,
            sharing=sharing,
            lora_rank=lora_rank,
        )
    if settings.name == "vllm-server":
        from whale.rollout.vllm_server import VllmServerEngine

        return VllmServerEngine(model, server_url(settings), settings.device, settings.dtype, settings.weights_folder)
    from whale.rollout.transformers_engine import TransformersEngine

    return TransformersEngine(model, device=settings.device, dtype=settings.dtype, threads=threads, version=version)
