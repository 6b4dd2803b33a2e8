"""The figures of a report against logs whose figures were computed by hand."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from tests.report.made import MadeLog, outcome, two_cycles
from whale.config import config_from, to_builtins
from whale.errors import UsageError
from whale.events import types as ev
from whale.report.compare.layout import MARKS, Figure
from whale.report.compare.records import RunRecord
from whale.report.compare.report import TABLES, tables
from whale.report.compare.sources import find
from whale.report.compare.systems import Grouped, group, label
from whale.report.compare.telling import telling

LOGS = Path(__file__).parents[2] / "docs" / "results" / "systems"


def both_sides(seed: int, *rewards: tuple[int, ...]) -> RunRecord:
    return two_cycles(seed, *rewards, schedule={"cycles": 2}).record(f"both-{seed}")


def weights_only(seed: int, *rewards: tuple[int, ...]) -> RunRecord:
    return two_cycles(seed, *rewards, schedule={"kind": "weight-only"}).record(f"weights-{seed}")


@pytest.fixture
def grouped() -> Grouped:
    """whale passes 1 of 4, then 2, then 4 and 3; weight-only 1, 1, 3 (one seed)."""
    start, half = (1, 0, 0, 0), (1, 1, 0, 0)
    return group(
        [
            both_sides(1, start, half, (1, 1, 1, 1)),
            both_sides(2, start, half, (1, 1, 1, 0)),
            weights_only(1, start, start, (1, 1, 1, 0)),
        ]
    )


def figure(grouped: Grouped, table: str, system: str, quantity: str, **more: object) -> Figure:
    found = [
        f
        for f in TABLES[table](grouped).figures
        if (f.system, f.quantity) == (system, quantity) and all(getattr(f, k) == v for k, v in more.items())
    ]
    assert len(found) == 1, found
    return found[0]


WHALE = "whale (0.6, 6)"


def test_success_is_the_mean_over_seeds_of_the_selected_pair_on_the_test(grouped: Grouped) -> None:
    success = figure(grouped, "success", WHALE, "success")
    assert (success.value, success.split, success.seeds, success.tasks) == (0.875, "test", 2, 4)
    assert figure(grouped, "success", WHALE, "first").value == 0.25
    assert figure(grouped, "success", WHALE, "gain").value == 0.625


def test_what_was_paid_leaves_evaluations_out(grouped: Grouped) -> None:
    # Three steps of four rollouts, one round of four.
    assert figure(grouped, "success", WHALE, "success").rollouts == 16


def test_systems_are_compared_on_the_seeds_that_both_have(grouped: Grouped) -> None:
    against = figure(grouped, "paired", WHALE, "difference", against="weight-only")
    assert (against.value, against.seeds, against.tasks) == (0.25, 1, 4)


def test_a_run_has_the_minutes_from_its_first_event_to_its_last(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    two_cycles(1, (1, 0, 0, 0), (0,) * 4, (1,) * 4).export(path)
    (record,) = find([str(path)]).records
    (table,) = tables(group([record]), ["runs"])
    times = [datetime.fromisoformat(json.loads(line)["at"]) for line in path.read_text().splitlines()]
    (minutes,) = [figure.value for figure in table.figures if figure.quantity == "minutes"]
    assert minutes == (times[-1] - times[0]).total_seconds() / 60
    assert dict(zip(table.columns, table.rows[0], strict=True))["minutes"] == f"{minutes:.1f}"
    early = replace(record, seconds=90.0)
    assert tables(group([early]), ["runs"])[0].rows[0][9] == "1.5"


def test_all_systems_can_be_paired_with_one_alone() -> None:
    three = group(
        [
            both_sides(1, (1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 1)),
            weights_only(1, (1, 0, 0, 0), (1, 0, 0, 0), (1, 1, 1, 0)),
            two_cycles(1, (1, 0, 0, 0), (0,) * 4, (0,) * 4, schedule={"kind": "stagewise"}).record("stages"),
        ]
    )
    (every,) = tables(three, ["paired"])
    assert len(every.rows) == 3
    (whole,) = tables(three, ["paired"], WHALE)
    differences = {f.system: (f.against, f.value) for f in whole.figures if f.quantity == "difference"}
    assert differences == {"weight-only": (WHALE, -0.25), "stagewise": (WHALE, -0.75)}
    with pytest.raises(UsageError, match=re.escape(f"--against whale: there are weight-only; stagewise; {WHALE}")):
        tables(three, None, "whale")
    with pytest.raises(UsageError, match="is for the paired table"):
        tables(three, ["success"], WHALE)


def test_a_curve_has_what_was_paid_before_each_evaluation(grouped: Grouped) -> None:
    curve = [f for f in TABLES["curves"](grouped).figures if f.system == WHALE]
    assert [(f.cycle, f.rollouts, f.value) for f in curve] == [(0, 0, 0.25), (1, 8, 0.5), (2, 16, 0.875)]


def test_the_cost_of_a_level_is_that_of_the_first_cycle_which_is_not_below_it(grouped: Grouped) -> None:
    # weight-only is best with 3 of 4 after 16 rollouts; whale's mean is 2 of 4 after 8 and above it after 16.
    assert figure(grouped, "cost", WHALE, "rollouts to reach", against="weight-only").value == 16
    rows = TABLES["cost"](grouped).rows
    assert any("not reached, best 75.0" in row and "weight-only" in row for row in rows)


def test_a_level_is_reached_by_what_equals_it() -> None:
    start, half = (1, 0, 0, 0), (1, 1, 0, 0)
    grouped = group([both_sides(1, start, half, (1, 1, 1, 1)), weights_only(1, start, half, start)])
    assert figure(grouped, "cost", WHALE, "rollouts to reach", against="weight-only").value == 8


def test_adaptive_phases_are_measured_in_epochs_and_rounds() -> None:
    made = MadeLog(schedule={"kind": "adaptive"})
    made.evaluate(0, "validation", (0, 0, 0, 0))
    for cycle, (steps, rounds) in enumerate([(1, 2), (2, 6), (3, 3)], 1):
        made.train(cycle, steps, "patience: ...")
        made.search(cycle, rounds, "budget" if rounds == 6 else "patience: ...")
        made.evaluate(cycle, "validation", (1, 0, 0, 0))
    grouped = group([made.record()])
    # A step is two of four questions.
    assert figure(grouped, "phases", "adaptive", "median epochs of a weight phase").value == 1.0
    assert figure(grouped, "phases", "adaptive", "max epochs of a weight phase").value == 1.5
    assert figure(grouped, "phases", "adaptive", "median iterations of a harness phase").value == 3
    assert [row[-2] for row in TABLES["phases"](grouped).rows] == ["3 of 3", "2 of 3"]
    assert figure(grouped, "schedules", "adaptive", "epochs").value == 3.0


def test_capability_counts_retrieval_over_all_and_extraction_over_those_that_found_the_answer() -> None:
    made = MadeLog()
    seen = [
        outcome("a", 1.0, metrics={"format": 1.0, "answer_bearing": 1.0}),
        outcome("b", 0.0, metrics={"format": 1.0, "answer_bearing": 1.0}),
        outcome("c", 0.0, metrics={"format": 0.0, "answer_bearing": 0.0}, truncated=True),
        outcome("d", 0.0, status="harness_error"),
    ]
    made.rollouts("evaluate", "c000/evaluate/validation/b0", "w0", seen)
    made.add(
        ev.Evaluated(
            cycle=0, split="validation", candidate="h0", tree="t0", weights="w0", n=4, tasks=4, passed=1, score=0.25,
            low=0, high=1,
        )
    )  # fmt: skip
    grouped = group([made.record()])
    values = {
        name: figure(grouped, "capability", WHALE, f"{name}, (θ0, h0)").value
        for name in ("format", "truncated", "failed", "retrieval", "extraction")
    }
    assert values == {"format": 0.5, "truncated": 0.25, "failed": 0.25, "retrieval": 0.5, "extraction": 0.5}


def marked_run(mark: str) -> MadeLog:
    tables: dict[str, object] = {"schedule": {"kind": "adaptive"}}
    if mark == "‡":
        tables["evaluate"] = {"select": "test", "test_tasks": 4}
    made = two_cycles(1, (0, 0, 0, 0), (1, 0, 0, 0), (1, 1, 0, 0), **tables)
    if mark == "†":
        made.add(
            ev.HarnessReverted(
                cycle=2, candidate="h0", tree="t0", previous="h0", barred="t1", request="control/revert/1"
            )
        )
    if mark == "¶":
        made.add(
            ev.RunForked(
                name="f",
                origin=ev.Origin("made", 3, "0"),
                config=dict(made.record().config),
                changed=["schedule.cycles"],
            )
        )
    return made


@pytest.mark.parametrize("mark", ["†", "‡", "§", "¶"])
def test_every_table_marks_a_run_that_is_not_as_planned_and_says_what_the_mark_means(mark: str) -> None:
    made = marked_run(mark)
    if mark == "§":
        made = MadeLog(schedule={"kind": "adaptive"})
        made.evaluate(0, "validation", (0, 0, 0, 1))
        made.train(1, 1, "patience: ...")
        made.search(1, 1)
        made.evaluate(1, "validation", (0, 0, 1, 1))
    other = both_sides(1, (0, 0, 0, 0), (1, 0, 0, 0), (1, 0, 0, 0))
    for name, build in TABLES.items():
        table = build(group([made.record("one"), other]))
        assert any(mark in cell for row in table.rows for cell in row), name
        assert f"{mark} {MARKS[mark]}" in table.notes, name


def test_a_figure_says_who_intervened_what_selected_and_whether_it_is_complete() -> None:
    (by_hand,) = [f for f in TABLES["success"](group([marked_run("†").record()])).figures if f.quantity == "success"]
    assert (by_hand.interventions, by_hand.select, by_hand.complete) == (1, "validation", True)
    (by_test,) = [f for f in TABLES["success"](group([marked_run("‡").record()])).figures if f.quantity == "success"]
    assert (by_test.interventions, by_test.select) == (0, "test")


def test_configs_that_differ_in_the_seed_alone_are_one_system_and_others_say_in_what_they_differ() -> None:
    def made(seed: int, rate: float) -> RunRecord:
        return two_cycles(seed, (0,), (0,), (1,), weights={"rollouts_per_prompt": 2, "learning_rate": rate}).record(
            f"{seed}-{rate}"
        )

    grouped = group([made(1, 1e-5), made(2, 1e-5), made(1, 3e-5)])
    assert [(system.name, len(system.runs)) for system in grouped.systems] == [
        (f"{WHALE}, weights.learning_rate=1e-05", 2),
        (f"{WHALE}, weights.learning_rate=3e-05", 1),
    ]


def test_adapters_tell_a_system_and_other_spellings_of_them_do_not() -> None:
    def made(seed: int, **weights: object) -> RunRecord:
        record = two_cycles(seed, (0,), (0,), (1,), weights={"rollouts_per_prompt": 2, **weights})
        return record.record(f"{seed}-{weights}")

    older = made(3)
    weights = {key: value for key, value in older.config["weights"].items() if not key.startswith("lora_")}
    older = replace(older, state=msgspec.structs.replace(older.state, config={**older.config, "weights": weights}))
    with_lora = [made(1, lora_rank=8), made(2, lora_rank=8, lora_alpha=16.0), made(1, lora_rank=8, lora_alpha=8.0)]
    runs = [made(1), older, *with_lora]
    assert [(system.name.removeprefix(WHALE), len(system.runs)) for system in group(runs).systems] == [
        (", weights.lora_alpha=16.0, weights.lora_rank=8, weights.lora_targets=all-linear", 2),
        (", weights.lora_alpha=8.0, weights.lora_rank=8, weights.lora_targets=all-linear", 1),
        (", weights.lora_rank=0", 2),
    ]
    (alone,) = group([made(1, lora_rank=8)]).systems
    assert alone.name == f"{WHALE}, weights.lora_rank=8"


def test_what_bears_on_no_result_tells_no_systems_apart() -> None:
    def made(seed: int, **tables: dict[str, object]) -> RunRecord:
        return two_cycles(seed, (0,), (0,), (1,), **tables).record(f"{seed}")

    alike = [
        made(1, weights={"rollouts_per_prompt": 2, "checkpoint_every": 8, "micro_batch_tokens": 64}),
        made(2, weights={"rollouts_per_prompt": 2, "checkpoint_every": 100, "micro_batch_tokens": 4096}),
        made(4, weights={"rollouts_per_prompt": 2, "activation_checkpointing": True, "compile": True}),
    ]
    older = made(3, weights={"rollouts_per_prompt": 2})
    config = dict(older.config)
    later = ("weights", "rate_schedule"), ("weights", "warmup_updates"), ("weights", "decay_updates")
    for table, key in (("weights", "method"), ("weights", "compile"), ("schedule", "tasks_patience"), *later):
        # A key that came later: its default is what the run did.
        config[table] = {name: value for name, value in config[table].items() if name != key}
    older = replace(older, state=msgspec.structs.replace(older.state, config=config))
    (system,) = group([*alike, older]).systems
    assert (system.name, len(system.runs)) == (WHALE, 4)


def test_what_runs_did_before_a_setting_was_there_is_another_system() -> None:
    with_floor = two_cycles(1, (0,), (0,), (1,), search={"noise_floor": True}).record("with")
    search = {key: value for key, value in with_floor.config["search"].items() if key != "noise_floor"}
    config = {**with_floor.config, "search": search}
    older = replace(with_floor, head="other", state=msgspec.structs.replace(with_floor.state, config=config))
    assert [system.name for system in group([with_floor, older]).systems] == [
        f"{WHALE}, search.noise_floor=False",
        f"{WHALE}, search.noise_floor=True",
    ]


def test_a_model_is_what_it_holds_whatever_its_name() -> None:
    def made(seed: int, name: str, theta: str) -> RunRecord:
        record = two_cycles(seed, (0,), (0,), (1,), model=name).record(name)
        return replace(record, state=msgspec.structs.replace(record.state, model=theta))

    same = [made(1, "smollm2", "aa" * 32), made(2, "/models/smollm2", "aa" * 32)]
    (system,) = group(same).systems
    assert (system.name, len(system.runs)) == (WHALE, 2)
    other = made(1, "qwen", "bb" * 32)
    assert [s.name for s in group([same[0], other]).systems] == [f"{WHALE}, model=qwen", f"{WHALE}, model=smollm2"]
    namesake = made(3, "smollm2", "cc" * 32)
    assert [s.name for s in group([same[0], namesake]).systems] == [
        f"{WHALE}, model=aaaaaaaaaaaa",
        f"{WHALE}, model=cccccccccccc",
    ]


def test_domains_of_other_data_are_told_apart_by_their_options_or_else_by_the_data() -> None:
    def made(data: str, name: str, **options: int) -> RunRecord:
        record = two_cycles(1, (0,), (0,), (1,), domain_options=options).record(name)
        return replace(record, state=msgspec.structs.replace(record.state, data=data))

    def names(*records: RunRecord) -> list[str]:
        return sorted(system.domain for system in group(records).systems)

    few, many, usual = (
        made("aa" * 32, "few", harness=64),
        made("bb" * 32, "many", harness=256),
        made("cc" * 32, "usual"),
    )
    assert names(few) == ["math"]
    assert names(few, many) == ["math (harness=256)", "math (harness=64)"]
    assert names(few, usual) == ["math (harness=64)", "math (harness=default)"]
    # The domain's own data or code changed between the two.
    assert names(few, made("dd" * 32, "later", harness=64)) == ["math (aaaaaa)", "math (dddddd)"]


def test_another_file_of_the_users_own_is_another_system() -> None:
    record = two_cycles(1, (0,), (0,), (1,)).record("a")
    changed = replace(
        record, head="other", state=msgspec.structs.replace(record.state, pinned={"search.acceptance": "ab" * 32})
    )
    assert len(group([record, changed]).systems) == 2


def test_a_setting_that_is_not_usual_is_said_with_no_other_system_beside_it() -> None:
    record = two_cycles(1, (0,), (0,), (1,), weights={"rollouts_per_prompt": 2, "learning_rate": 1e-4}).record("a")
    assert [system.name for system in group([record]).systems] == [f"{WHALE}, weights.learning_rate=0.0001"]


def test_systems_with_other_schedules_of_the_learning_rate_are_told_apart() -> None:
    def made(seed: int, **changes: object) -> RunRecord:
        weights = {"rollouts_per_prompt": 2, **changes}
        return two_cycles(seed, (0,), (0,), (1,), weights=weights).record(f"{seed}{changes}")

    linear = {"rate_schedule": "linear", "decay_updates": 40}
    records = [made(1), made(1, **linear), made(2, **linear), made(1, **linear | {"decay_to": 0.0})]
    schedule = ", weights.decay_updates={}, weights.rate_schedule={}"
    assert [(system.name, len(system.runs)) for system in group(records).systems] == [
        (f"{WHALE}, weights.decay_to=0.0{schedule.format(40, 'linear')}", 1),
        (f"{WHALE}, weights.decay_to=0.1{schedule.format(0, 'constant')}", 1),
        (f"{WHALE}, weights.decay_to=0.1{schedule.format(40, 'linear')}", 2),
    ]
    alone = group([made(1, warmup_updates=3)]).systems
    assert [system.name for system in alone] == [f"{WHALE}, weights.warmup_updates=3"]


def test_a_side_that_a_schedule_leaves_out_tells_nothing() -> None:
    def of(kind: str, **tables: Mapping[str, object]) -> dict[str, object]:
        return telling(to_builtins(config_from({"schedule": {"kind": kind}, **tables}, "test")))

    assert of("harness-only") == of("harness-only", weights={"batch": 7})
    assert of("weight-only") == of("weight-only", search={"candidates": 7})
    for table in ({"weights": {"batch": 7}}, {"search": {"candidates": 7}}):
        assert of("fixed") != of("fixed", **table)
    assert of("fixed", schedule={"kind": "fixed", "epochs": 0.4}) == of(
        "fixed", schedule={"kind": "fixed", "epochs": "0.40", "weight_cycles": 3}
    )


def test_a_log_that_is_found_twice_counts_once_and_another_run_of_the_same_seed_is_named() -> None:
    one = two_cycles(1, (0,), (0,), (1,))
    grouped = group([one.record("a"), one.record("b")])
    assert len(grouped.systems[0].runs) == 1
    assert not grouped.notes
    newer = two_cycles(1, (0,), (1,), (1,))
    for records in ([one.record("a"), newer.record("c")], [newer.record("c"), one.record("a")]):
        again = group(records)
        assert [run.source for run in again.systems[0].runs] == ["c"], "the newer one, in whatever order they come"
        assert "a: c has the same config and seed" in again.notes[0]
    cut = MadeLog(1, name="cut")
    cut.evaluate(0, "validation", (0,))
    whole = two_cycles(1, (0,), (0,), (1,))
    for records in ([cut.record("cut"), whole.record("whole")], [whole.record("whole"), cut.record("cut")]):
        found = group(records)
        assert [run.source for run in found.systems[0].runs] == ["whole"]
        assert "cut: whole has the same config and seed" in found.notes[0]


@pytest.mark.parametrize(
    "config, name",
    [
        ({"schedule": {"kind": "fixed", "epochs": "0.2", "iterations": 2}}, "whale (0.2, 2)"),
        (
            {"schedule": {"kind": "fixed", "epochs": "0.6", "iterations": 6}, "search": {"space": "prompts"}},
            "fst (0.6, 6)",
        ),
        ({"schedule": {"kind": "adaptive"}, "search": {"space": "prompts"}}, "fst adaptive"),
        ({"schedule": {"kind": "weight-only"}, "search": {"space": "prompts"}}, "weight-only"),
        ({"schedule": {"kind": "stagewise"}}, "stagewise"),
        ({"schedule": {"kind": "stagewise"}, "weights": {"method": "rsft"}}, "stagewise"),
        ({"schedule": {"kind": "adaptive"}, "weights": {"method": "grpo"}}, "adaptive with grpo"),
        ({"schedule": {"kind": "harness-only"}, "weights": {"method": "grpo"}}, "harness-only"),
    ],
)
def test_a_system_has_the_papers_name(config: dict[str, object], name: str) -> None:
    assert label(config) == name


def test_the_published_logs_give_the_success_that_each_of_them_recorded() -> None:
    found = find([str(LOGS)])
    assert len(found.records) == len(list(LOGS.glob("*.jsonl.xz"))) > 18
    grouped = group(found.records)
    figures = [f for f in TABLES["runs"](grouped).figures if f.quantity == "success"]
    recorded: dict[tuple[str, int, str], float] = {}
    for system in grouped.systems:
        for run in system.runs:
            point = run.chosen("test") or run.chosen("validation")
            assert point is not None
            recorded[system.domain, run.seed, system.name] = point.evaluated.score
    assert {(f.domain, f.seed, f.system): f.value for f in figures} == pytest.approx(recorded)


def test_an_unknown_table_lists_those_that_there_are(grouped: Grouped) -> None:
    with pytest.raises(UsageError, match="success, paired"):
        tables(grouped, ["succes"])


@pytest.mark.parametrize("build", TABLES.values(), ids=TABLES)
def test_a_run_that_has_only_begun_breaks_no_table(build: Callable[[Grouped], object]) -> None:
    build(group([MadeLog().record()]))
