"""Pages, blame, diffs in two columns, DOT and HTML: what people look at."""

import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whale.harness_repo import CommitFacts, HarnessRepo, LineageEntry, RepoError, ScoreChange
from whale.harness_repo.blame import score_change
from whale.harness_repo.dot import render_dot
from whale.harness_repo.lineage import LOG_ARGUMENTS, birth, read_log
from whale.harness_repo.page import render_page
from whale.harness_repo.side_by_side import side_by_side

Facts = Callable[..., CommitFacts]
Propose = Callable[..., str]

HOSTILE = "<script>alert(1)</script>\"'&\u202e\x1b[2J"


def _entry(candidate: str, *parents: str, **more: Any) -> LineageEntry:
    return LineageEntry(
        candidate=candidate, sha=candidate.ljust(40, "0"), tree="0" * 40, parents=parents,
        time=datetime(2026, 1, 1, tzinfo=UTC), **more,
    )  # fmt: skip


# --- pages ---


@pytest.fixture
def many(repo: HarnessRepo, propose: Propose, facts: Facts) -> list[str]:
    """h0, then members 0 to 11 of one iteration; h0 and m3 are accepted."""
    names = ["h0", *(f"c001-i01-m{at}" for at in range(12))]
    trees = {name: propose(name, *(["h0"] if name != "h0" else []), cycle=int(name != "h0")) for name in names}
    repo.record_score("c001-i01-m11", {"score": 0.5, "weights": "w"})
    repo.accept(0, "h0", trees["h0"], facts())
    repo.accept(1, "c001-i01-m3", trees["c001-i01-m3"], facts(1))
    return names


def test_pages_together_are_the_whole_lineage(repo: HarnessRepo, many: list[str]) -> None:
    pages: list[list[LineageEntry]] = []
    while not pages or pages[-1]:
        pages.append(repo.page(5, before=pages[-1][0].candidate if pages else None))
    assert [[e.candidate for e in page] for page in pages] == [many[8:], many[3:8], many[:3], []]
    whole = {e.candidate: e for e in repo.lineage()}
    assert {e.candidate: e for page in pages for e in page} == whole


def test_a_page_before_nobody_is_one_clear_line(repo: HarnessRepo, many: list[str]) -> None:
    with pytest.raises(RepoError, match="no candidate 'x9'"):
        repo.page(5, before="x9")


def test_newer_means_later_in_the_run() -> None:
    order = ["h0", "mine", "c001-i01-m9", "c001-i01-m10", "c001-i02-m1", "c010-i01-m1", "c1000-i01-m1"]
    assert sorted(set(order), key=birth) == order


def test_a_log_that_comes_in_any_parts_is_read_the_same(repo: HarnessRepo, many: list[str]) -> None:
    out = repo._git.run(*LOG_ARGUMENTS, "--glob=refs/whale/candidates/*")
    whole = list(read_log([out]))
    assert len(whole) == len(many)
    for size in (1, 7, 1000):
        assert list(read_log(out[at : at + size] for at in range(0, len(out), size))) == whole


def test_a_store_that_git_cannot_read_is_an_error_and_no_short_lineage(repo: HarnessRepo, many: list[str]) -> None:
    commit = repo.resolve("c001-i01-m5")
    repo.close()
    (repo.path / "objects" / commit[:2] / commit[2:]).unlink()
    with pytest.raises(RepoError, match="git log failed"):
        repo.lineage()


# --- blame ---


def test_each_line_names_the_proposal_that_brought_it_and_its_gain(repo: HarnessRepo, facts: Facts) -> None:
    files = {"h0": b"one\ntwo\nthree\n", "x1": b"one\nTWO\nthree\n", "x2": b"one\nTWO\nthree\nfour\n"}
    trees = {name: repo.write_tree({"harness.py": data}) for name, data in files.items()}
    repo.propose("h0", trees["h0"], [], facts())
    repo.propose("x1", trees["x1"], ["h0"], facts(1))
    repo.propose("x2", trees["x2"], ["x1"], facts(2))
    for name, score, weights in (("h0", 0.25, "w"), ("x1", 0.5, "w"), ("x1", 0.625, "v"), ("x2", 0.75, "u")):
        repo.record_score(name, {"score": score, "weights": weights, "cycle": "wvu".index(weights)})
    repo.accept(0, "h0", trees["h0"], facts())
    repo.accept(1, "x2", trees["x2"], facts(2))
    lines = repo.blame("harness.py")
    assert [(b.number, b.text, b.candidate, b.score) for b in lines] == [
        (1, "one", "h0", 0.25),
        (2, "TWO", "x1", 0.625),
        (3, "three", "h0", 0.25),
        (4, "four", "x2", 0.75),
    ]
    assert [b.change for b in lines] == [None, ScoreChange(0.25, 0.5, "w"), None, None]
    assert [b.candidate for b in repo.blame("harness.py", "accepted~1")] == ["h0"] * 3


