"""The conditions under which a run of the benchmarks measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from scripts.bench.contenders import ATTENTION_BASED, ATTENTION_FREE

Line = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """The conditions of one run. Lengths, budgets and blocks are tokens."""

    shape: str
    device: str
    dtype: torch.dtype
    repeats: int
    tokens: int
    budget: int
    block: int
    only: tuple[str, ...] = ()  # policies; all if empty
    peer: str = ""  # the python of an environment that has kvpress
    rows: int = 1  # that are read and decoded together, in the sections blocks and decode

    @property
    def target(self) -> torch.device:
        """The device it runs on."""
        return torch.device(self.device)

    def policies(self) -> tuple[str, ...]:
        """Presets to time, those without attention statistics first."""
        return self.only or (*ATTENTION_FREE, *ATTENTION_BASED)
