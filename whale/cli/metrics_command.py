"""`whale metrics`: held-out success by cycle and group, and what the rollouts show beside it."""

from dataclasses import asdict

from whale.alternation.run_folder import RunFolder
from whale.cli.output import print_json, print_table


def metrics(run: str, json: bool, by_group: bool) -> None:
    """Print a table per split."""
    from whale.domains.groups import ALL
    from whale.report.metrics import metrics_rows

    folder = RunFolder.find(run)
    rows = [row for row in metrics_rows(folder) if by_group or row.group == ALL]
    if json:
        print_json([asdict(row) for row in rows])
        return
    if not rows:
        print(f"{folder.name}: nothing is evaluated yet")
    # Format has a column of its own: it is every domain's.
    for split in dict.fromkeys(row.split for row in rows):
        of_split = [row for row in rows if row.split == split]
        names = sorted({name for row in of_split for name in row.metrics} - {"format"})
        print_table(
            ["pair", "group", "success", "95 % interval", "n", "tasks", "format", "truncated", "failed", "fabricated",
             "turns", "tokens", "tool calls", *names],
            [
                [
                    "(θ0, h0)" if row.cycle == 0 else f"cycle {row.cycle}",
                    row.group,
                    percent(row.figures.passed, row.figures.n),
                    f"[{100 * row.low:.1f}, {100 * row.high:.1f}]",
                    str(row.figures.n),
                    str(row.figures.tasks),
                    percent(row.figures.formatted, row.figures.n) if "format" in row.metrics else "",
                    percent(row.figures.truncated, row.figures.n),
                    percent(row.figures.failed, row.figures.n),
                    f"{row.figures.fabricated} of {row.figures.passed:g}",
                    f"{row.figures.turns:.1f}",
                    f"{row.figures.tokens:.0f}",
                    f"{row.figures.calls:.1f}",
                    *(f"{row.metrics[name]:.3f}" if name in row.metrics else "" for name in names),
                ]
                for row in of_split
            ],
            title=f"\n{folder.name}: {split}",
        )  # fmt: skip


def percent(part: float, whole: int) -> str:
    """A share in percent."""
    return f"{100 * part / whole:.1f} %"
