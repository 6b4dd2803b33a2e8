"""What a run's process and its engine's replicas say to each other, beside a replica's own methods."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from whale.config import EngineConfig
from whale.domains.apart import judged_apart
from whale.domains.base import Domain
from whale.domains.registry import load_domain
from whale.errors import WhaleError

THE_DOMAIN = "the run's domain"
"""Stands in a message for the domain, which each replica loads by itself."""


@dataclass(frozen=True, slots=True)
class DomainOrigin:
    """What a domain is made from."""

    name: str
    options: Mapping[str, Any]
    folder: Path
    """From which it names its files."""
    apart: bool
    """Whether its verdicts come from a process of their own."""
    fingerprint: str

    def load(self) -> Domain:
        """Make the domain. Raises UsageError as `load_domain`, WhaleError if it is another by now."""
        with contextlib.chdir(self.folder):
            domain = load_domain(self.name, self.options)
            if domain.fingerprint() != self.fingerprint:
                raise WhaleError(f"domain {self.name}: its data or code has changed meanwhile; bring the old ones back")
            return judged_apart(domain, self.name, self.options) if self.apart else domain


@dataclass(frozen=True, slots=True)
class Opening:
    """What a replica starts from."""

    settings: EngineConfig
    model: Path
    version: str
    origin: DomainOrigin
    trainer: bool
    """Whether the engine's device has to keep room for a trainer."""
    sharing: int
    """Engines that share the memory of this one's device."""
    lora_rank: int = 0
    """Of the trainer's adapters; 0: it trains all of the model."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a parent has to know of its replica's engine."""

    name: str
    deterministic: bool
    context_length: int
    dtype: torch.dtype
    notes: list[str]
