from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.sample_trees import LOOKUP_TREE
from whale.cli.steer_commands import read_tree
from whale.errors import UsageError, WhaleError
from whale.search.gate import clean, gate, leaked, outside_space
from whale.search.registry import proposer
from whale.search.scripted import ScriptedProposer
from whale.search.tree import MAX_FILE_BYTES, check_tree, digest
from whale.search.types import Archive, Proposal


def proposal(title: str = "t", text: str = "x", parents: tuple[str, ...] = ("c000",)) -> Proposal:
    return Proposal(title, text, "axis", text, parents, LOOKUP_TREE)


@given(st.text(), st.text())
def test_a_proposers_text_is_one_line_where_it_must_be_and_moves_no_cursor(title: str, text: str) -> None:
    made = clean(proposal(title, text))
    assert "\n" not in made.title and made.title
    assert len(made.title) <= 200 and len(made.hypothesis) <= 4000
    for shown in (made.title, made.hypothesis, made.changes):
        assert not any((ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in shown)
        shown.encode()
    assert clean(made) == made


def test_a_long_text_is_cut_and_says_so() -> None:
    made = clean(proposal("a" * 10_000, "b" * 10_000_000, ("a", "b", "c")))
    assert len(made.title) == 200 and made.title.endswith("…")
    assert len(made.changes) == 4000 and made.parents == ("a", "b")
    assert clean(proposal("\x1b[2J\u202e")).title == "\ufffd[2J\ufffd"


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("../x", "path"), ("/etc/passwd", "path"), ("a//b", "path"), (".git/config", "path"),
        ("a\\b", "path"), ("ä.py", "path"), ("-rf", "path"), ("harness.py/x", "folder"),
        ("Harness.py", "case"), ("", "path"),
    ],
)  # fmt: skip
def test_a_path_that_cannot_be_stored_everywhere_is_refused(path: str, word: str) -> None:
    reason = check_tree(LOOKUP_TREE | {path: b""})
    assert reason is not None and word in reason


def test_a_tree_is_bounded() -> None:
    assert check_tree(LOOKUP_TREE) is None
    assert "larger" in str(check_tree(LOOKUP_TREE | {"a": b"x" * (MAX_FILE_BYTES + 1)}))
    assert "files" in str(check_tree({f"f{i}": b"" for i in range(100)}))
    assert "larger" in str(check_tree({f"f{i}": b"x" * MAX_FILE_BYTES for i in range(5)}))


def test_a_digest_knows_paths_from_contents() -> None:
    assert digest({"a": b"1", "b": b"2"}) == digest({"b": b"2", "a": b"1"})
    assert len({digest(t) for t in ({"a": b"12"}, {"a1": b"2"}, {"a": b"1", "b": b"2"}, {"a": b"2", "b": b"1"})}) == 4


SYSTEM = "prompts/system.md"


@pytest.mark.parametrize(
    "files",
    [
        LOOKUP_TREE | {"harness.py": LOOKUP_TREE["harness.py"] + b" "},
        LOOKUP_TREE | {"prompts/more.md": b""},
        LOOKUP_TREE | {"prompts.py": b""},
        {path: content for path, content in LOOKUP_TREE.items() if path != SYSTEM},
        {path: content for path, content in LOOKUP_TREE.items() if path != "examples.json"},
    ],
)
def test_the_prompt_space_allows_prompts_only(files: dict[str, bytes]) -> None:
    assert outside_space(files, LOOKUP_TREE, "prompts") is not None
    assert outside_space(files, LOOKUP_TREE, "full") is None
    assert outside_space(LOOKUP_TREE | {SYSTEM: b"Else."}, LOOKUP_TREE, "prompts") is None


H0 = LOOKUP_TREE | {"prompts/__init__.py": b"", "prompts/user.md": b"{question}"}


@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({SYSTEM: b"Another text."}, True),
        ({SYSTEM: "Ein schöner Text – 漢字.".encode()}, True),
        ({"prompts/user.md": b""}, True),
        ({"harness.py": LOOKUP_TREE["harness.py"].replace(b"passages = 1", b"passages = 2")}, False),
        ({"harness.py": LOOKUP_TREE["harness.py"].replace(b"# how many", b"# how  many")}, False),
        ({"harness.py": LOOKUP_TREE["harness.py"] + "# \u200b".encode()}, False),
        ({"harness.py": LOOKUP_TREE["harness.py"].replace(b"\n", b"\r\n")}, False),
        ({"examples.json": b"[]"}, False),
        ({"prompts/__init__.py": b"import os"}, False),
        ({"prompts/helper.py": b""}, False),
        ({"__init__.py": b""}, False),
        ({"prompts/\u0455ystem.md": b"x"}, False),
        ({"prompts/../harness.py": b"x"}, False),
        ({"Prompts/system.md": b"x"}, False),
        ({"prompts/system.md/x": b"x"}, False),
        ({"prompts/new/system.md": b"x"}, False),
    ],
)
def test_the_prompt_space_has_no_way_round(change: dict[str, bytes], valid: bool) -> None:
    """A text that a harness reads may change; whatever could be code, or is another file, may not."""
    assert change.keys() - H0.keys() or any(H0[path] != content for path, content in change.items())
    reason = gate(H0 | change, base=H0, space="prompts", check_source=lambda _: None, leak=lambda _: None)
    assert (reason is None) == valid, reason


