"""Two real processes on the CPU, each with an engine, a sandbox and a domain of its own."""

import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.runs import TOY
from tests.toy.domain import create
from whale.config import EngineConfig, config_from
from whale.domains.base import Domain, Task
from whale.domains.registry import load_domain
from whale.errors import UsageError, WhaleError
from whale.pair.answering import Unjudged
from whale.rollout import devices, replicas
from whale.rollout.devices import replica_devices, sharing_note
from whale.rollout.engines import load_engine
from whale.rollout.episodes import Sampling
from whale.rollout.errors import VerifierFault
from whale.rollout.memory_plan import plan_memory
from whale.rollout.replica import Replica, SandboxedHarness
from whale.rollout.replica_messages import DomainOrigin, Opening
from whale.rollout.replicas import Replicas, shares
from whale.rollout.sandbox.limits import Limits
from whale.rollout.sandbox.probe import best_tier
from whale.rollout.types import EpisodeSpec, Trajectory

SETTINGS = EngineConfig(device="cpu", dtype="float32", threads=1, replicas=2)
LIMITS = Limits(cpu_seconds=5, memory_bytes=512 << 20, output_bytes=100_000, wall_seconds=30.0)
ROOT = Path(__file__).parents[2]
DOOMED = Path(__file__).parent / "doomed_domain.py"
"""A domain whose verifier fails on some tasks, each in its way."""


def origin_of(name: str, domain: Domain, options: Mapping[str, Any]) -> DomainOrigin:
    return DomainOrigin(name, options, ROOT, apart=False, fingerprint=domain.fingerprint())


def replicas_of(model: Path, name: str = f"{TOY}:create", **options: Any) -> Replicas:
    domain = load_domain(name, options)
    return Replicas(SETTINGS, model, "base", domain, origin_of(name, domain, options))


@pytest.fixture(scope="module")
def two(toy_model: Path) -> Iterator[Replicas]:
    both = replicas_of(toy_model, weight=8)
    yield both
    both.close()


@pytest.fixture(scope="module")
def one(toy_model: Path) -> Iterator[Replica]:
    alone = Replica(load_engine(SETTINGS, toy_model, "base"))
    yield alone
    alone.close()


@pytest.fixture(scope="module")
def harness() -> SandboxedHarness:
    return SandboxedHarness(create({}).h0(), best_tier(), LIMITS)


