"""Finding a domain by name, entry point or path."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from whale.domains import registry
from whale.domains.registry import domain_names, load_domain
from whale.errors import UsageError

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
    [("absent", "absent"), ("number", "not callable"), ("broken", "no domain"), ("picky", "no such option")],
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


def test_loading_the_domain_imports_neither_torch_nor_the_retrieval_library() -> None:
    code = (
        "import sys; from whale.domains.registry import load_domain; load_domain('searchqa').fingerprint();"
        "print([m for m in ('torch', 'transformers', 'bm25s', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
