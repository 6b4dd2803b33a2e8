"""The engine on a vLLM server, by URL: token ids over HTTP, new weights through a folder that both see.

The server runs with VLLM_SERVER_DEV_MODE=1, which opens the calls for new weights and for the prefix cache, and so
in a network that is trusted. Not deterministic, as `VllmEngine`.
"""

import itertools
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx2
import torch

from whale.errors import UsageError, WhaleError
from whale.rollout.chat import ChatCodec
from whale.rollout.decoding import ContextError
from whale.rollout.devices import resolve_device, resolve_dtype
from whale.rollout.finished import generation_of
from whale.rollout.models import MODEL_FILES
from whale.rollout.new_weights import fit_weights, named_parameters
from whale.rollout.types import GenerateRequest, Generation
from whale.rollout.vllm_engine import model_shape, tokenizer_of

START = "VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server --model FOLDER --generation-config vllm"
_CONNECT_SECONDS = 10.0
_AT_ONCE = 512
_RESETS = 8


class VllmServer:
    """The HTTP side: one call a method. Raises WhaleError in one line for a server that is gone or refuses."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(
                f'engine.url = {url!r}: give the address of a vLLM server, such as "http://127.0.0.1:8000"'
            )
        self.url = url.rstrip("/")
        limits = httpx2.Limits(max_connections=_AT_ONCE, max_keepalive_connections=_AT_ONCE)
        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)  # how long sampling takes, nobody knows
        self._client = httpx2.Client(base_url=self.url, limits=limits, timeout=timeout)

    def model(self) -> tuple[str, int]:
        """Return the served model's name and its context length."""
        found = self._call("GET", "/v1/models")["data"][0]
        return str(found["id"]), int(found["max_model_len"])

    def complete(self, fields: Mapping[str, Any]) -> Any:
        """Return the one choice of a completion."""
        return self._call("POST", "/v1/completions", json=dict(fields))["choices"][0]

    def reload(self, folder: Path) -> None:
        """Have the server take the weights in `folder`, and forget every cached prefix."""
        self._call(
            "POST", "/collective_rpc", json={"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        )
        for _ in range(_RESETS):
            if self._call("POST", "/reset_prefix_cache").get("success") is True:
                return
        raise WhaleError(
            f"{self.url}: the server did not say that its prefix cache is cleared after new weights: cached prefixes "
            "would answer for the old ones; is another client using it?"
        )

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

    def _call(self, method: str, path: str, **named: Any) -> Any:
        try:
            response = self._client.request(method, path, **named)
        except httpx2.HTTPError as error:
            raise WhaleError(
                f"{self.url}: the vLLM server does not answer ({type(error).__name__}); start it with `{START}`, "
                "then `whale resume`"
            ) from error
        if response.status_code == 404 and path in ("/collective_rpc", "/reset_prefix_cache"):
            raise WhaleError(f"{self.url}: the vLLM server takes no new weights: start it with `{START}`")
        if response.status_code != 200:
            raise WhaleError(
                f"{self.url}{path}: the vLLM server answered {response.status_code}: {response.text[:300].strip()}"
            )
        return response.json() if response.content else {}


class VllmServerEngine:
    """A causal language model behind a vLLM server that serves the folder `path`, or its copy.

    `weights_folder` is where new weights are written, one folder a version, and must be the same path for the server;
    empty: a temporary folder of this machine. What the server holds at first is unknown, so `weights_version` is "".
    Raises UsageError for a bad address, WhaleError if no server answers there.
    """

    name = "vllm-server"
    deterministic = False

    def __init__(
        self, path: Path, url: str, device: str = "auto", dtype: str = "auto", weights_folder: str = ""
    ) -> None:
        self._server = VllmServer(url)
        self._model, self.context_length = self._server.model()
        self.device = resolve_device(device)
        self.dtype = resolve_dtype(dtype, self.device)
        self._path = path
        self._parameters = named_parameters(model_shape(path))
        self.chat = ChatCodec(*tokenizer_of(path))
        self._own = tempfile.TemporaryDirectory(prefix="whale-weights-") if not weights_folder else None
        self._folder = Path(self._own.name if self._own else weights_folder)
        self._serial = itertools.count()
        self._current: Path | None = None
        self._version = ""
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="vllm-request")
        self._sessions: weakref.WeakSet[VllmServerSession] = weakref.WeakSet()

    @property
    def weights_version(self) -> str:
        """Digest of the weights that were given to the server last."""
        return self._version

    def session(self) -> "VllmServerSession":
        """Open a micro-batch."""
        session = VllmServerSession(self)
        self._sessions.add(session)
        return session

    def update_weights(self, state_dict: Mapping[str, Any], version: str) -> None:
        """Write the weights to a new folder, have the server take them, and clear its prefix cache.

        Raises WhaleError as `VllmEngine.update_weights`, and if the folder cannot be written.
        """
        chosen = fit_weights(self._parameters, state_dict)
        names = {id(parameter): names for parameter, names in self._parameters}
        for session in list(self._sessions):
            session.close()
        self._version = ""
        tensors = {
            # Tied weights under every name, each a copy of its own, as the file format wants it.
            name: tensor.detach().to("cpu", self.dtype, copy=True).contiguous()
            for parameter, tensor in chosen
            for name in names[id(parameter)]
        }
        folder = self._write(tensors)
        self._server.reload(folder)
        if self._current is not None:
            shutil.rmtree(self._current, ignore_errors=True)
        self._current, self._version = folder, version

    def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """Per sequence: log π(id_t | id_<t) for t >= 1, without any cached prefix."""
        for ids in token_ids:
            if len(ids) >= self.context_length:
                raise ContextError(len(ids), 1, self.context_length)
        return list(self._pool.map(self._score, token_ids))

    def sample(self, request: GenerateRequest) -> Generation:
        """Sample one request; blocks until it is finished."""
        choice = self._server.complete(
            {
                "model": self._model,
                "prompt": list(request.prompt_ids),
                "max_tokens": request.max_tokens,
                "temperature": request.temperature,
                "seed": request.seed % 2**63,
                "stop": [text for text in request.stop if text],
                "include_stop_str_in_output": True,
                "stop_token_ids": sorted(self.chat.stop_ids),
                "ignore_eos": True,
                "logprobs": 0,
                "return_token_ids": True,
            }
        )
        logprobs = [float("nan") if value is None else value for value in choice["logprobs"]["token_logprobs"]]
        return generation_of(
            self.chat, request, choice["token_ids"], logprobs, str(choice["finish_reason"]), self._version
        )

    def submit(self, request: GenerateRequest) -> "Future[Generation]":
        """Sample one request beside others."""
        return self._pool.submit(self.sample, request)

    def close(self) -> None:
        """Drop what is under way, the connections and the weights that were written. The server goes on."""
        for session in list(self._sessions):
            session.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._server.close()
        if self._current is not None:
            shutil.rmtree(self._current, ignore_errors=True)
        if self._own is not None:
            self._own.cleanup()

    def _score(self, ids: Sequence[int]) -> list[float]:
        if len(ids) < 2:
            return []
        choice = self._server.complete(
            {"model": self._model, "prompt": list(ids), "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
        )
        scored = choice["prompt_logprobs"]
        return [float(scored[at][str(ids[at])]["logprob"]) for at in range(1, len(ids))]

    def _write(self, tensors: Mapping[str, torch.Tensor]) -> Path:
        """A new folder each time: a server may remember what it read under a name."""
        from safetensors.torch import save_file

        folder = self._folder / f"weights-{next(self._serial):04d}"
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for file in self._path.iterdir():
                if file.suffix in MODEL_FILES and not file.name.endswith(".index.json"):
                    shutil.copy(file, folder / file.name)
            save_file(dict(tensors), folder / "model.safetensors", metadata={"format": "pt"})
        except OSError as error:
            raise WhaleError(f"{folder}: cannot write the new weights: {error.strerror or error}") from error
        return folder


class VllmServerSession:
    """A micro-batch on a server; a `ContinuousSession`."""

    def __init__(self, engine: VllmServerEngine) -> None:
        self._engine = engine
        self._tickets = itertools.count()
        self._out: dict[Future[Generation], int] = {}
        self._closed = False

    def submit(self, request: GenerateRequest) -> int:
        """Send a request; returns its ticket. Raises ContextError, RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError("the session is closed: open a new one after a weight update")
        if len(request.prompt_ids) + request.max_tokens > self._engine.context_length:
            raise ContextError(len(request.prompt_ids), request.max_tokens, self._engine.context_length)
        ticket = next(self._tickets)
        self._out[self._engine.submit(request)] = ticket
        return ticket

    def advance(self) -> list[tuple[int, Generation]]:
        """Wait a moment for what is under way; returns what is finished. Raises WhaleError for a dead server."""
        if self._closed:
            raise RuntimeError("the session is closed: open a new one after a weight update")
        # Not for ever: an episode may have something to ask meanwhile.
        finished, _ = wait(self._out, timeout=0.02, return_when=FIRST_COMPLETED)
        return [(self._out.pop(future), future.result()) for future in finished]

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Sample all requests together; results in request order."""
        tickets = [self.submit(request) for request in requests]
        found: dict[int, Generation] = {}
        while len(found) < len(tickets):
            found.update(self.advance())
        return [found[ticket] for ticket in tickets]

    def close(self) -> None:
        """Wait for what was sent, and drop it. A closed session samples no more."""
        if not self._closed:
            for future in self._out:
                future.cancel()
            wait(self._out)  # new weights must not meet a request of the old ones
            self._out.clear()
            self._closed = True
