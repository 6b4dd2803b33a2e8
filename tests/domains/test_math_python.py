"""The Python tool: what a program may do, and that it can hurt neither the host nor the next program."""

from collections.abc import Iterator

import pytest

from whale.domains.math.python_tool import MAX_CALLS, MAX_CODE, PythonTool, with_budget


@pytest.fixture(scope="module")
def tool() -> Iterator[PythonTool]:
    python = PythonTool()
    yield python
    python.close()


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(6 * 7)", "42\n"),
        ("6 * 7", "42\n"),
        ("x = 6\nx * 7", "42\n"),
        ("print('a'); 'b'", "a\nb\n"),
        ("x = 1", ""),
        ("import math\nmath.gcd(84, 126)", "42\n"),
        ("from fractions import Fraction\nFraction(1, 2) + Fraction(1, 3)", "Fraction(5, 6)\n"),
        ("def f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)\nf(10)", "55\n"),
        ("import sys\nsys.exit(3)", ""),
        ("print('\\ud800')", "\\ud800\n"),
    ],
)
def test_a_program_gives_what_it_prints_or_its_last_value(tool: PythonTool, code: str, output: str) -> None:
    assert tool.run(code) == {"output": output, "error": ""}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("f(:", "SyntaxError: invalid syntax"),
        ("x = 'a' * 10**9", "MemoryError"),
        ("while True: pass", "TimeoutError: more than 2 seconds"),
        ("import os\nos._exit(0)", "the program ended: no_answer"),
        ("import os\nos.write(3, b'{}' * 9)", "OutputError: too much output"),
        ("raise ValueError('\\ud800')", "ValueError: \\ud800"),
        ("(" * 5000, "SyntaxError: too many nested parentheses"),
    ],
)
def test_a_failing_program_is_told_why_and_the_next_one_runs(tool: PythonTool, code: str, error: str) -> None:
    assert tool.run(code)["error"] == error
    assert tool.run("1 + 1")["output"] == "2\n"


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket()",
        "import subprocess; subprocess.run(['/bin/true'])",
        "import os; os.fork()",
        "open('/tmp/written', 'w')",
        "open('/etc/passwd').read()",
        "import whale.domains.math.domain",
    ],
)
def test_a_program_reaches_neither_files_nor_network_nor_processes(tool: PythonTool, code: str) -> None:
    result = tool.run(code)
    assert result["output"] == ""
    assert result["error"].split(":")[0] in {"PermissionError", "FileNotFoundError", "OSError", "ModuleNotFoundError"}


def test_output_is_bounded_and_keeps_both_ends(tool: PythonTool) -> None:
    output = tool.run("print('a' + 'x' * 10**5 + 'b')")["output"]
    assert output.startswith("ax") and "[...]" in output
    assert len(output) <= 2010


def test_nothing_is_carried_from_one_program_to_the_next(tool: PythonTool) -> None:
    tool.run("import builtins; builtins.kept = 1; import math; math.pi = 3")
    assert "NameError" in tool.run("kept")["error"]
    assert tool.run("import math; math.pi")["output"].startswith("3.14")


def test_the_same_program_gives_the_same_output(tool: PythonTool) -> None:
    code = "import random, time; print(random.random(), time.time(), {'a', 'b', 'c'}, hash('x'))"
    assert tool.run(code) == tool.run(code)


@pytest.mark.parametrize("code", [None, 3, "", "  \n", "x" * (MAX_CODE + 1), ["print(1)"]])
def test_what_is_no_program_is_refused_with_a_reason(tool: PythonTool, code: object) -> None:
    with pytest.raises(ValueError, match=r"^python: code must"):
        tool.run(code)


def test_an_episode_has_a_budget_of_programs(tool: PythonTool) -> None:
    python = with_budget(tool)
    for _ in range(MAX_CALLS):
        assert python(code="1")["output"] == "1\n"
    with pytest.raises(ValueError, match="at most"):
        python(code="1")
    assert with_budget(tool)(code="1")["output"] == "1\n"


def test_a_closed_tool_starts_again() -> None:
    python = PythonTool()
    assert python.run("1")["output"] == "1\n"
    python.close()
    assert python.run("2")["output"] == "2\n"
    python.close()
