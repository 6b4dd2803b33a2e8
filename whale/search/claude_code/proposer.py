"""The proposer `claude-code`: one session of Claude Code per iteration, with the tools of the other sessions."""

import shutil
import tempfile
from typing import Any

from whale.search.agentic.anthropic_model import AnthropicModel
from whale.search.agentic.connection import connect, parse
from whale.search.agentic.proposers import Options, instructions, opening, session_key, toolbox
from whale.search.agentic.types import SessionResult, Workbench
from whale.search.claude_code.desk import Desk
from whale.search.claude_code.gateway import gateway
from whale.search.claude_code.program import Program, require_sdk
from whale.search.claude_code.visit import Visit
from whale.search.types import Archive


class ClaudeCodeOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[search.options] of the proposer `claude-code`."""

    cli: str = ""
    """Path of the `claude` program; empty: the one that the SDK brings."""


class ClaudeCodeProposer:
    """Claude Code at work in the archive."""

    name = "claude-code"

    def __init__(self, **options: Any) -> None:
        self.options = parse(options, ClaudeCodeOptions)
        require_sdk()
        if self.options.cli and shutil.which(self.options.cli) is None:
            raise ValueError(f"cli = {self.options.cli!r}: there is no such program")
        model = connect(self.options, AnthropicModel, "ANTHROPIC_API_KEY")
        assert isinstance(model, AnthropicModel)
        self.model = model
        self.system = instructions(self.options)

    def preflight(self) -> None:
        """Look whether the service answers and takes the key."""
        self.model.preflight()

    def session(
        self, archive: Archive, bench: Workbench, *, count: int, seed: int, cycle: int, iteration: int
    ) -> SessionResult:
        """Let it work until `count` candidates are handed over (see `SessionProposer`)."""
        options = self.options
        box = toolbox(archive, bench, options.budget.trials, count, session_key(cycle, iteration))
        first = opening(count, box.fence)
        visit = Visit(
            self.model, box, bench, system=self.system, opening=first, budget=options.budget, prices=options.prices
        )
        desk = Desk()
        with (
            tempfile.TemporaryDirectory(prefix="whale-claude-", ignore_cleanup_errors=True) as home,
            gateway(lambda body, betas: desk.ask(lambda: visit.answer(body, betas))) as (address, key),
        ):
            program = Program(
                prompt=first,
                system=self.system,
                model=options.model,
                home=home,
                address=address,
                key=key,
                cli=options.cli,
                call=lambda name, arguments: desk.ask(lambda: visit.call(name, arguments)),
            )
            try:
                desk.serve(program.over)
            finally:
                program.stop()
        return visit.result(program.fault)
