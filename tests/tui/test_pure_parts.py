"""Renderers without a terminal: text, charts, diffs, transcripts, keys."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from whale.errors import UsageError
from whale.harness_repo import visible
from whale.rollout.types import ToolCall, Trajectory, Turn
from whale.tui import charts
from whale.tui.actions import ACTIONS, load_keys
from whale.tui.difflines import SideBySideLines, UnifiedLines, parse
from whale.tui.highlight import Painter, paint
from whale.tui.text import ROLES, clean, cut, duration, fit, measure, plain, thousands, wrap
from whale.tui.transcript import transcript

TEXT = st.text(st.characters(codec="utf-8"), max_size=60)


@given(TEXT, st.integers(0, 30))
def test_fitted_text_takes_exactly_its_cells(text: str, width: int) -> None:
    assert cell_len(fit(text, width)) == width
    assert cell_len(cut(text, width)) <= max(width, 1)


@given(TEXT, st.integers(8, 40), st.integers(0, 3))
def test_wrapped_text_loses_nothing_but_spaces_at_breaks_and_never_overflows(text: str, width: int, by: int) -> None:
    lines = wrap(text, width, hanging=by)
    assert all(cell_len(part) <= width for part in lines)
    assert "".join("".join(lines).split()) == "".join(
        "".join(clean(p) for p in text.replace("\r\n", "\n").split("\n")).split()
    )


@given(TEXT)
def test_cleaned_text_cannot_steer_a_terminal(text: str) -> None:
    assert visible(clean(text), keep="") == clean(text)
    assert not set(clean(text)) & set(map(chr, [*range(32), 127, *range(128, 160), 0x202E, 0x2028]))


def test_numbers_and_times_keep_a_small_column() -> None:
    assert [thousands(n) for n in (0, 999, 9999, 12345, 1_234_567, 5e9)] == [
        "0",
        "999",
        "9,999",
        "12.3k",
        "1.23M",
        "5G",
    ]
    assert [duration(s) for s in (5, 65, 3700, 200_000)] == ["5 s", "1:05 min", "1:01 h", "2.3 d"]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=300), st.integers(20, 90), st.integers(2, 12))
def test_a_curve_keeps_to_its_panel(values: list[float], width: int, height: int) -> None:
    rows = charts.curve(values, width, height)
    assert len(rows) == height
    assert all(measure(row) == width for row in rows)


def test_an_interval_shows_its_ends_its_value_and_its_figures_and_the_best_by_another_sign() -> None:
    rows = charts.intervals(
        [charts.Interval("cycle 1", 0.2, 0.1, 0.3), charts.Interval("cycle 2", 0.5, 0.4, 0.6, best=True)], 70
    )
    first, second = (plain(row) for row in rows)
    assert "├" in first and "●" in first and "┤" in first and "20.0 % [10.0, 30.0]" in first
    assert "◆" in second
    assert first.index("┤") < second.index("├"), "one scale: what does not overlap does not look as if it did"


DIFF = """diff --git a/harness.py b/harness.py
index 1..2 100644
--- a/harness.py
+++ b/harness.py
@@ -1,4 +1,5 @@ class A:
 def run():
-    x = "old"
-    gone()
+    x = "new"
     keep
+    added()
diff --git a/p.md b/p.md
new file mode 100644
--- /dev/null
+++ b/p.md
@@ -0,0 +1 @@
+--- not a header
"""


def test_a_diff_is_read_line_by_line_with_the_numbers_of_both_sides() -> None:
    diff = parse(DIFF)
    assert (diff.added, diff.removed, len(diff.files), len(diff.hunks)) == (3, 2, 2, 2)
    assert [(d.old, d.new) for d in diff.lines if d.kind in ("same", "added", "removed")] == [
        (1, 1), (2, 0), (3, 0), (0, 2), (4, 3), (0, 4), (0, 1),
    ]  # fmt: skip
    assert any(d.text == "--- not a header" and d.kind == "added" for d in diff.lines)


def test_both_layouts_show_every_line_and_mean_the_same_places() -> None:
    diff = parse(DIFF)
    unified, sides = UnifiedLines(diff, Painter), SideBySideLines(diff, Painter)
    shown = {i for left, right in sides.rows for i in (left, right) if i is not None}
    assert shown == set(range(len(unified)))
    for i in range(len(diff.lines)):
        row = sides.find(i)
        assert row is not None and i in sides.rows[row]
    for i in range(len(sides)):
        if diff.lines[int(str(sides.key(i)))].kind in ("same", "added", "removed"):
            assert measure(sides.line(i, 81)) == 81


def test_removed_and_added_lines_have_signs_and_changed_words_a_role_of_their_own() -> None:
    lines = UnifiedLines(parse(DIFF), Painter)
    removed = next(lines.line(i, 80) for i in range(len(lines)) if lines.text(i).startswith("-    x"))
    assert "- " in plain(removed)
    assert [span.text for span in removed if span.role == "removed-word"] == ["old"]


def test_side_by_side_scrolls_inside_its_columns() -> None:
    lines = SideBySideLines(parse(DIFF), Painter)
    lines.shift = 4
    assert measure(lines.line(2, 81)) == 81
    assert "run():" in plain(lines.line(2, 81)) and "def run" not in plain(lines.line(2, 81))


def test_a_string_over_many_lines_is_coloured_as_one() -> None:
    text = '"""one\ntwo"""\nx = 1\n'
    lines = paint(text, "harness.py")
    assert [plain(part) for part in lines] == text.split("\n")
    assert {span.role for span in lines[1]} == {"comment"}
    assert Painter("harness.py", text).line(2, 'two"""') == lines[1]
    assert {role.split("|")[0] for part in lines for _, role in part if role} <= set(ROLES)


