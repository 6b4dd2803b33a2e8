"""Finding a domain by name, entry point or path."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.runs import WhaleProcess, whale  # noqa: F401 - fixtures
from whale.domains import registry
from whale.domains.registry import domain_names, load_domain
from whale.errors import UsageError
from whale.rollout.types import Completion

OWN = """
from whale.domains.searchqa.domain import SearchQADomain, SearchQAOptions

def make(options):
    domain = SearchQADomain(SearchQAOptions.parse(options))
    domain.name = "mine"
    return domain

def broken(options):
    return object()

def picky(options):
    from whale.errors import UsageError
    raise UsageError("mine: no such option")

number = 3
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_the_embedded_domain_is_found_by_its_name_and_gets_its_options() -> None:
    domain = load_domain("searchqa", {"test": 10})
    assert domain.name == "searchqa"
    assert len(domain.splits()["test"]) == 10


def test_a_factory_in_a_file_is_found_by_its_path(module: Path) -> None:
    domain = load_domain(f"{module}:make", {"test": 5})
    assert (domain.name, len(domain.splits()["test"])) == ("mine", 5)


def test_an_installed_entry_point_is_found_and_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("plugged", "whale.domains.searchqa.domain:create", registry.GROUP)
    lost = EntryPoint("lost", "no_such_module_anywhere:create", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry, lost])
    assert load_domain("plugged", {"test": 5}).name == "searchqa"
    assert {"plugged", "searchqa"} <= set(domain_names())
    with pytest.raises(UsageError, match="no_such_module_anywhere"):
        load_domain("lost")


@pytest.mark.parametrize("name", ["", "nope", "searchqa.py", "whale.domains.searchqa", "../searchqa"])
def test_an_unknown_name_lists_what_is_there(name: str) -> None:
    with pytest.raises(UsageError, match="searchqa") as caught:
        load_domain(name)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [("absent", "absent"), ("number", "no function"), ("broken", "no domain"), ("picky", "no such option")],
)
def test_a_factory_that_makes_no_domain_is_refused(module: Path, attribute: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        load_domain(f"{module}:{attribute}")


def test_a_missing_or_failing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        load_domain(f"{tmp_path}/none.py:make")
    bad = tmp_path / "bad.py"
    bad.write_text("1 / 0")
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        load_domain(f"{bad}:make")


FAILING = {
    "raises": (
        "def create(options):\n    rows()\ndef rows():\n    return open('no such file')\n",
        "own.py line 4: FileNotFound",
    ),
    "library": ("import json\ndef create(options):\n    json.loads('{')\n", "own.py line 3: JSONDecodeError"),
    "exits": ("import sys\ndef create(options):\n    sys.exit('no data')\n", "own.py line 3: SystemExit: no data"),
    "lines": ("def create(options):\n    raise ValueError('one\\ntwo')\n", "own.py line 2: ValueError: one two"),
    "syntax": ("def create(options:\n    pass\n", "own.py line 1: SyntaxError"),
    "name": ("ROWS = rows\n", "own.py line 1: NameError"),
    "beside": ("import beside\n", "own.py line 1: ModuleNotFoundError.*a config names is one file"),
    "missing": ("import no_such_package\n", "own.py line 1: ModuleNotFoundError: No module named 'no_such_package'$"),
}


@pytest.mark.parametrize("name", sorted(FAILING))
def test_code_of_ones_own_that_fails_is_one_line_with_its_place_and_a_traceback_for_the_log(
    tmp_path: Path, name: str
) -> None:
    text, reason = FAILING[name]
    (tmp_path / "own.py").write_text(text)
    (tmp_path / "beside.py").touch()
    with pytest.raises(UsageError, match=reason) as caught:
        load_domain(f"{tmp_path}/own.py:create")
    assert "\n" not in str(caught.value) and "own.py" in caught.value.details


def test_a_place_where_nobody_may_look_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "own.py").touch()
    for member in ("stat", "open"):
        with monkeypatch.context() as patched:
            patched.setattr(Path, member, refuse)
            with pytest.raises(UsageError, match=r"own.py.* cannot be read: Permission denied"):
                load_domain(f"{tmp_path}/own.py:create")
    for named in ("x" * 5000, "~nobody-of-this-name/own", "a\0b"):
        with pytest.raises(UsageError, match="cannot be read"):
            load_domain(f"{named}.py:create")


def test_a_failing_factory_is_one_line_at_the_command_line_and_its_traceback_is_kept(
    whale: WhaleProcess,  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "own.py").write_text(FAILING["raises"][0])
    done = whale("domains", "check", "own.py:create", "--fast", check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "own.py line 4" in done.stderr
    log = (tmp_path / "runs" / "error.log").read_text()
    assert "Traceback" in log and str(tmp_path / "runs" / "error.log") in done.stderr


def test_two_files_of_one_name_are_two_domains(tmp_path: Path) -> None:
    made = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.py").write_text(
            "from whale.domains.simple import qa_domain\n"
            f"WHERE = {folder!r}\n"
            "def create(options):\n"
            "    rows = [{'question': f'q {n}', 'answer': 'a'} for n in range(40)]\n"
            "    return qa_domain('own', rows, options, verify=lambda row, text: text == WHERE)\n"
        )
        made.append(load_domain(f"{tmp_path / folder}/own.py:create"))
    prints = [domain.fingerprint() for domain in made]
    assert prints[0] != prints[1]
    task = made[0].splits()["test"][0]
    assert [domain.verify(task, Completion("", "<answer>a</answer>")).reward for domain in made] == [1, 0]


def test_loading_the_domain_imports_neither_torch_nor_the_retrieval_library() -> None:
    code = (
        "import sys; from whale.domains.registry import load_domain; load_domain('searchqa').fingerprint();"
        "print([m for m in ('torch', 'transformers', 'bm25s', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
