"""The frozen config of a run: whale.toml, checked key by key.

Every table has defaults that suit the embedded model on a CPU. An unknown key, a wrong type or a value out of
range is one `UsageError` that names the file, the key and, where one is close, the key that was meant.
"""

import difflib
import math
import tomllib
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal

import msgspec

from whale.errors import UsageError


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all config tables."""


class EngineConfig(Table, frozen=True, kw_only=True):
    """Where rollouts are sampled."""

    name: Literal["transformers", "vllm", "vllm-server"] = "transformers"
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: int = 0
    """Threads on the CPU; 0 = all cores. Part of what a digest depends on."""
    replicas: int = 1
    """Engines that sample side by side, each in a process of its own: replica i on CUDA device i, or all on the CPU.
    More than there are devices share them. Like threads, part of a digest."""
    micro_batch: int = 32
    """Episodes that run together, over all replicas; the unit that is recorded. With vllm, hundreds for each GPU."""
    kv_gb: float = 0.0
    """GiB of key-value cache of vllm, for each replica; 0: planned from what is free, with room for the trainer."""
    options: dict[str, Any] = {}
    """Further arguments of vllm's engine, such as max_num_seqs."""
    url: str = ""
    """Of vllm-server: its address."""
    weights_folder: str = ""
    """Of vllm-server: where new weights go, the same path for the server; empty: a temporary folder here."""


class SamplingConfig(Table, frozen=True, kw_only=True):
    """How the model is sampled, in all phases alike."""

    temperature: float = 1.0
    max_generated_tokens: int = 256
    """Per episode, over all turns."""
    max_tokens_per_turn: int = 128
    max_turns: int = 8
    """A ceiling over what a harness may set as its own max_turns."""


class LimitsConfig(Table, frozen=True, kw_only=True):
    """What one episode of a harness may use."""

    cpu_seconds: int = 10
    memory_mb: int = 512
    output_kb: int = 1024
    wall_seconds: float = 60.0
    """The host's guard; waiting for the engine does not count."""
    allow_unsandboxed: bool = False
    """Run harness code without a sandbox where this machine has none."""


class WeightsConfig(Table, frozen=True, kw_only=True):
    """The weight phase: what is sampled, and how θ is updated on it."""

    method: Literal["rsft", "grpo"] = "rsft"
    """rsft raises the likelihood of rollouts that passed; grpo weighs all by how they did beside their group."""
    clip_low: float = 0.2
    """GRPO: a token's probability, as a multiple of that at sampling, is pushed down no further than 1 - this."""
    clip_high: float = 0.2
    """GRPO: and up no further than 1 + this."""
    rollouts_per_prompt: int = 8
    batch: int = 256
    """Prompts per step."""
    minibatch: int = 64
    """Rollouts per optimiser update."""
    learning_rate: float = 3e-5
    rate_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What becomes of the learning rate after the warm-up, from optimiser update to update."""
    warmup_updates: int = 0
    """Updates that rise to the learning rate in equal steps, at the run's beginning."""
    decay_updates: int = 0
    """linear, cosine: updates after the warm-up until the rate is lowest. A step makes at most ⌈kept / minibatch⌉."""
    decay_to: float = 0.1
    """linear, cosine: the lowest rate, as a share of the learning rate."""
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    micro_batch_tokens: int = 1024
    ranks: int = 1
    """Processes that train together: rank i on CUDA device i, or all on the CPU. Like threads, part of a digest."""
    activation_checkpointing: bool = False
    """Compute each layer's activations again in the backward pass: less memory, about a third more time."""
    compile: bool = False
    """Compile the decoder layers, on CUDA with attention over the tree, where it works. Costs minutes at the start."""
    lora_rank: int = 0
    """LoRA: adapters of this rank are trained beside a frozen θ0; 0: all of θ is trained."""
    lora_alpha: float = 0.0
    """What the adapters add is weighed by this / lora_rank; 0: twice the rank."""
    lora_targets: str | list[str] = "all-linear"
    """Which linear layers have adapters, by name, such as ["q_proj", "v_proj"]; "all-linear": all but the head."""
    filters: Literal["default", "paper"] = "default"
    train_turns: Literal["all", "answer"] = "all"
    checkpoint_every: int = 1
    """Steps between checkpoints inside a phase; a phase's end always has one."""
    sync_tolerance: float = 0.0
    """Mean difference of logprobs between engine and trainer that a sync may leave; 0: 0.01, in bfloat16 0.1."""