def asked(n: int, samples: int = 2) -> tuple[dict[str, Task], list[EpisodeSpec]]:
    tasks = {task.id: task for task in create({"weight": 8}).splits()["weight"]}
    names = list(tasks)
    return tasks, [EpisodeSpec(names[i // samples], i % samples, 100 + i) for i in range(n)]


def sampled(
    on: Replica | Replicas, harness: SandboxedHarness, n: int, temperature: float = 1.0, domain: Domain | None = None
) -> list[Trajectory]:
    tasks, specs = asked(n)
    sampling = Sampling(temperature, max_turns=4, max_generated_tokens=48, max_tokens_per_turn=16)
    mine = domain or (on._domain if isinstance(on, Replicas) else create({"weight": 8}))
    return on.sample(harness, tasks, specs, mine, sampling)


def test_each_replica_gives_to_the_bit_what_one_engine_gives_for_its_share(
    two: Replicas, one: Replica, harness: SandboxedHarness
) -> None:
    tasks, specs = asked(7)
    sampling = Sampling(1.0, max_turns=4, max_generated_tokens=48, max_tokens_per_turn=16)
    domain = create({"weight": 8})
    alone = [one.sample(harness, tasks, [specs[i] for i in share], domain, sampling) for share in shares(7, 2)]
    assert sampled(two, harness, 7) == [trajectory for part in alone for trajectory in part]
    assert sampled(two, harness, 7) == sampled(two, harness, 7)


def test_a_micro_batchs_time_is_the_replicas_mean_and_one_that_has_no_share_counts(
    two: Replicas, one: Replica, harness: SandboxedHarness
) -> None:
    two.watch.lap()
    sampled(two, harness, 7)
    both = two.watch.lap()
    sampled(two, harness, 1)
    alone = two.watch.lap()
    one.watch.lap()
    sampled(one, harness, 1)
    for spent in (both, alone, one.watch.lap()):
        assert spent.keys() == {"generate", "harness", "verify", "other"}
        assert min(spent.values()) > 0
    assert alone["other"] > alone["generate"] + alone["harness"] + alone["verify"], "one of the two waited all along"


def test_greedy_rollouts_are_those_of_one_engine_in_the_order_of_their_specs(
    two: Replicas, one: Replica, harness: SandboxedHarness
) -> None:
    def facts(trajectories: Sequence[Trajectory]) -> list[Any]:
        return [
            (t.task_id, t.sample, t.seed, t.status, t.reward, [x.output_ids for x in t.turns]) for t in trajectories
        ]

    os.kill(two.pids[0], signal.SIGSTOP)  # the first share comes last
    threading.Timer(1.0, os.kill, (two.pids[0], signal.SIGCONT)).start()
    ours = facts(sampled(two, harness, 8, temperature=0.0))
    assert ours == facts(sampled(one, harness, 8, temperature=0.0))
    assert any(reward for *_, reward, _ in ours) and all(turns for *_, turns in ours)


def test_fewer_episodes_than_replicas_are_sampled_too(two: Replicas, harness: SandboxedHarness) -> None:
    assert [t.task_id for t in sampled(two, harness, 1)] == ["weight-0"]
    assert sampled(two, harness, 0) == []


@given(episodes=st.integers(0, 200), replicas=st.integers(1, 9))
def test_episodes_are_dealt_once_each_in_order_and_evenly(episodes: int, replicas: int) -> None:
    dealt = shares(episodes, replicas)
    assert [i for share in dealt for i in share] == list(range(episodes))
    assert len(dealt) == replicas
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


def test_new_weights_reach_every_replica_and_turns_name_them(
    toy_model: Path, one: Replica, harness: SandboxedHarness
) -> None:
    both = replicas_of(toy_model)
    try:
        torch.manual_seed(0)
        old = {name: p.detach().clone() for name, p in one.engine.model.named_parameters()}  # type: ignore[attr-defined]
        tied = one.engine.model.config.tie_word_embeddings  # type: ignore[attr-defined]
        new = {name: tensor + 0.02 * torch.randn_like(tensor) for name, tensor in old.items()}
        if tied:
            new["lm_head.weight"] = new["model.embed_tokens.weight"]
        ids = [[5, 6, 7, 8, 9], [9, 8, 7]]
        before = [engine.logprobs(ids) for engine in both.engines]
        both.update_weights(new, "new")
        one.update_weights(new, "new")
        expected = one.engine.logprobs(ids)
        one.update_weights(old, "base")
        assert before == [one.engine.logprobs(ids)] * 2
        assert [engine.logprobs(ids) for engine in both.engines] == [expected] * 2
        assert both.weights_version == "new"
        assert {turn.weights for t in sampled(both, harness, 4) for turn in t.turns} == {"new"}

        with pytest.raises(WhaleError, match=r"^replica 0 of the engine's 2: the new weights do not fit") as caught:
            both.update_weights({"other": torch.zeros(2)}, "wrong")
        assert "\n" not in str(caught.value)
        with pytest.raises(WhaleError, match="have ended"):
            sampled(both, harness, 2)
    finally:
        both.close()


@pytest.mark.parametrize(
    "task, kind, words",
    [
        ("weight-1", VerifierFault, r"^replica 0 of the engine's 2: the judge is away$"),
        ("weight-3", KeyError, "a fault of ours"),
    ],
)
def test_what_a_replica_raises_rises_here_and_all_go_on(
    toy_model: Path, harness: SandboxedHarness, task: str, kind: type[Exception], words: str
) -> None:
    both = replicas_of(toy_model, f"{DOOMED}:create", doomed=task)
    try:
        with pytest.raises(kind, match=words) as caught:
            sampled(both, harness, 8)
        if kind is KeyError:
            assert "doomed_domain.py" in "".join(caught.value.__notes__)
            assert "replica 1 of the engine's 2" in caught.value.__notes__[-1]
        assert len(sampled(both, harness, 2)) == 2
    finally:
        both.close()


def family(pids: Sequence[int]) -> list[psutil.Process]:
    """The processes and all that they have started."""
    found = [psutil.Process(pid) for pid in pids]
    return found + [child for process in found for child in process.children(recursive=True)]


def test_a_replica_that_is_killed_ends_all_with_one_line_that_names_it(
    toy_model: Path, harness: SandboxedHarness
) -> None:
    both = replicas_of(toy_model)
    sampled(both, harness, 4)
    processes = family(both.pids)
    assert len(processes) > 4, "the sandboxes are among them"
    folder = Path(both._folder.name)
    os.kill(both.pids[1], signal.SIGSTOP)  # so that its share is under way when it dies
    threading.Timer(0.5, os.kill, (both.pids[1], signal.SIGKILL)).start()
    with pytest.raises(WhaleError, match=r"^replica 1 of the engine's 2 has ended \(killed by signal 9\)"):
        sampled(both, harness, 4)
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert not alive
    assert not folder.exists()
    with pytest.raises(WhaleError, match="have ended"):
        sampled(both, harness, 4)


def test_a_silent_replica_is_given_up_when_the_others_are_done(
    toy_model: Path, harness: SandboxedHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = replicas_of(toy_model)
    monkeypatch.setattr(Replicas, "_patience", staticmethod(lambda taken: 0.5))
    os.kill(both.pids[0], signal.SIGSTOP)
    with pytest.raises(WhaleError, match=r"^replica 0 of the engine's 2 is silent"):
        both.prepare(harness)
    assert not any(psutil.pid_exists(pid) for pid in both.pids)


def test_nothing_outlives_a_killed_parent(tmp_path: Path, toy_model: Path) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tests.rollout import test_replicas as t\n"
        "both = t.replicas_of(Path(sys.argv[1]))\n"
        "both.prepare(t.SandboxedHarness(t.create({}).h0(), t.best_tier(), t.LIMITS))\n"
        "print(*(process.pid for process in t.family(both.pids)), flush=True)\n"
        "time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(toy_model)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert parent.stdout is not None
    processes = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
    assert len(processes) > 4, "two replicas with a sandbox each"
    assert list(tmp_path.glob("whale-*"))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not alive
    assert not list(tmp_path.glob("whale-*"))


def test_a_domain_that_has_changed_meanwhile_is_refused_at_the_start(toy_model: Path) -> None:
    domain = create({})
    origin = dataclasses.replace(origin_of(f"{TOY}:create", domain, {}), fingerprint="another")
    with pytest.raises(WhaleError, match=r"^replica 0 of the engine's 2: .*has changed meanwhile"):
        Replicas(SETTINGS, toy_model, "base", domain, origin)


def test_another_domain_than_the_runs_is_sent_along_or_refused(two: Replicas, harness: SandboxedHarness) -> None:
    done = sampled(two, harness, 4, domain=Unjudged(two._domain))
    assert all(trajectory.turns for trajectory in done) and not any(trajectory.reward for trajectory in done)
    other = create({"weight": 8})
    other.verify = lambda task, completion: None  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(WhaleError, match=r"cannot be sent .* set engine.replicas = 1"):
        sampled(two, harness, 4, domain=other)
    assert len(sampled(two, harness, 4)) == 4


@pytest.mark.parametrize(
    "engine, words",
    [
        ({"replicas": 0}, "engine.replicas = 0: must be"),
        ({"replicas": 2, "device": "cuda:1"}, "names one device and engine.replicas = 2 takes several: give 'cuda'"),
        ({"replicas": 2, "name": "vllm-server", "url": "http://127.0.0.1:1"}, "a vllm-server is one address"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(engine: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        config_from({"engine": engine}, source="a.toml")


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a device")
def test_replicas_on_a_device_that_is_not_there_are_refused() -> None:
    with pytest.raises(UsageError, match=r"cuda"):
        replica_devices(64, "cuda")
    assert replica_devices(3, "cpu") == [""] * 3


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were two, named 3 and 5."""
    for module in (devices, replicas):
        monkeypatch.setattr(module, "resolve_device", torch.device)
    monkeypatch.setattr(devices, "visible_gpus", lambda: ("3", "5"))


@pytest.mark.usefixtures("two_gpus")
def test_replicas_beyond_the_gpus_are_dealt_over_them_again() -> None:
    assert replica_devices(2, "cuda") == ["3", "5"]
    assert replica_devices(5, "cuda") == ["3", "5", "3", "5", "3"]
    with pytest.raises(UsageError, match=r'engine.replicas = 2: give "cuda"'):
        replica_devices(2, "cuda:1")


def test_replicas_that_share_a_gpu_without_mps_are_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert sharing_note(["", ""]) is None
    assert sharing_note(["0", "1"]) is None
    note = sharing_note(["0", "1", "0"])
    assert note is not None
    assert note.startswith("2 replicas share a GPU and take turns")
    os.mkfifo(tmp_path / "control")
    assert sharing_note(["0", "1", "0"]) is None


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("ranks, with_trainer", [(0, []), (1, [0, 2, 4]), (2, [0, 1, 2, 3, 4])])
def test_every_replica_on_a_trainers_gpu_keeps_room_for_it_and_knows_how_many_share(
    ranks: int, with_trainer: list[int], toy_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: dict[int, Opening] = {}
    monkeypatch.setattr(Replicas, "_start", lambda *_: None)
    monkeypatch.setattr(Replicas, "_ask", lambda _, name, given: opened.update({i: o for i, (o,) in given.items()}))
    settings = EngineConfig(device="cuda", replicas=5)
    domain = create({})
    Replicas(settings, toy_model, "base", domain, origin_of(f"{TOY}:create", domain, {}), ranks).close()
    assert [opened[i].sharing for i in range(5)] == [3, 2, 3, 2, 3]
    assert [i for i in range(5) if opened[i].trainer] == with_trainer


def test_engines_that_share_a_gpu_and_a_trainer_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    gib = 1 << 30
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 * gib, 81 * gib))
    model, cuda = torch.nn.Linear(1 << 14, 1 << 14, device="meta"), torch.device("cuda")
    alone = plan_memory(model, torch.bfloat16, cuda)
    for trainer in (False, True):
        shared = plan_memory(model, torch.bfloat16, cuda, trainer=trainer, sharing=4)
        used = 4 * shared.share * shared.total + shared.trainer
        assert alone.kv_bytes // 8 < shared.kv_bytes < alone.kv_bytes // 4
        assert used < shared.free
        assert 4 * shared.kv_bytes > (shared.free - used) * 0.9, "about half of what is left"
    assert plan_memory(model, torch.bfloat16, cuda, 5 * gib, sharing=4).kv_bytes == 5 * gib, "each engine's"
    with pytest.raises(WhaleError, match=r"cuda: 80.0 GiB are free; 17 engines and a trainer of .* need 88.5 GiB"):
        plan_memory(model, torch.bfloat16, cuda, sharing=17)


def test_only_a_device_with_a_trainer_keeps_room_for_one_and_a_cpu_is_shared() -> None:
    model, cpu = torch.nn.Linear(64, 64), torch.device("cpu")
    with_trainer = plan_memory(model, torch.float32, cpu)
    without = plan_memory(model, torch.float32, cpu, trainer=False)
    assert with_trainer.trainer == 16 * (64 * 64 + 64)
    assert without.trainer == 0 and "trainer" not in str(without)
    crowded = plan_memory(model, torch.float32, cpu, sharing=1000)
    assert crowded.kv_bytes <= with_trainer.free // 2000


def test_the_error_of_a_replica_is_pickled_with_its_class() -> None:
    from whale.rollout.decoding import ContextError
    from whale.rollout.replica_worker import _portable

    told = pickle.loads(pickle.dumps(_portable(ContextError(5, 6, 7))))
    assert isinstance(told, WhaleError) and "5 prompt tokens and 6 new ones" in str(told)
    assert type(pickle.loads(pickle.dumps(_portable(VerifierFault("away"))))) is VerifierFault


def test_the_benchmark_runs_anywhere_and_says_how_many_times_the_rollouts() -> None:
    program = ROOT / "benchmarks" / "replicas.py"
    arguments = [sys.executable, str(program), "--device", "cpu", "--tiny", "--rounds", "1"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 replicas sample" in done.stdout and "x the rollouts of 1" in done.stdout
