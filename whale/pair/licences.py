"""The licences of a model and of a domain's data, as far as they are stated where the two lie."""

import json
from importlib.resources import files
from pathlib import Path

from whale.domains.base import Domain
from whale.domains.registry import BUILT_IN
from whale.rollout.models import RECORD

UNSTATED = "not stated by {}; ask whoever made it before you pass this on"


def model_licence(folder: Path) -> str:
    """What the model's folder says of its licence: our record of it, or the head of its model card."""
    try:
        return str(json.loads((folder / RECORD).read_text(encoding="utf-8"))["licence"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    try:
        lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    if lines[:1] == ["---"]:
        for line in lines[1 : lines.index("---", 1) if "---" in lines[1:] else 1]:
            key, _, value = line.partition(":")
            if key.strip() in ("license", "licence") and value.strip():
                return value.strip()
    names = ", ".join(path.name for path in licence_files(folder))
    return f"see licences/{names}" if names else UNSTATED.format("the model's folder")


def licence_files(folder: Path) -> list[Path]:
    """The licence texts beside a model."""
    found = (path for path in folder.iterdir() if path.is_file())
    return sorted(path for path in found if path.name.lower().startswith(("license", "licence", "notice")))


def data_licence(name: str, domain: Domain) -> str:
    """A line on a domain's data: what it says itself, or the statement that we ship with a built-in one."""
    stated = getattr(domain, "licence", "")
    if stated:
        return str(stated)
    if name in BUILT_IN:
        if data_statement(name):
            return "see licences/LICENSE-DATA.md"
        return "made by WHALE itself (Apache-2.0), unless the domain's options name data of another source"
    return UNSTATED.format("the domain (an attribute `licence` would)")


def data_statement(name: str) -> str:
    """The text that we ship beside a built-in domain's data, or nothing."""
    if name not in BUILT_IN:
        return ""
    path = files(f"whale.domains.{name}").joinpath("LICENSE-DATA.md")
    return path.read_text(encoding="utf-8") if path.is_file() else ""