HOTTEST = 2.0
"""A run's and a harness's highest temperature: vLLM lets no hotter request in, so no engine takes more."""
OFF = -1.0
"""A guard that guards nothing."""


class Guards(Table, frozen=True, kw_only=True):
    """Limits against the incoming harness on the same tasks. -1: the guard is off."""

    subset: float = OFF
    """The most by which the success on a subset of tasks (a task's `group`) may fall."""
    tokens: float = OFF
    """The most generated tokens per rollout, as a multiple of the incoming harness's."""
    turns: float = OFF
    """The most turns per rollout, as a multiple of the incoming harness's."""
    fabricated: float = OFF
    """The largest share of passes whose answer stands in text that the harness wrote."""


class SearchConfig(Table, frozen=True, kw_only=True):
    """Harness search."""

    proposer: str = "mutation"
    """By name (`whale.search.registry`), or path/to/mine.py:factory."""
    candidates: int = 3
    """M, per iteration."""
    rollouts_per_task: int = 1
    acceptance: str = "archive-best"
    """Which harness of a phase is accepted: archive-best, paired, confirm, racing, or path/to/rule.py:factory."""
    acceptance_options: dict[str, Any] = {}
    guards: Guards = Guards()
    """What no accepted harness may make worse."""
    approve: Literal["auto", "human"] = "auto"
    """"human": an acceptance waits for `whale approve`."""
    noise_floor: bool = True
    """Score the incoming harness twice, once in a run, before anything is accepted."""
    space: str = "full"
    """What may change: full, prompts (FST), or path/to/rule.py:function."""
    options: dict[str, Any] = {}


class ScheduleConfig(Table, frozen=True, kw_only=True):
    """The alternation: which phases there are, and when each is over."""

    kind: Literal["fixed", "adaptive", "weight-only", "harness-only", "stagewise"] = "fixed"
    cycles: int = 6
    """Of a weight and a harness phase each; `stagewise` counts its own two kinds."""
    epochs: str | float | int = "0.6"
    """E: epochs of D_weight per weight phase; fractions are cut by question count."""
    iterations: int = 6
    """I: proposal rounds per harness phase."""
    count_incoming: bool = False
    """Count the incoming harness's scoring as iteration 1, as the paper's public code does."""
    window_epochs: str = "0.2"
    """Adaptive, W: the mean reward is taken over so many steps, in epochs."""
    min_epochs: str = "0.2"
    """Adaptive, T_min."""
    patience_epochs: str = "0.2"
    """Adaptive, P_w: a weight phase ends when the mean reward has set no new maximum for so long."""
    max_epochs: str = "2"
    """Adaptive: a weight phase is never longer."""
    min_iterations: int = 6
    """Adaptive, J_min."""
    patience_iterations: int = 2
    """Adaptive, P_h: a harness phase ends when the best score has not risen for so long."""
    max_iterations: int = 15
    """Adaptive: a harness phase is never longer."""
    weight_cycles: int = 6
    """Stagewise: weight phases of E epochs, each evaluated; the best is E*."""
    harness_cycles: int = 6
    """Stagewise: harness phases of I iterations on E*, each evaluated; the best is I*."""
    tasks_patience: int = 0
    """Weight phases without a new best mean training reward after which passed questions of D_weight give their places
    to harder ones, where the domain makes such; 0: never."""
    tasks_success: float = 0.75
    """A question is passed if at least this share of its newest rollouts is."""
    tasks_share: float = 0.25
    """The most of D_weight that is replaced at a time."""
    budget_epochs: str = ""
    """All weight phases together; empty: no limit but that of each phase."""
    budget_iterations: int = 0
    """All harness phases together; 0: no limit but that of each phase."""


