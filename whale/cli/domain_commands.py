"""`whale domains`: list them, write one of your own, prove that it keeps the contract."""

import re
from dataclasses import asdict
from pathlib import Path

from whale.cli.output import print_json, print_table, printable
from whale.config import apply_overrides
from whale.errors import UsageError, WhaleError

TEMPLATE = Path(__file__).with_name("own_domain")


def list_domains(json: bool) -> None:
    """The built-in domains and those of installed packages."""
    from whale.domains.registry import BUILT_IN, domain_names

    rows = [{"domain": name, "from": "built in" if name in BUILT_IN else "entry point"} for name in domain_names()]
    if json:
        print_json(rows)
    else:
        print_table(["domain", "from"], [list(row.values()) for row in rows])


def new_domain(name: str, force: bool) -> None:
    """Write NAME.py, its test and a config; all three work as they are."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise UsageError(f"domains new {name!r}: give a name of small letters, digits and _ that begins with a letter")
    written = {
        Path(f"{name}.py"): "domain.txt",
        Path(f"test_{name}.py"): "test.txt",
        Path(f"{name}.toml"): "config.txt",
    }
    for path in written:
        if path.exists() and not force:
            raise UsageError(f"{path}: is there already; --force overwrites it")
    try:
        for path, template in written.items():
            text = (TEMPLATE / template).read_text(encoding="utf-8")
            path.write_text(text.replace("NAME", name), encoding="utf-8")
    except OSError as error:
        raise WhaleError(f"{error.filename}: cannot be written: {error.strerror or error}") from error
    print(f"wrote {', '.join(map(str, written))}")
    print(f"`whale domains check {name}.py:create` proves it; `whale run {name}.toml` runs it")


def check(domain: str, sets: list[str], json: bool, fast: bool) -> None:
    """Print a line per rule; exit 1 if one does not hold."""
    from whale.domains.check import check_domain
    from whale.domains.registry import load_domain

    options = apply_overrides({}, sets)
    findings = []
    for finding in check_domain(lambda: load_domain(domain, options), run_h0=not fast):
        findings.append(finding)
        if not json:
            mark = "ok  " if finding.holds else "FAIL"
            print(printable(f"{mark}  {finding.rule}{f': {finding.detail}' if finding.detail else ''}"), flush=True)
    if json:
        print_json([asdict(finding) for finding in findings])
    failed = sum(not finding.holds for finding in findings)
    if failed:
        raise WhaleError(f"{domain}: {failed} of {len(findings)} rules do not hold")
