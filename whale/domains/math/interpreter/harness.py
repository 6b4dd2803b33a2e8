"""Inside the sandbox: run a program, and report what it printed. It stands where a harness stands.

Like a harness it is no boundary: the program may do to this process whatever it likes.
"""

import ast
import contextlib
import io
import traceback
from collections.abc import Mapping
from typing import Any

from whale.harness import Harness, Model, Tools

MAX_OUTPUT = 2000


class Interpreter(Harness):
    """Runs `task["code"]`; a last line that is an expression is printed."""

    async def run(self, task: Mapping[str, Any], model: Model, tools: Tools) -> Any:
        """Report the output, and the error's last line."""
        shown = io.StringIO()
        error = ""
        try:
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                execute(task["code"])
        except SystemExit:
            pass
        except MemoryError:
            error = "MemoryError"
        except BaseException as raised:
            error = traceback.format_exception_only(raised)[-1].strip()
        await tools.report(output=cut(shown.getvalue()), error=cut(error))


def execute(code: str) -> None:
    """Run the statements; print the value of a last expression, as an interactive session does."""
    tree = ast.parse(code)
    last = tree.body[-1] if tree.body else None
    shown = last.value if isinstance(last, ast.Expr) else None
    if shown is not None:
        tree.body.pop()
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(tree, "program", "exec"), names)
    if shown is not None:
        value = eval(compile(ast.Expression(shown), "program", "eval"), names)
        if value is not None:
            print(value if isinstance(value, str) else repr(value))


def cut(text: str) -> str:
    """At most MAX_OUTPUT characters, the middle left out; lone surrogates cannot be sent."""
    if len(text) > MAX_OUTPUT:
        half = MAX_OUTPUT // 2
        text = f"{text[:half]}\n[...]\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