class EvaluateConfig(Table, frozen=True, kw_only=True):
    """What is held out, and how it is measured."""

    tasks: int = 0
    """Validation tasks per evaluation; 0 = the whole split."""
    samples: int = 8
    """Rollouts per task: mean@k."""
    test_tasks: int = 0
    """Test tasks for the first and the selected pair after the last cycle; 0 = the test is not read."""
    test_samples: int = 8
    select: Literal["validation", "test"] = "validation"
    """Which split chooses the final pair. "test" is the paper's rule: every pair is tested, which leaks the test into
    the choice, so every table marks such a run."""


class EventsConfig(Table, frozen=True, kw_only=True):
    """Where the log lies. No part of the experiment: it stands in whale.toml only, not in the log."""

    url: str = ""
    """postgresql+psycopg://user@host/database; empty: the file events.db in the run's folder."""
    run: str = ""
    """The run's name in that database; empty: the name that it is started under."""


class HooksConfig(Table, frozen=True, kw_only=True):
    """Who is told of a run: a shell command, or a URL that gets a POST. No part of the experiment, as above."""

    on_pause: str = ""
    """Paused as requested, or an acceptance waits for a reviewer."""
    on_stop: str = ""
    on_end: str = ""
    """The schedule is through."""
    on_failure: str = ""
    """The runner stopped on a fault; `whale resume` goes on."""


class TrackConfig(Table, frozen=True, kw_only=True):
    """Which trackers follow the log while the run goes on. No part of the experiment, as above."""

    to: list[Literal["tensorboard", "wandb", "mlflow"]] = []


class Config(Table, frozen=True, kw_only=True):
    """A whole run."""

    seed: int = 1
    domain: str = "searchqa"
    model: str = "smollm2-135m-instruct"
    domain_options: dict[str, Any] = {}
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig()
    limits: LimitsConfig = LimitsConfig()
    weights: WeightsConfig = WeightsConfig()
    search: SearchConfig = SearchConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    events: EventsConfig = EventsConfig()
    hooks: HooksConfig = HooksConfig()
    track: TrackConfig = TrackConfig()
    started_in: str = ""
    """The folder from which the config names files; written when a run is made. No part of the experiment, as above."""

    @property
    def epochs(self) -> Decimal:
        """The most epochs that a weight phase may have, as an exact decimal: E, or an adaptive phase's cap."""
        if self.schedule.kind == "harness-only":
            return Decimal(0)
        return Decimal(self.schedule.max_epochs if self.schedule.kind == "adaptive" else str(self.schedule.epochs))


_AT_LEAST: dict[str, float] = {
    "engine.threads": 0,
    "engine.replicas": 1,
    "engine.micro_batch": 1,
    "engine.kv_gb": 0,
    "sampling.temperature": 0,
    "sampling.max_generated_tokens": 1,
    "sampling.max_tokens_per_turn": 1,
    "sampling.max_turns": 1,
    "limits.cpu_seconds": 1,
    "limits.memory_mb": 96,
    "limits.output_kb": 1,
    "limits.wall_seconds": 1,
    "weights.clip_low": 0,
    "weights.clip_high": 0,
    "weights.rollouts_per_prompt": 1,
    "weights.batch": 1,
    "weights.minibatch": 1,
    "weights.learning_rate": 0,
    "weights.warmup_updates": 0,
    "weights.decay_updates": 0,
    "weights.decay_to": 0,
    "weights.weight_decay": 0,
    "weights.grad_clip": 0,
    "weights.micro_batch_tokens": 64,
    "weights.ranks": 1,
    "weights.lora_rank": 0,
    "weights.lora_alpha": 0,
    "weights.checkpoint_every": 1,
    "weights.sync_tolerance": 0,
    "search.candidates": 1,
    "search.rollouts_per_task": 1,
    "schedule.cycles": 1,
    "schedule.iterations": 0,
    "schedule.min_iterations": 1,
    "schedule.patience_iterations": 1,
    "schedule.max_iterations": 1,
    "schedule.weight_cycles": 1,
    "schedule.harness_cycles": 1,
    "schedule.tasks_patience": 0,
    "schedule.tasks_success": 0,
    "schedule.tasks_share": 0,
    "schedule.budget_iterations": 0,
    "evaluate.tasks": 0,
    "evaluate.samples": 1,
    "evaluate.test_tasks": 0,
    "evaluate.test_samples": 1,
}


