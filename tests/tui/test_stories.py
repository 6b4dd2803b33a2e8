"""Each screen as a user meets it: set up, press, see."""

from pathlib import Path

from textual.widgets import Input

from tests.tui.conftest import story, watching
from whale.alternation.run_folder import RunFolder
from whale.tui.lines import LineView


@story
async def test_the_list_shows_all_runs_and_enter_opens_one(own_run: Path) -> None:
    async with watching(None, (100, 24)) as user:
        await user.waits_to_see("completed")
        user.sees("1 Runs", "toy", "✓ completed", "cycle 2")
        await user.press("enter")
        await user.waits_to_see("held-out success")
        user.sees("whale toy")


@story
async def test_the_overview_says_what_goes_on_what_was_reached_and_what_was_paid(made_up_run: Path) -> None:
    async with watching(made_up_run, (120, 40)) as user:
        user.sees("✓ completed", "cycle 3/3", "(θ0, h0)", "best score of each cycle", "reward in training", "scoring")
    with RunFolder(made_up_run).open_log(readonly=True) as log:
        at = next(r.position for r in log.read() if r.key == "rollouts/c003/harness/c002-i02-m2/b0000")
    async with watching(made_up_run, at=at) as user:
        user.sees(f"the past: after event {at}", "this step", "harness phase", "rollouts", "cycle 3/3 · harness")


@story
async def test_in_the_lineage_a_user_walks_to_parents_and_children_folds_filters_and_searches(
    made_up_run: Path,
) -> None:
    async with watching(made_up_run, (120, 40)) as user:
        await user.press("3")
        user.sees("lineage · 19 candidates", "▾ cycle 3", "◆ accepted", "c003-i02-m3")
        state = RunFolder(made_up_run).state()
        await user.press("g", "j")
        first = user.app.chosen
        assert first is not None and first in state.candidates
        await user.press("u")
        assert user.app.chosen == state.candidates[first].parents[0]
        parent = user.app.chosen
        await user.press("d")
        assert user.app.chosen is not None and parent in state.candidates[user.app.chosen].parents
        await user.press("Z")
        user.sees("▸ cycle 3", "▸ cycle 1")
        user.sees_not("c001-i01-m1 ")
        await user.press("Z")
        user.sees("▾ cycle 3", "c001-i01-m1 ")
        await user.press("f")
        await user.types("invalid cycle")
        await user.press("enter")
        invalid = [c for c in state.candidates.values() if c.valid is False]
        user.sees("filter: invalid cycle")
        await user.press("escape")
        user.sees("lineage · 19 candidates")
        user.sees_not("filter:")
        assert invalid, "the made-up run has an invalid candidate"
        await user.press("slash")
        await user.types("c001-i02-m1")
        await user.press("enter")
        assert user.app.chosen == "c001-i02-m1"


@story
async def test_the_diff_compares_with_the_parent_h0_and_the_accepted_harness_in_both_layouts(
    finished_run: Path,
) -> None:
    state = RunFolder(finished_run).state()
    changed = next(
        c for c in state.candidates.values() if c.parents == ("h0",) and c.tree != state.candidates["h0"].tree
    )
    async with watching(finished_run) as user:
        user.app.choose(changed.id)
        await user.press("4")
        user.sees(f"h0 → {changed.id}", "━━ harness.py", "against its parent")
        assert "- " in user.screen or "+ " in user.screen
        await user.press("s")
        user.sees("│", "━━ harness.py")
        await user.press("b")
        user.sees(f"h0 → {changed.id}", "against h0")
        await user.press("b")
        user.sees("against accepted")
        await user.press("e")
        await user.types("h0 h0")
        await user.press("enter")
        user.sees("h0 and h0 are the same harness")


@story
async def test_a_user_goes_through_a_long_diff_by_hunks_and_files(finished_run: Path) -> None:
    async with watching(finished_run, (80, 14)) as user:
        await user.press("4", "e")
        last = list(RunFolder(finished_run).state().candidates)[-1]
        await user.types(f"h0 {last}")
        await user.press("enter")
        view = user.app.views["diff"].query_one(LineView)
        await user.press("J")
        assert view.scroll_offset.y > 0 or len(view.lines) <= 10
        await user.press("K", "g")
        assert view.scroll_offset.y == 0


@story
async def test_a_harness_shows_its_hypothesis_its_files_and_the_tasks_it_gained_and_lost(finished_run: Path) -> None:
    state = RunFolder(finished_run).state()
    scored = next(c for c in state.candidates.values() if c.parents == ("h0",) and c.scores)
    async with watching(finished_run, (120, 40)) as user:
        user.app.choose(scored.id)
        await user.press("5")
        user.sees(scored.id, "parents  h0", "harness.py")
        await user.press("j")
        user.sees("tasks against h0", "gained", "lost", "harness-")
        await user.press("j", "j")
        user.sees("class ")


