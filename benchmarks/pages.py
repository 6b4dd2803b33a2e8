"""The tables of the docs that come from published logs: each is what the command above it prints.

    python benchmarks/pages.py            # write them anew
    python benchmarks/pages.py --check    # say which differ, exit code 1 if any does

On a page, an indented line with the command, then its output between two comments that a reader of the page does not
see: <!-- output --> and <!-- end -->. Commands run in the project's folder; of a shell's language they may use
quotes and `*`.
"""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("docs/results.md", "docs/operations.md")
_BLOCK = re.compile(
    r"^    (?P<command>\S[^\n]*)\n\n<!-- output -->\n(?P<output>.*?)<!-- end -->$", re.DOTALL | re.MULTILINE
)


def printed(command: str) -> str:
    """What the command prints; if it fails, its words and the end."""
    program, *words = (word for item in shlex.split(command) for word in _expanded(item))
    start = {"whale": ["-m", "whale"], "python": []}[program]
    done = subprocess.run([sys.executable, *start, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip("\n")


def _expanded(word: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(word)) if "*" in word else [word]


def renewed(page: str) -> tuple[str, list[str]]:
    """The page with each command's output as it is now, and the commands whose output was another."""
    differing = []

    def renew(match: re.Match[str]) -> str:
        output = f"\n{printed(match['command'])}\n\n"
        if output != match["output"]:
            differing.append(match["command"])
        return f"    {match['command']}\n\n<!-- output -->\n{output}<!-- end -->"

    return _BLOCK.sub(renew, page), differing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check: bool = parser.parse_args().check
    differ = 0
    for name in PAGES:
        path = ROOT / name
        text, differing = renewed(path.read_text(encoding="utf-8"))
        differ += len(differing)
        for command in differing:
            print(f"{name}: {'another output than' if check else 'wrote the output of'}: {command}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and differ else 0


if __name__ == "__main__":
    sys.exit(main())