def test_blame_of_a_file_that_is_not_there_names_those_that_are(repo: HarnessRepo, propose: Propose) -> None:
    propose("h0")
    with pytest.raises(RepoError, match=r"h0 has no file 'x.py'; it has harness.py, prompts/system.md"):
        repo.blame("x.py", "h0")


@pytest.mark.parametrize(
    ("note", "parent", "expected"),
    [
        (None, None, None),
        ({"score": 0.5, "weights": "w"}, None, None),
        ({"score": 0.5, "weights": "w"}, {"score": 0.25, "weights": "v"}, None),
        ({"score": 0.5, "weights": "w"}, {"reason": "invalid", "weights": "w"}, None),
        ({"score": 0.5}, {"score": 0.25}, None),  # whose weights, nobody knows
        (
            {"score": 0.1, "weights": "z", "earlier": [{"score": 0.5, "weights": "w"}]},
            {"score": 0.25, "weights": "w"},
            ScoreChange(0.25, 0.5, "w"),
        ),
    ],
)
def test_a_gain_is_between_scores_under_the_same_weights_only(note: Any, parent: Any, expected: Any) -> None:
    assert score_change(note, parent) == expected


# --- two columns ---


def test_two_columns_pair_what_changed(repo: HarnessRepo, facts: Facts) -> None:
    old, new = b"a\nb\nc\nd\n", b"a\nB\nc\nd\ne\n"
    text = repo.diff(repo.write_tree({"f": old}), repo.write_tree({"f": new}))
    rows = list(side_by_side(text, 40))
    assert [(row.mark, row.left.split(), row.right.split()) for row in rows if row.mark != "#"] == [
        (" ", ["1", "a"], ["1", "a"]),
        ("|", ["2", "b"], ["2", "B"]),
        (" ", ["3", "c"], ["3", "c"]),
        (" ", ["4", "d"], ["4", "d"]),
        (">", [], ["5", "e"]),
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text("ab \t世\x1b\u202e-+@\\", max_size=30), max_size=8),
    st.lists(st.text("ab \t世\x1b\u202e-+@\\", max_size=30), max_size=8),
    st.integers(29, 120),
)
def test_two_columns_lose_no_line_and_fit_the_screen(old: list[str], new: list[str], width: int) -> None:
    from rich.cells import cell_len

    body = [f"-{line}" for line in old] + [f"+{line}" for line in new]
    text = "\n".join(["diff --git a/f b/f", "--- a/f", "+++ b/f", f"@@ -1,{len(old)} +1,{len(new)} @@", *body])
    rows = [row for row in side_by_side(text, width) if row.mark != "#"]
    assert all(cell_len(row.text) <= width for row in rows)
    assert all(row.text.isprintable() for row in rows)
    for side, lines in (("left", old), ("right", new)):
        numbers = [int(n) for row in rows if (n := getattr(row, side)[:5].strip())]
        assert numbers == list(range(1, len(lines) + 1))
        shown = "".join(getattr(row, side)[5:].replace(" ", "") for row in rows)
        plain = "".join(lines).replace(" ", "").replace("\t", "").replace("\x1b", "\ufffd").replace("\u202e", "\ufffd")
        assert shown == plain


# --- DOT and HTML ---


def test_dot_quotes_what_a_proposer_wrote() -> None:
    text = render_dot([_entry("h0", title='"]; evil [label="\\'), _entry("x1", "h0", "gone", serials=(1,))])
    assert text.split("\n")[2:] == [
        r'  "h0" [label="h0\nno score\n\"]; evil [label=\"\\", style=dotted];',
        r'  "x1" [label="x1\nno score", peripheries=2];',
        r'  "h0" -> "x1";',
        "}",
    ]


