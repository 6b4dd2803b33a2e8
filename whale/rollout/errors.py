"""Faults of ours during a rollout: missing and retried, never a reward of 0.

A harness's own failure is never one of these; it is a `whale.rollout.types.Status`.
"""

from whale.errors import WhaleError


class RolloutFault(WhaleError):
    """The machine, the sandbox or a tool failed; the micro-batch has not happened."""


class WorkerDied(RolloutFault):
    """The sandbox's worker, which never runs candidate code, ended, hung or broke its protocol."""


class MachineFault(RolloutFault):
    """The machine ran out of memory and killed an episode that was within its own limit."""


class ToolFault(RolloutFault):
    """A domain's tool failed, or returned what is not JSON."""


class VerifierFault(RolloutFault):
    """What judges an answer outside of this process did not do its work; the answer has no verdict."""


class SandboxUnavailable(WhaleError):
    """No permitted sandbox tier works on this machine."""
