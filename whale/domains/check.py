"""Prove that a domain keeps its contract, before a run is paid for.

Every check is one finding: what was looked at, whether it holds, and what to do where it does not. The domain's code
runs in a process of its own, each call under a time limit, so that one that never ends is a finding, too.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from whale.domains.base import SPLITS, Domain
from whale.domains.check_rules import H0_RUNS, RULES, TOTAL, Finding, Subject
from whale.domains.source import blame
from whale.domains.watched import Lost, Watch, watched
from whale.errors import WhaleError

__all__ = ["Finding", "check_domain"]

THERE = "four splits with tasks"
MAKING_SECONDS = 600.0
"""What making the domain may take."""
CALL_SECONDS = 60.0
"""What any other call of its code may take, but a verdict."""


def check_domain(make: Callable[[], Domain], *, run_h0: bool = True) -> Iterator[Finding]:
    """Yield a finding per rule. `make` makes the domain anew each time: two of them must agree.

    A WhaleError of `make` rises. `run_h0=False` leaves out the last rule, which needs torch and a sandbox.
    """
    left = [THERE, *(rule for rule in RULES if run_h0 or rule != H0_RUNS)]
    while left:
        lost = None
        for found in watched(partial(_findings, make, tuple(left))):
            if isinstance(found, Lost):
                lost = found
                break
            left.remove(found.rule)
            yield found
            if found.rule == THERE and not found.holds:
                return
        if lost is None:
            return
        # Another process goes on with the next rule.
        rule = left.pop(0)
        yield Finding(rule, False, lost.how)
        if rule == THERE:
            return
        if rule == TOTAL:
            yield from (
                Finding(each, False, "not tried, since a verdict did not end") for each in left if _judges(each)
            )
            left = [each for each in left if not _judges(each)]


def _findings(make: Callable[[], Domain], rules: Sequence[str], watch: Watch) -> Iterator[Finding]:
    try:
        watch("making the domain and its splits", MAKING_SECONDS)
        domain = make()
        subject = Subject(make, domain, domain.splits(), watch)
        there = _splits_are_there(subject)
    except WhaleError:
        raise
    except Exception as error:
        there = Finding(THERE, False, f"raised, {blame(error)}")
    if THERE in rules:
        yield there
    for rule in rules if there.holds else ():
        if rule != THERE:
            watch(rule, CALL_SECONDS)
            try:
                found = RULES[rule].look(subject)
            except Exception as error:  # the domain's own code, whatever it does
                found = Finding(rule, False, f"raised, {blame(error)}")
            yield found


def _splits_are_there(subject: Subject) -> Finding:
    splits = subject.splits
    empty = [split for split in SPLITS if not splits.get(split)]
    sizes = ", ".join(f"{split} {len(splits[split])}" for split in SPLITS if splits.get(split))
    return Finding(THERE, not empty, f"no task in {', '.join(empty)}" if empty else sizes)


def _judges(rule: str) -> bool:
    return RULES[rule].judges