AROUND = ("events", "hooks", "track", "started_in")
"""What stands in whale.toml only: they are around the experiment, and may be changed between two runners."""


def read_toml(path: Path, missing: str) -> dict[str, Any]:
    """A user's TOML file. Raises UsageError with the reason where there is none; `missing` is said of no file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: {missing}") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a folder; name the file in it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None


def load_config(path: Path, overrides: list[str] | None = None) -> Config:
    """Read a whale.toml and apply `key=value` overrides.

    Raises:
        UsageError: the file is missing or not TOML, or a key or value is wrong.
    """
    raw = read_toml(path, "no such config file; `whale init` writes one")
    if "systems" in raw:
        raise UsageError(f"{path}: is an experiment's file, of many runs: `whale experiment {path} --dry-run` plans it")
    return config_from(apply_overrides(raw, overrides or []), source=str(path))


def load_around(path: Path) -> Config:
    """The tables of a run's whale.toml that are around the experiment; the rest, which the log has, is not read.

    Raises:
        UsageError: one of these tables is wrong.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return Config()
    return config_from({key: raw[key] for key in AROUND if key in raw}, source=str(path))


def apply_overrides(raw: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """Set dotted keys, `schedule.cycles=2`; a value is read as TOML, else as text."""
    result = msgspec.json.decode(msgspec.json.encode(raw))
    for item in overrides:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise UsageError(f"--set {item}: give it as KEY=VALUE, such as schedule.cycles=2")
        try:
            parsed = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            parsed = value
        *tables, last = key.split(".")
        target = result
        for table in tables:
            target = target.setdefault(table, {})
            if not isinstance(target, dict):
                raise UsageError(f"--set {key}: {table} is not a table")
        target[last] = parsed
    return dict(result)


def config_from(raw: dict[str, Any], source: str) -> Config:
    """Convert and check; `source` names the file in errors."""
    _check_keys(raw, Config, source, ())
    try:
        config = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        place = f"{where.rstrip('`')}: " if where else ""
        raise UsageError(f"{source}: {place}{message[:1].lower()}{message[1:]}") from None
    for key, least in _AT_LEAST.items():
        table, name = key.split(".")
        value = getattr(getattr(config, table), name)
        if not (value >= least and math.isfinite(value)):
            raise UsageError(f"{source}: {key} = {value}: must be a number of at least {least:g}")
    if config.sampling.temperature > HOTTEST:
        raise UsageError(f"{source}: sampling.temperature = {config.sampling.temperature}: at most {HOTTEST:g}")
    for key, several in (("weights.ranks", config.weights.ranks), ("engine.replicas", config.engine.replicas)):
        if several > 1 and ":" in config.engine.device:
            raise UsageError(
                f"{source}: engine.device = {config.engine.device!r} names one device and {key} = "
                f"{several} takes several: give {config.engine.device.partition(':')[0]!r}"
            )
    if config.engine.replicas > 1 and config.engine.name == "vllm-server":
        raise UsageError(
            f"{source}: engine.replicas = {config.engine.replicas} starts engines on this machine's devices; "
            "a vllm-server is one address: set engine.replicas = 1, and let the server have the devices"
        )
    for name in ("epochs", "window_epochs", "min_epochs", "patience_epochs", "max_epochs", "budget_epochs"):
        given = getattr(config.schedule, name)
        if name == "budget_epochs" and not given:
            continue
        try:
            number = Decimal(str(given))
        except InvalidOperation:
            number = Decimal(-1)
        if not (number.is_finite() and number >= 0):
            raise UsageError(f"{source}: schedule.{name} = {given!r}: give a number such as 0.6")
    for key, share in (
        ("weights.clip_low", config.weights.clip_low),
        ("weights.decay_to", config.weights.decay_to),
        ("schedule.tasks_success", config.schedule.tasks_success),
        ("schedule.tasks_share", config.schedule.tasks_share),
    ):
        if share > 1:
            raise UsageError(f"{source}: {key} = {share}: must be a number from 0 to 1")
    _check_rate_schedule(config.weights, source)
    if config.weights.method == "grpo" and config.weights.rollouts_per_prompt < 2:
        raise UsageError(
            f'{source}: weights.method = "grpo" compares the rollouts of a question: '
            "weights.rollouts_per_prompt must be at least 2"
        )
    _check_lora(config.weights, source)
    if config.evaluate.select == "test" and not config.evaluate.test_tasks:
        raise UsageError(f'{source}: evaluate.select = "test" needs evaluate.test_tasks: how many are read a cycle')
    return config


def adapter_settings(rank: int, alpha: float, targets: str | list[str]) -> dict[str, Any]:
    """The dotted keys of adapters, with equal values where two ways of saying it mean the same."""
    return {
        "weights.lora_rank": rank,
        "weights.lora_alpha": float(alpha or 2 * rank),
        "weights.lora_targets": sorted(targets) if isinstance(targets, list) else targets,
    }


def _check_lora(weights: WeightsConfig, source: str) -> None:
    targets = weights.lora_targets
    if targets != "all-linear" and (isinstance(targets, str) or not targets or not all(targets)):
        raise UsageError(
            f'{source}: weights.lora_targets = {targets!r}: give "all-linear", or a list of names such as ["q_proj"]'
        )
    for key, given in (("lora_alpha", weights.lora_alpha != 0), ("lora_targets", targets != "all-linear")):
        if given and not weights.lora_rank:
            raise UsageError(f"{source}: weights.{key} says how LoRA trains: set weights.lora_rank, or leave it out")


def _check_rate_schedule(weights: WeightsConfig, source: str) -> None:
    if weights.rate_schedule != "constant":
        if not weights.decay_updates:
            raise UsageError(
                f'{source}: weights.rate_schedule = "{weights.rate_schedule}" needs weights.decay_updates: '
                "after how many optimiser updates the rate is lowest"
            )
        return
    for name in ("decay_updates", "decay_to"):
        value, unused = getattr(weights, name), getattr(WeightsConfig(), name)
        if value != unused:
            raise UsageError(
                f'{source}: weights.{name} = {value}: with weights.rate_schedule = "constant" nothing decays; '
                f'set "linear" or "cosine", or weights.{name} = {unused}'
            )


def _check_keys(raw: dict[str, Any], table: type[msgspec.Struct], source: str, path: tuple[str, ...]) -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(table)}
    for key, value in raw.items():
        if key not in fields:
            dotted = ".".join((*path, key))
            close = difflib.get_close_matches(key, fields, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; known here: {', '.join(sorted(fields))}"
            raise UsageError(f"{source}: unknown key {dotted}{hint}")
        kind = fields[key]
        if isinstance(kind, type) and issubclass(kind, Table):
            if not isinstance(value, dict):
                raise UsageError(f"{source}: {'.'.join((*path, key))}: must be a table, [{key}]")
            _check_keys(value, kind, source, (*path, key))


def to_builtins(config: Config) -> dict[str, Any]:
    """The whole config as plain values, for whale.toml."""
    result: dict[str, Any] = msgspec.to_builtins(config)
    return result


def for_the_log(config: Config) -> dict[str, Any]:
    """What the run is, without where it is kept and who is told: equal for runs that do the same."""
    result = to_builtins(config)
    for table in AROUND:
        del result[table]
    return result
