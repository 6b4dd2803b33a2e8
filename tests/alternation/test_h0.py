"""A run whose first harness cannot be, or cannot run: said before anything is paid."""

import shutil
from pathlib import Path

from tests.runs import TOY, WhaleProcess
from tests.toy.domain import HARNESS
from whale.alternation.run_folder import RunFolder
from whale.alternation.state import State
from whale.alternation.units import FIRST_SMOKES, derive_seed

SEED, QUESTIONS = 5, 6
"""`toy_config`'s seed and D_weight."""


def failing(folder: Path, where: str) -> Path:
    """The toy harness, which raises at its end where `where` holds."""
    harness = shutil.copytree(HARNESS, folder / "h0")
    program = (harness / "harness.py").read_text(encoding="utf-8")
    raising = f"        if {where}:\n            raise LookupError('no entry')\n        messages += [asked"
    (harness / "harness.py").write_text(program.replace("        messages += [asked", raising), encoding="utf-8")
    return harness


def state_of(tmp_path: Path) -> State:
    return RunFolder(tmp_path / "runs" / "toy").state()


def smokes(state: State) -> int:
    assert set(state.totals) == {"smoke"}
    return state.totals["smoke"].rollouts


def test_a_search_space_without_h0_is_refused_before_anything_is_paid(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    rule = tmp_path / "rule.py"
    rule.write_text("def never(files, base):\n    return 'not this one'\n", encoding="utf-8")
    done = whale_here(
        "run", str(toy_config), "--name", "toy", "--quiet", "--set", f"search.space={rule}:never", check=False
    )
    assert done.returncode == 1
    assert "h0, the domain's first harness, cannot be run: not this one" in done.stderr
    assert RunFolder(tmp_path / "runs" / "toy").state().totals == {}


def test_an_h0_that_fails_everywhere_stops_the_run_which_goes_on_once_the_cause_is_mended(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    """The program needs what a tool finds, and the tool's data are not there at first."""
    data, domain = tmp_path / "data", tmp_path / "domain.py"
    domain.write_text(
        f"import pathlib, runpy\nToy = runpy.run_path({str(TOY)!r})['ToyDomain']\n"
        f"class Late(Toy):\n"
        f"    def tools(self, task):\n"
        f"        found = super().tools(task)['lookup']\n"
        f"        return {{'lookup': lambda **asked: found(**asked) if pathlib.Path({str(data)!r}).exists() else []}}\n"
        f"create = Late\n",
        encoding="utf-8",
    )
    settings = [f"domain={domain}:create", f"domain_options.harness_folder={failing(tmp_path, 'not found')}"]
    changed = [word for setting in (*settings, "schedule.cycles=1") for word in ("--set", setting)]
    stopped = whale_here("run", str(toy_config), "--name", "toy", "--quiet", *changed, check=False)
    assert stopped.returncode == 1
    (line,) = stopped.stderr.strip().splitlines()
    assert f"h0, the domain's first harness, failed in all of its {FIRST_SMOKES} smoke runs" in line
    assert "raised: LookupError: no entry (harness.py, line 2" in line
    assert "resume" in line and str(tmp_path / "runs" / "error.log") in line
    assert "weight-5, smoke run of h0: raised" in (tmp_path / "runs" / "error.log").read_text(encoding="utf-8")
    assert smokes(state_of(tmp_path)) == FIRST_SMOKES
    shown = whale_here("show", "toy", "h0", "--rollouts", "1").stdout
    assert "no entry" in shown

    again = whale_here("resume", "toy", "--quiet", check=False)
    assert again.returncode == 1 and f"all of its {FIRST_SMOKES} smoke runs" in again.stderr
    assert smokes(state_of(tmp_path)) == 2 * FIRST_SMOKES
    data.touch()
    whale_here("resume", "toy", "--quiet")
    state = state_of(tmp_path)
    assert state.status == "completed" and state.candidates["h0"].valid and state.totals["train"].rollouts
    assert whale_here("replay", "toy", "--quiet").returncode == 0


def test_an_h0_that_fails_on_some_tasks_is_trained_with(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    first = derive_seed(SEED, "smoke") % QUESTIONS
    harness = failing(tmp_path, f'task["question"] == "weight question {first}"')
    settings = (f"domain_options.harness_folder={harness}", "schedule.cycles=1", "schedule.iterations=0")
    changed = [word for setting in settings for word in ("--set", setting)]
    whale_here("run", str(toy_config), "--name", "toy", "--quiet", *changed)
    state = state_of(tmp_path)
    assert state.status == "completed" and state.candidates["h0"].valid
    assert state.totals["smoke"].rollouts == 1 + 3, "the first, and a micro-batch in which it runs through"


def test_an_h0_that_fails_everywhere_is_searched_from_where_proposals_come_first(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    settings = (
        f"domain_options.harness_folder={failing(tmp_path, 'True')}", "schedule.cycles=1", "schedule.kind=harness-only",
    )  # fmt: skip
    changed = [word for setting in settings for word in ("--set", setting)]
    told = whale_here("run", str(toy_config), "--name", "toy", *changed).stderr
    assert "h0 is invalid: smoke run: raised: LookupError: no entry" in told and "may mend it" in told
    state = state_of(tmp_path)
    assert state.status == "completed" and state.candidates["h0"].valid is False
    assert state.totals["score"].rollouts


def test_an_h0_whose_model_never_answers_is_trained_with(
    whale_here: WhaleProcess, toy_config: Path, tmp_path: Path
) -> None:
    """A weak model's failure, not the program's: the run says so, and goes on."""
    harness = failing(tmp_path, "True")
    program = harness / "harness.py"
    program.write_text(program.read_text(encoding="utf-8").replace("raise LookupError('no entry')", "return None"))
    settings = (f"domain_options.harness_folder={harness}", "schedule.cycles=1", "schedule.iterations=0")
    changed = [word for setting in settings for word in ("--set", setting)]
    told = whale_here("run", str(toy_config), "--name", "toy", *changed).stderr
    assert "h0 is invalid: smoke run: no_answer" in told and "training may mend it" in told
    state = state_of(tmp_path)
    assert state.status == "completed" and state.totals["train"].rollouts
