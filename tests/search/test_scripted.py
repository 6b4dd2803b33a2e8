"""The scripted proposer, as a config gives its script."""

from pathlib import Path
from typing import Any

import pytest

from tests.search.sample_trees import LOOKUP_TREE
from whale.errors import UsageError, WhaleError
from whale.search.registry import proposer
from whale.search.types import Archive, ArchiveEntry, Proposal

SYSTEM = "prompts/system.md"


def entry(candidate: str, files: dict[str, bytes]) -> ArchiveEntry:
    return ArchiveEntry(candidate, "tree", (), files, True, "w", 0.5, 4, (), True, 1)


ARCHIVE = Archive(
    (entry("c001-i01-m1", LOOKUP_TREE | {SYSTEM: b"Be brief.\n"}), entry("h0", LOOKUP_TREE)), (), incoming="h0"
)


def played(script: Any, archive: Archive = ARCHIVE, cycle: int = 1, iteration: int = 1) -> list[Proposal]:
    made = proposer("scripted", {"script": script})
    return list(made.propose(archive, count=2, seed=0, cycle=cycle, iteration=iteration))  # type: ignore[union-attr]


def test_a_folder_is_played_as_it_was_at_the_start(tmp_path: Path) -> None:
    for path, content in LOOKUP_TREE.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "harness.pyc").write_bytes(b"x")
    (tmp_path / ".hidden").write_text("x")
    made = proposer("scripted", {"script": [{"cycle": 1, "iteration": 1, "files": str(tmp_path)}]})
    (tmp_path / "harness.py").write_text("changed")
    (one,) = made.propose(ARCHIVE, count=2, seed=0, cycle=1, iteration=1)  # type: ignore[union-attr]
    assert one.files == LOOKUP_TREE
    assert one.parents == ("h0",)
    assert one.title == tmp_path.name


def test_edits_are_of_the_incoming_harness_or_of_the_parent_that_is_named() -> None:
    edits = [{"path": SYSTEM, "new": "Think.\n"}, {"path": "notes.md", "new": "more"}]
    one, two = played(
        [
            {"cycle": 1, "iteration": 1, "title": "one", "axis": "prompts", "edits": edits},
            {"cycle": 1, "iteration": 1, "parent": "c001-i01-m1",
             "edits": [{"path": SYSTEM, "old": "brief", "new": "plain"}]},
        ]
    )  # fmt: skip
    assert one == Proposal("one", "", "prompts", "", ("h0",), LOOKUP_TREE | {SYSTEM: b"Think.\n", "notes.md": b"more"})
    assert two.files == LOOKUP_TREE | {SYSTEM: b"Be plain.\n"}
    assert two.parents == ("c001-i01-m1",)
    assert played([{"cycle": 1, "iteration": 1, "edits": edits}], iteration=2) == []


@pytest.mark.parametrize(
    ("edit", "parent", "message"),
    [
        ({"path": "harness.py", "old": "e", "new": "x"}, "", "times, not once"),
        ({"path": "none.md", "old": "e", "new": "x"}, "", "there is no such file"),
        ({"path": SYSTEM, "new": "x"}, "c009-i01-m1", "there is no candidate"),
    ],
)
def test_an_edit_that_does_not_fit_its_parent_stops_the_run_in_one_line(
    edit: dict[str, str], parent: str, message: str
) -> None:
    with pytest.raises(WhaleError, match=r"script\[0\].*" + message):
        played([{"cycle": 1, "iteration": 1, "parent": parent, "edits": [edit]}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"\[\[search.options.script\]\] entries"),
        ({"script": []}, r"\[\[search.options.script\]\] entries"),
        ({"script": "c001.py"}, "must be a list of tables"),
        ({"script": {"cycle": 1, "iteration": 1, "files": "x"}}, "must be a list of tables"),
        ({"script": {("1", 1): []}}, "must be a list of tables"),
        ({"script": [3]}, r"script\[0\]: expected `object`"),
        ({"script": [{"iteration": 1, "files": "x"}]}, "missing required field `cycle`"),
        ({"script": [{"cycle": "1", "iteration": 1, "files": "x"}]}, r"script\[0\]\.cycle: expected `int`"),
        ({"script": [{"cycle": 0, "iteration": 1, "files": "x"}]}, r"script\[0\]\.cycle: expected `int` >= 1"),
        ({"script": [{"cycle": 1, "iteration": 1, "file": "x"}]}, "unknown field `file`"),
        ({"script": [{"cycle": 1, "iteration": 1}]}, r"script\[0\]: give either files"),
        ({"script": [{"cycle": 1, "iteration": 1, "files": "x", "edits": [{"path": "a", "new": "b"}]}]}, "either"),
        ({"script": [{"cycle": 1, "iteration": 1, "edits": [{"path": "a"}]}]}, r"edits\[0\]: .*`new`"),
        ({"script": [{"cycle": 1, "iteration": 1, "files": "/nowhere/at/all"}]}, r"script\[0\]\.files: there is no"),
        ({"script": [{"cycle": 1, "iteration": 1, "files": "~nobody-here/x"}]}, r"script\[0\]\.files .*cannot be read"),
        ({"scripts": []}, "unknown option 'scripts'; known: script"),
    ],
)
def test_a_script_of_another_shape_is_refused_in_one_line_without_python_in_it(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        proposer("scripted", options)
    assert "\n" not in str(caught.value)
    assert "__init__" not in str(caught.value)


def test_a_folder_that_cannot_be_a_harness_is_refused_at_the_start(tmp_path: Path) -> None:
    script = [{"cycle": 1, "iteration": 1, "files": str(tmp_path)}]
    with pytest.raises(UsageError, match="the folder is empty"):
        proposer("scripted", {"script": script})
    (tmp_path / "harness.py").symlink_to("/etc/hostname")
    with pytest.raises(UsageError, match="no links"):
        proposer("scripted", {"script": script})
