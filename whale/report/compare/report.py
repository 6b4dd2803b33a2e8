"""All tables of a comparison, in the order in which they are read."""

from collections.abc import Callable
from functools import partial

from whale.errors import UsageError
from whale.report.compare.capability import capability_table
from whale.report.compare.course import cost_table, curves_table, phases_table, schedule_table
from whale.report.compare.layout import Table
from whale.report.compare.success import paired_table, runs_table, success_table
from whale.report.compare.systems import Grouped

TABLES: dict[str, Callable[[Grouped], Table]] = {
    "success": success_table,
    "paired": paired_table,
    "capability": capability_table,
    "schedules": schedule_table,
    "phases": phases_table,
    "cost": cost_table,
    "curves": curves_table,
    "runs": runs_table,
}


def tables(grouped: Grouped, only: list[str] | None = None, against: str | None = None) -> list[Table]:
    """The tables that have a row; or those that are named, in that order; paired with the system `against` alone.

    Raises:
        UsageError: a name is not a table's, or not a system's.
    """
    names = list(dict.fromkeys(system.name for system in grouped.systems))
    if against is not None and against not in names:
        raise UsageError(f"--against {against}: there are {'; '.join(names)}")
    if against is not None and "paired" not in (only or TABLES):
        raise UsageError(f"--against {against}: is for the paired table: give --table paired as well")
    by_name = TABLES | {"paired": partial(paired_table, against=against)}
    for name in only or ():
        if name not in TABLES:
            raise UsageError(f"--table {name}: there are {', '.join(TABLES)}")
    made = [by_name[name](grouped) for name in (only or TABLES)]
    return made if only else [table for table in made if table.rows]
