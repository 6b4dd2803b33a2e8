"""Write a run's pair as a folder that stands alone. It is there complete, or not at all."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

import whale
from whale.alternation.decide import config_of
from whale.alternation.run_folder import RunFolder
from whale.alternation.started_in import as_started, run_domain, run_model
from whale.alternation.state import State
from whale.artifacts import sync_folder
from whale.config import Config, for_the_log
from whale.errors import ConflictError, CorruptLogError, UsageError, WhaleError
from whale.pair import bundle, card, licences
from whale.pair.choice import Pair, checkpoint_of, lineage
from whale.report.results import Results
from whale.rollout.models import EMBEDDED, float32_model

_NOT_COPIED = frozenset({"README.md", "whale-model.json"})
"""Of a model's folder: texts on the base model, which this pair is not."""
_TEXTS = frozenset({".json", ".jinja", ".txt", ".model", ".tiktoken"})
_KEPT = ("seed", "domain_options", "engine", "sampling", "limits")
"""What of the config an answer depends on; the rest, such as a proposer's address, is not passed on."""
_REQUIRED = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "msgspec")
_OF_DOMAIN = {"searchqa": ("bm25s",), "chess": ("chess",), "math": ()}


def export(
    folder: RunFolder, results: Results, head: tuple[int, str], target: Path, pair: Pair, files: dict[str, bytes]
) -> bundle.Record:
    """Write `pair` of a run into the new folder `target`; `files` is its harness tree.

    `head` is the log's newest position and hash, which the caller has verified.

    Raises:
        ConflictError: something is at `target` already.
        CorruptLogError: the checkpoint's bytes are not what the log names.
        WhaleError: the weights are not kept any more, or there is no room.
    """
    if target.exists() or target.is_symlink():
        raise ConflictError(f"{target}: is there already; choose another -o FOLDER")
    state = results.state
    config = config_of(state)
    checkpoint = checkpoint_of(folder, state, pair.weights)
    model = run_model(folder, config)
    _require_weights(folder, checkpoint, model, pair)
    domain = run_domain(folder, config)
    if domain.fingerprint() != state.data:
        raise WhaleError(f"{folder.name}: the data or code of domain {config.domain} is not what this run began with")
    with _complete_or_absent(target) as making:
        _write_model(making / bundle.MODEL, model, checkpoint)
        _write_tree(making / bundle.HARNESS, files)
        with as_started(folder):
            source = Path(config.domain.rpartition(":")[0]).expanduser().resolve()
        domain_name = _write_domain(making / bundle.DOMAIN, config.domain, source)
        kept = _write_licences(making / bundle.LICENCES, model, config.domain)
        (making / bundle.REQUIREMENTS).write_text(requirements(config), encoding="utf-8")
        provenance = card.Provenance(
            name=target.name,
            model=config.model if config.model == EMBEDDED else model.name,
            domain=domain_name,
            position=head[0],
            head=head[1],
            model_licence=licences.model_licence(model),
            data_licence=licences.data_licence(config.domain, domain),
            licences=kept,
        )
        adapter = _write_adapter(making / bundle.ADAPTER, provenance.model, model, checkpoint)
        (making / bundle.CARD).write_text(card.render(pair, state, provenance, adapter), encoding="utf-8")
        record = _record(making, config, state, pair, provenance)
        (making / bundle.RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    return record


def _record(making: Path, config: Config, state: State, pair: Pair, provenance: card.Provenance) -> bundle.Record:
    whole = for_the_log(config)
    stored = {key: whole[key] for key in _KEPT} | {"model": provenance.model, "domain": provenance.domain}
    return bundle.Record(
        format=bundle.FORMAT,
        whale=whale.__version__,
        name=provenance.name,
        run=state.name,
        cycle=pair.cycle,
        candidate=pair.candidate,
        tree=pair.tree,
        weights=pair.weights,
        initial=state.model,
        data=state.data,
        position=provenance.position,
        head=provenance.head,
        config=stored,
        measured=[
            bundle.Measured(
                split=row.evaluated.split,
                success=row.evaluated.score,
                low=row.evaluated.low,
                high=row.evaluated.high,
                n=row.evaluated.n,
                tasks=row.evaluated.tasks,
                gain=row.gain.gain if row.gain else None,
                gain_low=row.gain.low if row.gain else None,
                gain_high=row.gain.high if row.gain else None,
            )
            for row in pair.rows
        ],
        lineage=[candidate.id for candidate in lineage(state, pair.candidate)],
        interventions=list(state.interventions),
        files=bundle.digests(making),
    )


@contextlib.contextmanager
def _complete_or_absent(target: Path) -> Iterator[Path]:
    """A folder to fill beside `target`, which becomes it in one rename when the block ends without an error."""
    making = target.with_name(f".{target.name}.{os.getpid()}.making")
    try:
        making.mkdir(parents=True)
        yield making
        for path in making.rglob("*"):
            _flush(path)
        making.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise WhaleError(f"{target}: cannot be written: {error.strerror or error}; nothing is left of it") from error
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _require_weights(folder: RunFolder, checkpoint: Path | None, model: Path, pair: Pair) -> None:
    """What is copied must be what the log names."""
    from whale.weights.checkpoints import CheckpointStore
    from whale.weights.digest import weights_digest

    if checkpoint is not None:
        CheckpointStore(folder.checkpoints).verify(checkpoint.name, pair.weights)
        return
    if weights_digest(float32_model(model).state_dict()) != pair.weights:
        raise CorruptLogError(f"{model}: these are not the weights {pair.weights[:12]} that the run began with")


def _write_model(target: Path, model: Path, checkpoint: Path | None) -> None:
    """A plain Hugging Face folder: the base model's texts with the pair's weights."""
    target.mkdir()
    for path in sorted(model.iterdir()):
        weights = path.suffix in (".safetensors", ".bin") or path.name.endswith(".index.json")
        if path.is_file() and path.name not in _NOT_COPIED and path.suffix in _TEXTS and not weights:
            shutil.copyfile(path, target / path.name)
    if checkpoint is not None:
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(checkpoint / name, target / name)
        return
    shards = [path for path in model.iterdir() if path.suffix == ".safetensors"]
    if not shards:
        raise UsageError(
            f"{model}: the weights are not in safetensors, and this pair's are the model's own; convert it"
        )
    for path in [*shards, *model.glob("*.safetensors.index.json")]:
        shutil.copyfile(path, target / path.name)


def _write_adapter(target: Path, name: str, model: Path, checkpoint: Path | None) -> str:
    """The pair's adapters in PEFT's own format, beside the model that has them merged; `name` is the base's there.

    Returns what they are, in words; "" where there are none.

    θ's digest says nothing of the adapters' file, so what it holds is merged again: it must give that θ.
    """
    from whale.weights.lora import differing, kind_of, write_peft
    from whale.weights.state import ADAPTER, WEIGHTS, read_summary, read_tensors

    if checkpoint is None or not (facts := read_summary(checkpoint).get("lora")):
        return ""
    adapters = read_tensors(checkpoint / ADAPTER)
    base = float32_model(model).state_dict()
    wrong = differing(read_tensors(checkpoint / WEIGHTS), base, facts, adapters)
    if wrong is not None:
        raise CorruptLogError(
            f"{checkpoint / ADAPTER}: on {model} it does not make {wrong} of the weights that the log names: "
            "one of the two is damaged, or was changed"
        )
    write_peft(target, name, facts, adapters)
    return kind_of(facts)


def _write_tree(target: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _write_domain(target: Path, name: str, source: Path) -> str:
    """Copy the file of an own domain; returns how the record names the domain."""
    if ".py:" not in name:
        return name
    target.mkdir()
    shutil.copyfile(source, target / source.name)
    return f"{source.name}:{name.rpartition(':')[2]}"


def _write_licences(target: Path, model: Path, domain: str) -> list[str]:
    texts = {path.name: path.read_bytes() for path in licences.licence_files(model)}
    statement = licences.data_statement(domain)
    if statement:
        texts["LICENSE-DATA.md"] = statement.encode()
    for name, content in texts.items():
        target.mkdir(exist_ok=True)
        (target / name).write_bytes(content)
    return sorted(texts)


def requirements(config: Config) -> str:
    """What the pair was made with, pinned."""
    extras = "serve,chess" if config.domain == "chess" else "serve"
    lines = [f"whale-evolve[{extras}]=={whale.__version__}"]
    for name in (*_REQUIRED, *_OF_DOMAIN.get(config.domain, ())):
        with contextlib.suppress(PackageNotFoundError):
            # A local version, as 2.13.0+cpu, is on no index.
            lines.append(f"{name}=={version(name).partition('+')[0]}")
    return "\n".join(lines) + "\n"


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
