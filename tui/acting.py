"""Carrying out what `steering` plans: the question, the request or the command, and its outcome."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from textual import work

from whale.alternation.requests import append_request, user
from whale.errors import WhaleError
from whale.events import LogError
from whale.events import types as ev
from whale.tui import steering
from whale.tui.dialogs import Dialog, Question
from whale.tui.difflines import UnifiedLines, parse
from whale.tui.highlight import Painter
from whale.tui.opened import OpenRun
from whale.tui.requests import request_lines, told, words
from whale.tui.shell import Shell
from whale.tui.text import FixedLines, Line, Lines, line, measure, wrap


class Acting(Shell):
    """Steers the run that is open."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._waiting: set[str] = set()
        """Requests of this session without an answer yet."""

    def action_steer(self, act: str) -> None:
        """Begin an act of steering."""
        moment = self.moment
        if moment is None:
            self.tell("open a run first", "warning")
            return
        chosen = self.chosen_candidate(moment.run.history.state)
        name = chosen.id if chosen is not None else None
        if act == "pause":
            self._carry_out(steering.pause(moment, user()))
        elif act == "stop":
            rows = [("phase", "after this phase"), ("now", "at the next safe point")]
            self.pick(
                "End the runner's process when?",
                rows,
                lambda when: self._carry_out(steering.stop(moment, user(), after_phase=when == "phase")),
            )
        elif act in ("revert", "accept"):
            self._carry_out(steering.change_harness(moment, self.chosen, user(), revert=act == "revert"))
        elif act == "review":
            self._carry_out(steering.review(moment, user()))
        elif act == "note" and name is not None:
            self.ask(f"note on {name}", lambda text: self._carry_out(steering.note(moment, name, text, user())), "")
        elif act == "fork":
            suggestion = f"{moment.run.source.name}-{moment.position}"
            self.ask(
                f"name of the new run, forked after event {moment.position}",
                lambda text: self._carry_out(steering.fork(moment, text)),
                suggestion,
            )

    def _carry_out(self, plan: steering.Plan) -> None:
        if plan.refused:
            self.tell(f"{plan.title}: {plan.refused}", "warning")
        elif plan.ask:
            self._question(plan)
        else:
            self._do(plan)

    @work(thread=True, exclusive=True, group="question")
    def _question(self, plan: steering.Plan) -> None:
        diff: UnifiedLines | None = None
        problem = ""
        if plan.diff is not None and self.opened is not None:
            try:
                diff = UnifiedLines(parse(self.opened.diff(*plan.diff)), Painter)
            except WhaleError as error:
                problem = str(error)

        def made(width: int) -> Lines:
            lines: list[Line] = [line(part) for text in plan.consequences for part in wrap(text, width)]
            if problem:
                lines += [line((part, "warn")) for part in wrap(problem, width)]
            if diff is not None:
                lines += [line(""), *(diff.line(i, width) for i in range(min(len(diff), 2000)))]
            # A rule is as long as any screen: it is no reason to scroll sideways.
            widest = max((measure(parts) for parts in lines if not any(s.role == "file" for s in parts)), default=0)
            return FixedLines(lines, width=widest if widest > width else 0)

        def answered(yes: object) -> None:
            if plan.declined is not None and yes is not None:
                chosen = plan.event if yes else plan.declined
                assert chosen is not None
                self.ask("why? for the log; may stay empty", lambda text: self._answer_review(plan, chosen, text), "")
            elif yes:
                self._do(plan)

        question = Question(
            plan.title, made, plan.yes, no=plan.no, leave=plan.leave, danger=plan.diff is not None and not plan.no
        )
        self.from_thread(lambda: self.push_screen(question, answered))

    def _answer_review(self, plan: steering.Plan, answer: ev.Event, why: str) -> None:
        title = "approve" if answer is plan.event else "decline"
        self._do(replace(plan, title=title, event=msgspec.structs.replace(answer, note=why.strip())))

    @work(thread=True, group="steer")
    def _do(self, plan: steering.Plan) -> None:
        run = self.opened
        if run is None:
            return
        if plan.command:
            self._command(run, plan)
            return
        assert plan.event is not None
        try:
            with run.source.open_log(readonly=False) as log:
                key = append_request(log, plan.event)
        except (WhaleError, LogError) as error:
            self.from_thread(self.tell, f"{plan.title}: {error}", "error")
            return
        self._waiting.add(key)
        if plan.title == "note":
            self.from_thread(self.tell, "note recorded")
        else:
            self.from_thread(self.tell, f"{words(plan.event)}: asked", "information", 3)

    def _command(self, run: OpenRun, plan: steering.Plan) -> None:
        """Start the command line in a process of its own."""
        command = [sys.executable, "-m", "whale", *plan.command]
        # Not this terminal's: its size, and a colour setting, are no business of a background process.
        try:
            if plan.background:
                with (Path(run.source.where) / "runner.out").open("ab") as out:
                    subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
                    )  # fmt: skip
                self.from_thread(self.tell, f"started: whale {' '.join(plan.command)}")
                return
            self.from_thread(self.tell, f"whale {' '.join(plan.command)} …")
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        except (OSError, subprocess.TimeoutExpired) as error:
            self.from_thread(self.tell, f"{plan.title}: {error}", "error")
            return
        said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
        text = said[-1] if said else "done" if done.returncode == 0 else f"exit code {done.returncode}"
        self.from_thread(self.tell, text, "information" if done.returncode == 0 else "error")

    def _tell_outcomes(self, run: OpenRun) -> None:
        for key in list(self._waiting):
            answered = run.history.facts.answers.get(key)
            if answered is not None:
                self._waiting.discard(key)
                handled = answered[1]
                self.tell(told(handled), "warning" if handled.outcome == "refused" else "information")

    def action_outcomes(self) -> None:
        """What was asked for, and what became of it."""
        if self.opened is None:
            return
        facts, head = self.opened.history.facts, self.opened.history.position

        def made(width: int) -> Lines:
            return FixedLines(request_lines(facts, head, width) or [line(("nothing was asked for yet", "muted"))])

        self.push_screen(Dialog("requests and their outcomes", made))
