"""Objects, messages and notes: the parts without a process, as properties."""

import subprocess
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whale.harness_repo import CommitFacts, HarnessRepo, RepoError, check_files, visible
from whale.harness_repo.message import TEXT_LIMIT, TITLE_LIMIT, compose, one_line, title_of, trailers
from whale.harness_repo.notes import merge, parse, records, render
from whale.harness_repo.objects import object_id, read_tree, tree_bytes, tree_objects

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
# Text as hostile as it comes: surrogates and control characters too.
TEXT = st.text(st.characters(), max_size=200) | st.sampled_from(
    [
        "Whale-Score: 999",
        "x\n\nWhale-Score: 999\nWhale-Run: you",
        "---\n",
        "\r\rWhale-Cycle: 3",
        "\x1b[2J",
        "\0",
    ]
)
NAME = st.text("abAB._-/ ä\u200d", min_size=1, max_size=8)


@given(TEXT, TEXT, TEXT, TEXT, st.none() | st.integers(0, 99))
def test_no_text_becomes_a_trailer_or_steers_a_terminal(
    title: str, hypothesis: str, axis: str, run: str, serial: int | None
) -> None:
    facts = CommitFacts(
        run=run, cycle=3, iteration=1, proposer="p", title=title, hypothesis=hypothesis, axis=axis, when=WHEN
    )
    message = compose("c003-i01-m1", facts, serial=serial)
    message.encode()
    assert visible(message) == message
    found = trailers(message)
    assert {k: found[k] for k in ("Candidate", "Cycle", "Iteration", "Proposer")} == {
        "Candidate": "c003-i01-m1",
        "Cycle": "3",
        "Iteration": "1",
        "Proposer": "p",
    }
    assert found.get("Serial") == (None if serial is None else str(serial))
    assert set(found) <= {"Run", "Candidate", "Cycle", "Iteration", "Proposer", "Serial"}
    assert [line for line in message.split("\n") if line.startswith("Whale-")] == message.rstrip("\n").rsplit(
        "\n\n", 1
    )[1].split("\n")
    assert title_of(message) == one_line(title, TITLE_LIMIT)


def test_long_text_is_cut_at_the_stated_limits() -> None:
    facts = CommitFacts(
        run="r", cycle=0, iteration=0, proposer="p", title="t" * 10**6, hypothesis="y" * 10**6, when=WHEN
    )
    message = compose("h0", facts)
    assert len(message.split("\n")[0]) <= TITLE_LIMIT + len("h0: ")
    assert f"(cut: {10**6 - TEXT_LIMIT:,} more characters are in the event log)" in message
    assert len(message) < TEXT_LIMIT + 500


def test_facts_need_a_time_that_git_can_store() -> None:
    for when in (datetime(2026, 1, 1), datetime(1969, 1, 1, tzinfo=UTC)):
        with pytest.raises(RepoError, match=r"CommitFacts\.when"):
            CommitFacts(run="r", cycle=0, iteration=0, proposer="p", when=when)
    east = datetime(2026, 1, 1, 5, tzinfo=timezone(timedelta(hours=5)))
    assert CommitFacts(run="r", cycle=0, iteration=0, proposer="p", when=east).seconds == WHEN.timestamp()


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "../x", "a/../b", "./a", "a//b", "a/", ".git/config", "x/.GIT/hooks/h",
        ".gitattributes", ".g\u200cit/config", "git~1/x", "C:/x", "a\\b", "a\nb", "a\0b",
        "\x1b[2J", "x" * 501, "y" * 256,
        "\udcff", "\u202eyp",
    ],
)  # fmt: skip
def test_a_path_that_leaves_the_tree_or_lies_is_refused(path: str) -> None:
    with pytest.raises(RepoError, match="a harness file cannot be called"):
        check_files({"harness.py": b"", path: b""})


def test_sizes_are_limited() -> None:
    check_files({f"f{at}": b"x" for at in range(200)})
    check_files({f"f{at}": b"x" * 1_000_000 for at in range(4)})
    for files in (
        {},
        {f"f{at}": b"x" for at in range(201)},
        {"f": b"x" * 1_000_001},
        {f"f{at}": b"x" * 1_000_000 for at in range(5)},
    ):
        with pytest.raises(RepoError):
            check_files(files)


@pytest.mark.parametrize("pair", [("a", "A"), ("a", "a/b"), ("a/x", "A/y"), ("\u00e4", "a\u0308")])
def test_paths_that_meet_on_some_disks_are_refused(pair: tuple[str, str]) -> None:
    for paths in (pair, pair[::-1]):
        with pytest.raises(RepoError, match="the same path on some disks"):
            check_files(dict.fromkeys(paths, b""))


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(NAME, st.binary(max_size=50), min_size=1, max_size=8))
def test_what_is_allowed_is_stored_and_comes_back(tmp_path_factory: Any, files: dict[str, bytes]) -> None:
    try:
        tree, _ = tree_objects(files)
    except RepoError:
        return
    place: Path = tmp_path_factory.getbasetemp() / "property.git"
    with HarnessRepo.create(place) as repo:
        assert repo.write_tree(files) == tree
        assert repo.files(tree) == files


def test_ids_are_gits_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    files = {"a/x": b"1", "a.b": b"2", "a0": b"3"}  # git sorts the folder a between a.b and a0
    for path, data in files.items():
        (tmp_path / path).write_bytes(data)
    for command in (["init", "-q"], ["-c", "core.autocrlf=false", "add", "-A", ":!home"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)
    written = subprocess.run(["git", "write-tree"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert tree_objects(files)[0] == written.stdout.strip()
    assert object_id("blob", b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


@given(
    st.dictionaries(
        st.binary(min_size=1, max_size=9).filter(lambda n: not {0, 47} & set(n)),
        st.just(("100644", "a" * 40)),
    )
)
def test_a_tree_is_read_back(entries: dict[bytes, tuple[str, str]]) -> None:
    assert read_tree(tree_bytes(entries)) == entries


RECORD = st.fixed_dictionaries(
    {"weights": st.sampled_from("abcd"), "score": st.floats(0, 1)},
    optional={"cycle": st.integers(0, 9), "iteration": st.integers(0, 9), "reason": TEXT.filter(str.isascii)},
)


@given(
    st.lists(RECORD, min_size=1, max_size=6, unique_by=lambda r: r["weights"]),
    st.randoms(use_true_random=False),
)
def test_the_order_of_recording_does_not_change_a_note(listed: list[dict[str, Any]], random: Any) -> None:
    def built(order: list[dict[str, Any]]) -> dict[str, Any]:
        note: dict[str, Any] | None = None
        for record in order:
            note = merge(note, record)
        assert note is not None
        return note

    note = built(listed)
    random.shuffle(listed)
    assert built(listed) == note
    assert merge(note, listed[0]) == note
    assert sorted(r["weights"] for r in records(note)) == sorted(r["weights"] for r in listed)
    text = render(note).decode()
    assert parse(text) == note
    assert text.count("\n") == 2
    assert visible(text) == text


@pytest.mark.parametrize("text", ["", "mine", "{", "[1]", "{not json}", '{"a":' * 5_000])
def test_a_foreign_note_is_no_score(text: str) -> None:
    assert parse(text) is None
