"""A log that any earlier version wrote folds for ever, to the state that it had then."""

import json
from pathlib import Path

import msgspec
import pytest

from tests.stored_logs import SAMPLES, stored_run
from whale.alternation.state import State, reduce
from whale.events import fold
from whale.events.types import EVENT_TYPES, RunStarted

LOGS = sorted(SAMPLES.glob("run_v*.jsonl.gz"))
TYPES = sorted(SAMPLES.glob("types_v*.jsonl"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_a_stored_run_folds_to_the_state_that_was_written_beside_it(path: Path) -> None:
    log = stored_run(path)
    log.verify()
    state = fold(reduce, State(), log.read())
    expected = json.loads(path.with_name(path.name.replace(".jsonl.gz", ".json")).read_text())
    assert {name: summary(state)[name] for name in expected} == expected


def summary(state: State) -> dict[str, object]:
    return {
        "status": state.status,
        "cycle": state.cycle,
        "weights": state.weights,
        "accepted_tree": state.accepted_tree,
        "trees": {c.id: c.tree for c in state.candidates.values()},
        "scores": {c.id: [s.score for s in c.scores] for c in state.candidates.values()},
        "validation": [e.score for e in state.evaluations],
        "rollouts": {purpose: totals.rollouts for purpose, totals in state.totals.items()},
        "digests": [step.weights for step in state.steps],
        "interventions": list(state.interventions),
        "barred": sorted(state.barred),
        "origins": [[o.run, o.position, o.hash] for o in state.origins],
    }


def test_the_first_version_of_run_started_had_a_field_that_is_gone() -> None:
    """Otherwise the sample would not test its upcaster."""
    log = stored_run(SAMPLES / "run_v1.jsonl.gz")
    row = next(iter(log.rows()))
    assert (row.type, row.schema_version) == ("RunStarted", 1)
    assert b'"origin":null' in row.data
    assert isinstance(next(iter(log.read())).event, RunStarted)


def test_an_event_of_every_type_as_it_was_written_reads_as_the_same_for_ever() -> None:
    """A type that is new or changes needs another file: `python -m tests.events.samples.types N`."""
    for path in TYPES:
        expected = json.loads(path.with_name(path.name.replace(".jsonl", ".json")).read_text())
        read = {r.type: msgspec.to_builtins(r.event) for r in stored_run(path).read()}
        for name, data in expected.items():
            assert {field: read[name][field] for field in data} == data, f"{path.name}: {name}"
    newest = {row.type: row.schema_version for row in stored_run(TYPES[-1]).rows()}
    assert newest == {name: cls.schema_version for name, cls in EVENT_TYPES.items()}


if __name__ == "__main__":
    for path in LOGS:
        expected = path.with_name(path.name.replace(".jsonl.gz", ".json"))
        if not expected.exists():
            state = fold(reduce, State(), stored_run(path).read())
            expected.write_text(json.dumps(summary(state), indent=1, sort_keys=True) + "\n")
