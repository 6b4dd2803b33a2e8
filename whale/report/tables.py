"""The tables of a run: held-out success by cycle, with n and interval, and what it cost."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from whale.alternation.decide import selects
from whale.alternation.run_folder import RunFolder
from whale.alternation.spent import PARTS, PLACES
from whale.alternation.state import State, Totals, waits_for_review
from whale.errors import CorruptLogError
from whale.events import CorruptLog, UnknownEvent
from whale.report.results import PairRow, Results, pair_rows, read_results

SELECTED_BY_TEST = 'evaluate.select = "test": the test chose the pair, so its success there is optimistic'
"""What every table says of a run that follows the paper's rule."""


def folder_results(folder: RunFolder) -> Results:
    """A run's results, by one reading of its log.

    Raises:
        CorruptLogError: the log is damaged.
    """
    log = folder.open_log(readonly=True)
    try:
        return read_results(log)
    except (CorruptLog, UnknownEvent) as error:
        raise CorruptLogError(f"{folder.log_place}: {error}") from error
    finally:
        log.close()


def total(state: State) -> Totals:
    """All that was paid, over all purposes."""
    values = list(state.totals.values())
    return Totals(
        sum(t.rollouts for t in values),
        sum(t.passed for t in values),
        sum(t.generated for t in values),
        sum(t.prompted for t in values),
    )


def shown_status(state: State, pid: int | None) -> str:
    """The status for people: a run that no process runs is not running, whatever was recorded last."""
    return "interrupted" if state.status in ("new", "running") and pid is None else state.status


def summary(folder: RunFolder) -> dict[str, Any]:
    """A run's state and results as JSON values."""
    results = folder_results(folder)
    state = results.state
    pid = folder.runner_pid()
    return {
        "run": folder.name,
        "status": shown_status(state, pid),
        "waits_for_review": waits_for_review(state),
        "noise_floor": state.noise,
        "proposer": {
            "sessions": results.sessions,
            "tokens": state.proposer_tokens,
            "dollars": state.proposer_dollars,
        },
        "runner": pid,
        "interrupted": state.interrupted,
        "cycle": state.cycle,
        "phase": state.phase,
        "step": state.step,
        "iteration": state.iteration,
        "weights": state.weights,
        "initial_weights": state.model,
        "checkpoint": state.checkpoint,
        "accepted": state.accepted,
        "accepted_tree": state.accepted_tree,
        "candidates": len(state.candidates),
        "waiting_requests": len(state.requests),
        "waiting_proposals": len(state.proposals),
        "scheduled_revert": state.revert_to,
        "interventions": list(state.interventions),
        "select": selects(state),
        "pairs": [
            {
                "cycle": row.evaluated.cycle,
                "split": row.evaluated.split,
                "harness": row.evaluated.candidate,
                "weights": row.evaluated.weights,
                "success": row.evaluated.score,
                "low": row.evaluated.low,
                "high": row.evaluated.high,
                "n": row.evaluated.n,
                "tasks": row.evaluated.tasks,
                "gain": asdict(row.gain) if row.gain else None,
                "search": row.fate,
                "selected": row.selected,
                "metrics": dict(row.evaluated.metrics),
            }
            for row in pair_rows(results)
        ],
        "cost": {purpose: msgspec.structs.asdict(totals) for purpose, totals in state.totals.items()},
        "total": msgspec.structs.asdict(total(state)),
        "seconds": {place: dict(results.seconds[place]) for place in PLACES if place in results.seconds},
    }


def percent(value: float) -> str:
    """A rate as the paper prints it."""
    return f"{100 * value:.1f} %"


def print_summary(folder: RunFolder) -> None:
    """The end table of a run, and which commands to try next."""
    from whale.cli.output import console, print_table, printable

    results = folder_results(folder)
    state = results.state
    out = console()
    rows = pair_rows(results)
    status = shown_status(state, folder.runner_pid())
    out.print(f"\n{printable(folder.name)}: {status}, cycle {state.cycle}", markup=False)
    if state.interrupted:
        out.print(f"interrupted: {state.interrupted}", markup=False)
    for split in ("validation", "test"):
        of_split = [row for row in rows if row.evaluated.split == split]
        if of_split:
            print_table(
                ["pair", "success", "95 % interval", "n", "gain (paired, 95 %)", "harness search", "weights"],
                [_cells(row, selects(state)) for row in of_split],
                title=f"\nheld-out success ({split})",
            )
    if rows:
        out.print(f"* selected: the best {selects(state)} success, ties to the earlier cycle")
        if selects(state) == "test":
            out.print(SELECTED_BY_TEST, markup=False)
    for intervention in state.interventions:
        out.print(f"human intervention: {intervention}", markup=False)
    cells = [[purpose, str(t.rollouts), str(t.generated), str(t.prompted)] for purpose, t in state.totals.items()]
    if cells:
        whole = total(state)
        cells.append(["total", str(whole.rollouts), str(whole.generated), str(whole.prompted)])
        print_table(["spent on", "rollouts", "sampled tokens", "prompt tokens"], cells, title="\ncost")
    if state.proposer_tokens:
        out.print(proposer_cost(results), markup=False)
    if results.seconds:
        print_table(["seconds of", "all", *PARTS], _times(results), title="\nwall time")
    if state.weights != state.model:
        out.print(f"\nweights: {state.model[:12]} -> {state.weights[:12]} after {len(state.steps)} steps")
    if rows:
        out.print(
            f"\ntry next:\n"
            f"  whale lineage {folder.name}\n"
            f"  whale diff {folder.name} h0 accepted\n"
            f"  whale show {folder.name} accepted --rollouts 1\n"
            f"  whale replay {folder.name}\n"
            f"  git -C {shlex.quote(str(folder.harnesses))} log --graph --oneline --notes=whale --all\n"
            f"  git -C {shlex.quote(str(folder.harnesses))} diff accepted~1 accepted",
            markup=False,
        )


def proposer_cost(results: Results) -> str:
    """What a proposer that is a model has cost, in one line; a session in the making counts with its replies so far."""
    state = results.state
    sessions = f"{results.sessions} session{'' if results.sessions == 1 else 's'}"
    if state.session_turns:
        sessions += " and one that has not ended"
    dollars = f"${state.proposer_dollars:.4f}" if state.proposer_dollars else "dollars not known without prices"
    return f"proposer: {sessions}, {state.proposer_tokens} tokens, {dollars}"


def _times(results: Results) -> list[list[str]]:
    """Wall time by place in the run, all of its runners together."""
    named = [(name, results.seconds[place]) for place, name in PLACES.items() if place in results.seconds]
    return [
        [name, f"{sum(parts.values()):.0f}", *(f"{parts.get(part, 0.0):.0f}" for part in PARTS)]
        for name, parts in named
    ]


def gain_cell(row: PairRow) -> str:
    """The paired gain in points; in words where it is 0 because there is nothing that could differ."""
    if row.gain is None:
        return "the first pair" if row.is_first and row.evaluated.cycle else ""
    return f"{100 * row.gain.gain:+z.1f} [{100 * row.gain.low:+z.1f}, {100 * row.gain.high:+z.1f}]"


def _cells(row: PairRow, select: str) -> Sequence[str]:
    e = row.evaluated
    name = "(θ0, h0)" if e.cycle == 0 else f"cycle {e.cycle}"
    return [
        name + (" *" if row.selected and e.split == select else ""),
        percent(e.score),
        f"[{100 * e.low:.1f}, {100 * e.high:.1f}]",
        str(e.n),
        gain_cell(row),
        row.fate,
        e.weights[:12],
    ]
