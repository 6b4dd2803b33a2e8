"""`whale plan`: what a run of a config takes, before anything is paid."""

import shutil
from collections.abc import Callable
from pathlib import Path

from whale.alternation.run_folder import RunFolder, runs_folder
from whale.cli.output import print_json, print_table, print_text
from whale.cli.progress import reporter
from whale.config import load_config
from whale.plan.estimate import Plan, Range
from whale.plan.rates import Rates


def plan(
    config_file: Path,
    overrides: list[str],
    probe: int | None,
    like: str | None,
    given: Rates,
    dollars_per_hour: float | None,
    json: bool,
    quiet: bool,
) -> None:
    """Count, take or measure rates, multiply."""
    from whale.domains.apart import judged_apart
    from whale.domains.registry import load_domain
    from whale.plan.amounts import amounts
    from whale.plan.estimate import estimate, parameters
    from whale.plan.rates import rates_of
    from whale.rollout.models import resolve_model

    config = load_config(config_file, overrides)
    domain = judged_apart(load_domain(config.domain, config.domain_options), config.domain, config.domain_options)
    splits = {str(split): len(tasks) for split, tasks in domain.splits().items()}
    most, least = amounts(config, splits), amounts(config, splits, earliest=True)
    model = resolve_model(config.model)
    rates = given
    if probe is not None:
        from whale.alternation.progress import Silent
        from whale.plan.probe import probe as measure

        rates = rates.over(measure(config, domain, probe, reporter(quiet) or Silent()))
    if like is not None:
        rates = rates.over(rates_of(RunFolder.find(like)))
    result = estimate(config, least, most, rates, parameters(model), dollars_per_hour)
    if json:
        print_json(result.to_json())
        return
    _print(str(config_file), result)


def _print(name: str, plan: Plan) -> None:
    most = plan.most
    print_text(f"{name}: {most.cycles} cycles, {most.steps} training steps, {most.rounds} proposal rounds at most")
    rows = [
        ["train", f"{most.train}"],
        ["score harnesses", f"{most.score}"],
        ["smoke runs", f"{most.smoke}"],
        ["evaluate (validation)", f"{most.evaluate}"],
        ["test", f"{most.test}"],
        ["all rollouts", _span(plan.rollouts)],
    ]
    print_table(["rollouts for", "at most"], rows)
    print_text("")
    lines = [
        ["sampled tokens", _span(plan.sampled_tokens) if plan.sampled_tokens else f"at most {plan.sampled_tokens_cap}"],
        ["prompt tokens", _span(plan.prompt_tokens)],
        ["time", _span(plan.seconds, _duration)],
        ["proposer", _span(plan.proposer_dollars, _dollars)],
        ["machine", _span(plan.machine_dollars, _dollars) if plan.machine_dollars else "no --dollars-per-hour given"],
        ["disk", _disk(plan.disk_bytes)],
    ]
    print_table(["", ""], lines)
    rates = plan.rates
    if rates.seconds_per_rollout is not None:
        trained = f", {rates.seconds_per_kept:.3g} s a trained one" if rates.seconds_per_kept is not None else ""
        print_text(f"rates: {rates.seconds_per_rollout:.3g} s a rollout{trained}; {rates.source or 'as given'}")
    if rates.passed is not None:
        hint = "" if rates.passed else ": RSFT trains on what passes, so no update would be made (docs/domains/own.md)"
        print_text(f"passed: {100 * rates.passed:.1f} % of the training rollouts that were measured{hint}")
    for line in plan.unknown:
        print_text(f"not known: {line}" if not line.startswith("proposer:") else line)


def _span(value: Range | None, show: Callable[[float], str] = lambda value: f"{value:,.0f}") -> str:
    if value is None:
        return "not known"
    low, high = show(value.least), show(value.most)
    return low if low == high else f"{low} to {high}"


def _dollars(value: float) -> str:
    return f"${value:,.2f}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def _disk(need: int | None) -> str:
    if need is None:
        return "not known"
    place = runs_folder().resolve()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    short = ": NOT ENOUGH" if free < need else ""
    return f"{need / 2**30:.2f} GB at most; {free / 2**30:.1f} GB are free{short}"
