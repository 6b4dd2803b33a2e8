"""What an episode may use."""

from dataclasses import asdict, dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one episode. All but the wall guard are the kernel's or counted by the host."""

    cpu_seconds: int = 10
    """The harness's own CPU time, its import included; waiting for the model costs none."""
    memory_bytes: int = 512 * MIB
    """Address space (RLIMIT_AS); the interpreter itself takes about 40 MiB of it."""
    output_bytes: int = MIB
    """What it may print."""
    message_bytes: int = MIB
    """One message to the host."""
    traffic_bytes: int = 8 * MIB
    """All messages to the host together."""
    tool_calls: int = 256
    wall_seconds: float = 120.0
    """The host's guard: how long an episode may keep the control without using the CPU."""

    def __post_init__(self) -> None:
        """Reject limits under which no harness could run."""
        for name, value in asdict(self).items():
            if value <= 0:
                raise ValueError(f"the limit {name} must be above 0, not {value}")
        if self.memory_bytes < 96 * MIB:
            raise ValueError("the limit memory_bytes must be at least 96 MiB: Python itself needs that much")
