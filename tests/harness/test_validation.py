"""What a harness tree must be before any of it runs."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whale.harness.validation import ALLOWED_MODULES, check_source

CLASS = "class H(Harness):\n    async def run(self, task, model, tools):\n        return None\n"
GOOD = "from whale.harness import Harness\n" + CLASS


def tree(source: str | bytes = GOOD, **files: bytes) -> dict[str, bytes]:
    content = source if isinstance(source, bytes) else source.encode("utf-8", "surrogatepass")
    return {"harness.py": content, "prompts/system.md": b"Be brief.", **files}


@pytest.mark.parametrize(
    "source",
    [
        GOOD,
        "import json, re, asyncio\nfrom collections import Counter\nimport collections.abc\n" + GOOD,
        "import whale.harness\n" + CLASS.replace("Harness", "whale.harness.Harness"),
        "from whale import harness\n" + CLASS.replace("Harness", "harness.Harness"),
        "from whale.harness import Harness as Base, Reply, ToolError\n" + CLASS.replace("(Harness)", "(Base)"),
        "from whale.harness.api import Harness\n" + CLASS,
        GOOD + "class Helper:\n    pass\n",
    ],
)
def test_ordinary_harnesses_are_valid(source: str) -> None:
    assert check_source(tree(source)) is None


def test_the_embedded_initial_harness_is_valid() -> None:
    root = Path(__file__).parents[2] / "whale" / "domains" / "searchqa" / "h0"
    paths = [p for p in root.rglob("*") if p.is_file() and p.suffix != ".pyc"]
    assert check_source({p.relative_to(root).as_posix(): p.read_bytes() for p in paths}) is None


def test_modules_of_the_own_tree_may_be_imported() -> None:
    source = "import words\nfrom parts import lists\nfrom parts.lists import ITEMS, more\n" + GOOD
    files = {
        "words.py": b"",
        "parts/__init__.py": b"from . import lists\n",
        "parts/lists.py": b"ITEMS = []\n",
    }
    assert check_source(tree(source, **files)) is None
    assert "nowhere may not be imported" in str(check_source(tree("import nowhere\n" + GOOD, **files)))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os\n" + GOOD, "os may not be imported"),
        ("from os import path\n" + GOOD, "os.path may not be imported"),
        ("import whale.rollout.types\n" + GOOD, "whale.rollout.types may not"),
        ("from whale.domains import base\n" + GOOD, "whale.domains.base may not"),
        ("import whale\n" + GOOD, "whale may not"),
        (GOOD + "        import socket\n", "socket may not"),
        ("from . import words\n" + GOOD, "may not be imported"),
        (GOOD + "x = eval('1')\n", "eval may not be used"),
        (GOOD + "x = __import__('os')\n", "__import__ may not be used"),
        (GOOD + "x = open('prompts/system.md')\n", "open may not be used"),
        ("x = 1\n", "exactly one subclass of Harness, and has 0"),
        (GOOD + CLASS.replace("H(", "K("), "exactly one subclass of Harness, and has 2"),
        (GOOD.replace("async ", ""), "must be `async def`"),
        (GOOD.replace("run", "go"), "has no method run"),
        (GOOD.replace(", tools", ""), "run takes (self, task, model, tools)"),
        ("def (\n", "harness.py, line 1"),
        ("x = '\ud800'\n" + GOOD, "not UTF-8"),
        (b"\xff\xfe", "not UTF-8: byte 0"),
        ("x = 1\0\n", "harness.py"),
        ("(" * 50_000, "harness.py"),
        ("x = " + "-" * 100_000 + "1\n", "harness.py"),
        ("x = " + "9" * 50_000 + "\n" + GOOD, "harness.py"),
        ("#" * 300_000, "at most 262,144"),
    ],
)
def test_a_tree_that_cannot_work_is_named_with_its_reason(source: str | bytes, reason: str) -> None:
    assert reason in str(check_source(tree(source)))


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"prompts/system.md": b""}, "harness.py is missing"),
        ({"harness.py": GOOD.encode()}, "prompts/system.md is missing"),
        (tree(**{"../evil.py": b""}), "no plain path"),
        (tree(**{"/evil.py": b""}), "no plain path"),
        (tree(**{"a\x1b[2J.md": b""}), "no plain path"),
        (tree(**{"random.py": b""}), "must not be named like random"),
        (tree(**{"whale/harness.py": b""}), "must not be named like whale"),
        (tree(**{"data.json": b"\xff"}), "data.json is not UTF-8"),
        (tree(**{f"f{i}.md": b"" for i in range(100)}), "102 files"),
        (tree(**{f"f{i}.md": b"x" * 250_000 for i in range(6)}), "the tree has"),
    ],
)
def test_a_tree_with_wrong_files_is_named_with_its_reason(files: dict[str, bytes], reason: str) -> None:
    assert reason in str(check_source(files))


@given(st.text(max_size=200))
def test_any_text_gets_a_verdict_and_never_an_exception(text: str) -> None:
    check_source(tree(text))


def test_what_may_be_imported_is_the_standard_librarys() -> None:
    assert sys.stdlib_module_names >= ALLOWED_MODULES