class _Page(HTMLParser):
    """What a browser would find in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "line", "rect", "circle", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("line", "rect", "circle", "polyline"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def page(repo: HarnessRepo, facts: Facts) -> str:
    h0 = repo.write_tree({"harness.py": b"old\n"})
    one = repo.write_tree({"harness.py": HOSTILE.encode() + b"\n"})
    repo.propose("h0", h0, [], facts())
    hostile = dict.fromkeys(("title", "hypothesis", "axis", "changes", "proposer"), HOSTILE)
    repo.propose("x1", one, ["h0"], facts(1, 1, **hostile))
    repo.record_score("x1", {"score": 0.5, "low": 0.4, "high": 0.6, "n": 8, "weights": HOSTILE, "cycle": 1})
    repo.accept(0, "h0", h0, facts())
    entries = repo.lineage()
    return render_page(entries, repo.patches(entries), run=HOSTILE, accepted="h0")


def test_a_page_holds_lineage_scores_and_diffs(page: str) -> None:
    parsed = _Page(page)
    assert parsed.open == []
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert ids == ["h0", "x1"]
    assert "0.500 [0.40, 0.60] n=8" in parsed.text
    assert "accepted now: h0" in parsed.text
    assert "-old\n" in parsed.text
    assert "+<script>alert(1)" in parsed.text
    links = {attributes["href"] for tag, attributes in parsed.tags if tag == "a"}
    assert links == {"#h0", "#x1"}


def test_nothing_a_proposer_wrote_becomes_part_of_a_page(page: str) -> None:
    parsed = _Page(page)
    tags = {tag for tag, _ in parsed.tags}
    assert not tags & {"script", "img", "link", "iframe", "object", "embed", "form", "input", "base"}
    assert not [name for _, attributes in parsed.tags for name in attributes if name.startswith("on")]
    assert "\u202e" not in page
    assert "\x1b" not in page


def test_a_page_asks_for_nothing(page: str) -> None:
    parsed = _Page(page)
    policies = [a["content"] for tag, a in parsed.tags if tag == "meta" and "http-equiv" in a]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert not re.search(r"""(?:src|href)=(?!"#)|url\(|@import|https?:""", page)


def test_a_page_says_which_diffs_it_leaves_out() -> None:
    assert "Its diff is left out" in _Page(render_page([_entry("h0")], {}, run="demo")).text


def test_a_diff_of_any_size_leaves_a_page_that_opens() -> None:
    text = render_page([_entry("h0")], {"h0": "+x\n" * 1_000_000}, run="demo")
    assert len(text) < 3_000_000
    assert "more characters are left out" in text


def test_a_file_that_looks_like_the_start_of_another_patch_is_not_one(repo: HarnessRepo, facts: Facts) -> None:
    h0 = repo.propose("h0", repo.write_tree({"f": b"a\n"}), [], facts())
    # git takes a file for text by its first 8,000 bytes.
    forged = b"x" * 9000 + b"\n\0" + h0.encode() + b"\nforged\n"
    repo.propose("x1", repo.write_tree({"f": forged}), ["h0"], facts(1))
    patches = repo.patches(repo.lineage())
    assert set(patches) == {"h0", "x1"}
    assert "forged" not in patches["h0"]
    assert "+forged" in patches["x1"]


def test_patches_are_what_diff_says_by_one_git_process(
    repo: HarnessRepo, propose: Propose, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose("h0")
    propose("x1", "h0")
    propose("x2", "x1", "h0")  # a crossover is compared to its first parent
    entries = repo.lineage()
    expected = {name: repo.diff(parent, name) for name, parent in (("x1", "h0"), ("x2", "x1"))}
    calls: list[Any] = []
    start = subprocess.Popen.__init__

    def counted(self: "subprocess.Popen[bytes]", *args: Any, **options: Any) -> None:
        calls.append(args)
        start(self, *args, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", counted)
    patches = repo.patches(entries)
    assert len(calls) == 1
    assert {name: patches[name] for name in expected} == expected
    assert "+++ b/harness.py" in patches["h0"]
    assert repo.patches([]) == {}