def trajectory(**changes: object) -> Trajectory:
    def turn(text: str, *messages: dict[str, str], ids: tuple[int, ...] = (1, 2)) -> Turn:
        return Turn(ids, (3, 4), (-0.1, -0.2), "stop", "w", 0, text, "", messages)

    user, tool = {"role": "user", "content": "who?"}, {"role": "user", "content": "found: \x1b[31mred"}
    first = {"role": "assistant", "content": "look it up"}
    values: dict[str, object] = {
        "task_id": "t1", "sample": 0, "seed": 1, "status": "ok", "reason": "", "answer_turn": 1, "reward": 1.0,
        "turns": (turn("look it up", user), turn("Ada", user, first, tool, ids=(1, 2, 3, 4, 5))),
        "calls": (ToolCall(1, "search", {"query": "who"}, ["Ada"]),),
    }  # fmt: skip
    return Trajectory(**{**values, **changes})  # type: ignore[arg-type]


def test_a_transcript_shows_each_message_once_with_its_role_and_what_was_trained() -> None:
    lines = transcript(trajectory(), 80, purpose="train", config={})
    text = "\n".join(map(plain, lines))
    assert text.count("who?") == 1 and text.count("look it up") == 1
    assert "✓ passed" in text and 'search(query="who")' in text
    assert "turn 2 of 2, the answer" in text
    assert [
        plain(row)[7] for row in lines if "look it up" in plain(row) or ("Ada" in plain(row) and "▐" in plain(row))
    ] == ["T", "T"]


@pytest.mark.parametrize(
    "purpose, changes, config",
    [
        ("score", {}, {}),
        ("train", {"reward": 0.0}, {}),
        ("train", {"status": "raised", "answer_turn": None}, {}),
    ],
)
def test_what_the_trainer_drops_is_not_called_trained(
    purpose: str, changes: dict[str, object], config: dict[str, object]
) -> None:
    lines = transcript(trajectory(**changes), 80, purpose=purpose, config=config)
    assert not any(span.role == "trained" for row in lines for span in row)


@pytest.mark.parametrize("changes, trained", [({"reward": 0.0}, True), ({"status": "raised"}, False)])
def test_by_grpo_a_failed_rollout_is_trained_on_if_its_questions_rewards_differ(
    changes: dict[str, object], trained: bool
) -> None:
    lines = transcript(trajectory(**changes), 80, purpose="train", config={"weights": {"method": "grpo"}})
    assert any(span.role == "trained" for row in lines for span in row) is trained
    assert ("T trained if its question's rewards differ" in "\n".join(map(plain, lines))) is trained


def test_every_action_has_an_id_of_its_own_and_a_sentence() -> None:
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)
    assert all(action.help.endswith(".") for action in ACTIONS)


def test_no_two_actions_that_are_heard_together_have_one_key(tmp_path: Path) -> None:
    # A file that moves a key onto itself makes the check look at all of the defaults.
    for action in ACTIONS:
        path = tmp_path / "keys.toml"
        scope, _, name = action.id.partition(".")
        path.write_text(f'[{scope}]\n{name} = "{action.keys}"\n')
        assert load_keys(path) == {action.id: action.keys}


def test_the_key_file_on_the_page_is_taken(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tui.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "keys.toml"
    path.write_text(example, encoding="utf-8")
    assert len(load_keys(path)) == 2


@pytest.mark.parametrize(
    "text, named",
    [
        ('[app]\nquit = "p"', "steer.pause"),
        ('[app]\nquti = "x"', "app.quti"),
        ("[app]\nquit = 3", "app.quit"),
        ("app = 1", "[app]"),
        ("[app", "TOML"),
    ],
)
def test_a_key_file_that_cannot_be_meant_is_refused_and_the_line_is_named(
    text: str, named: str, tmp_path: Path
) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        load_keys(path)
    assert named in str(error.value) and str(path) in str(error.value)