def test_the_prompt_space_takes_no_renamed_file() -> None:
    moved = {path.replace(SYSTEM, "prompts/system.txt"): content for path, content in H0.items()}
    assert outside_space(moved, H0, "prompts") is not None


@pytest.mark.parametrize("target", ["harness.py", "prompts", "/etc/passwd", "nowhere"])
def test_a_link_is_never_part_of_a_harness(target: str, tmp_path: Path) -> None:
    """A model's drafts hold plain bytes; a human's folder is where a link could come from."""
    for path, content in LOOKUP_TREE.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    assert read_tree(tmp_path) == {path: content.decode() for path, content in LOOKUP_TREE.items()}
    (tmp_path / "prompts" / "more").symlink_to(target if target.startswith("/") else tmp_path / target)
    with pytest.raises(UsageError, match="no links"):
        read_tree(tmp_path)


def test_a_leak_is_found_in_any_file_and_in_a_path() -> None:
    def leak(text: str) -> str | None:
        return "holds a test answer" if "secret" in text else None

    assert leaked(LOOKUP_TREE, leak) is None
    for files in ({"data/x.json": b"a secret"}, {"secret.md": b""}):
        assert "test answer" in str(leaked(LOOKUP_TREE | files, leak))
    assert "UTF-8" in str(leaked({"x": b"\xff"}, leak))


def test_candidate_code_runs_last_and_only_if_all_else_passed() -> None:
    smoked = []

    def smoke(files: object) -> str | None:
        smoked.append(files)
        return "raised in the smoke run"

    def check(space_tree: dict[str, bytes], source: str | None) -> str | None:
        return gate(
            space_tree,
            base=LOOKUP_TREE,
            space="full",
            check_source=lambda _: source,
            leak=lambda _: None,
            smoke=smoke,
        )

    assert check(LOOKUP_TREE, "no class") == "no class" and not smoked
    assert check(LOOKUP_TREE, None) == "raised in the smoke run" and len(smoked) == 1
    passed = gate(LOOKUP_TREE, base=LOOKUP_TREE, space="full", check_source=lambda _: None, leak=lambda _: None)
    assert passed is None


def test_the_scripted_proposer_plays_its_script() -> None:
    one = proposal("one")
    made = proposer("scripted", {"script": {(1, 2): [one, proposal("two")]}})
    assert isinstance(made, ScriptedProposer)
    nothing = Archive((), ())
    assert made.propose(nothing, count=1, seed=0, cycle=1, iteration=2) == (one,)
    assert made.propose(nothing, count=1, seed=0, cycle=1, iteration=1) == ()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mutations", {}, "known: anthropic, claude-code, gepa, mutation, openai, scripted"),
        ("mutation", {"temperature": 1}, "temperature"),
        ("mutation", {"pair_probability": 2.0}, "0..1"),
    ],
)
def test_an_unknown_proposer_or_option_is_a_usage_error(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace(".", r"\.")):
        proposer(name, options)


def test_a_users_own_rule_is_a_search_space(tmp_path: Path) -> None:
    rule = tmp_path / "rule.py"
    rule.write_text(
        "def texts(files, base):\n"
        "    return 'too long' if len(files['prompts/system.md']) > 20 else None\n"
        "def broken(files, base):\n    return files['nothing']\n"
    )
    long = LOOKUP_TREE | {SYSTEM: b"x" * 21}
    assert outside_space(LOOKUP_TREE | {SYSTEM: b"short"}, LOOKUP_TREE, f"{rule}:texts") is None
    assert outside_space(long, LOOKUP_TREE, f"{rule}:texts") == "too long"
    with pytest.raises(WhaleError, match="the rule failed"):
        outside_space(long, LOOKUP_TREE, f"{rule}:broken")
    for name in (f"{rule}:none", f"{tmp_path}/other.py:texts", "prompt"):
        with pytest.raises(UsageError, match="space"):
            outside_space(long, LOOKUP_TREE, name)