@story
async def test_rollouts_are_filtered_and_read_turn_by_turn(finished_run: Path) -> None:
    async with watching(finished_run, (120, 40)) as user:
        await user.press("6")
        user.sees("turn 1 of", "sampled by the model", "user", "✗ failed", "✓ passed")
        await user.press("f")
        user.sees("rollouts · passed", "✓ passed")
        user.sees_not("✗ failed")
        await user.press("u")
        user.sees("rollouts · passed, train", "T trained")
        await user.press("t")
        user.sees("task weight-")
        await user.press("t", "u", "u", "u", "u", "u")
        user.sees("rollouts · passed ")
        await user.press("f", "f", "f", "f", "f")
        user.sees("rollouts · all")


@story
async def test_events_are_filtered_and_enter_takes_every_screen_into_the_past(finished_run: Path) -> None:
    async with watching(finished_run, (120, 40)) as user:
        await user.press("7")
        user.sees("RunCompleted", "event ", "hash")
        await user.press("f")
        user.sees("Events of which type?", "CandidateScored (")
        await user.types("")
        view = user.app.screen.query_one("#lines", LineView)
        index = next(i for i in range(len(view.lines)) if view.lines.text(i).startswith("HarnessProposed"))
        view.move_to(index)
        await user.press("enter")
        user.sees("events · HarnessProposed")
        await user.press("g", "j", "enter")
        user.sees("the past: after event")
        assert user.app.moment is not None
        position = user.app.moment.position
        state = RunFolder(finished_run).state(position)
        await user.press("3")
        user.sees(f"lineage · {len(state.candidates)} candidates")
        await user.press("6")
        total = sum(t.rollouts for t in state.totals.values())
        user.sees(f"of {total}")
        await user.press("right_square_bracket")
        user.sees(f"after event {position + 1}")
        await user.press("0")
        user.sees_not("the past:")
        user.sees("✓ completed")


@story
async def test_two_runs_are_compared_and_their_configs_differences_named(own_run: Path, made_up_run: Path) -> None:
    async with watching(own_run, (120, 40)) as user:
        from whale.tui.source import FolderSource

        user.app.compare_with(FolderSource(RunFolder(made_up_run)))
        await user.waits_to_see("config keys that differ")
        user.sees("toy and made-up", "best validation", "held-out success (validation)")


@story
async def test_help_is_made_from_the_keys_that_work_here_the_users_own_included(made_up_run: Path) -> None:
    async with watching(made_up_run, (120, 60), keys={"lineage.fold": "f5"}) as user:
        await user.press("3", "question_mark")
        user.sees("Lineage", "f5 ", "Fold or open the cycle.", "lineage.fold")
        user.sees_not("rollouts.verdict")
        await user.press("G")
        user.sees("Change keys in")
        await user.press("escape", "g", "f5")
        user.sees("▸ cycle 3")


@story
async def test_what_is_copied_is_the_line_under_the_cursor(made_up_run: Path) -> None:
    async with watching(made_up_run) as user:
        await user.press("3", "y")
        user.sees("copied 1 line")
        assert user.app.clipboard.startswith("c00")


@story
async def test_the_palette_finds_a_command_by_its_name(made_up_run: Path) -> None:
    async with watching(made_up_run) as user:
        await user.pilot.press("colon")
        await user.types("rollouts")
        await user.pilot.pause(0.5)
        await user.pilot.press("enter")
        await user.waits_to_see("rollouts · all")


@story
async def test_keys_that_come_faster_than_screens_go_where_they_are_meant_for(made_up_run: Path) -> None:
    async with watching(made_up_run) as user:
        for key in ("3", "slash", "c", "0", "0", "2"):
            user.app.simulate_key(key)
        await user.pilot.pause(0.5)
        user.sees("lineage · 19", "⏎ done")
        assert user.app.query_one("#ask", Input).value == "c002"
        await user.press("enter")
        assert user.app.chosen is not None and user.app.chosen.startswith("c002"), user.screen


@story
async def test_the_mouse_chooses_tabs_and_lines(made_up_run: Path) -> None:
    async with watching(made_up_run) as user:
        column = user.screen.split("\n")[1].index("3Lineage")
        await user.pilot.click("#tabs", offset=(column + 1, 0))
        await user.waits_to_see("lineage · 19")
        before = user.app.chosen
        await user.pilot.click("#ln-list", offset=(20, 4))
        await user.pilot.pause(0.3)
        assert user.app.chosen != before
