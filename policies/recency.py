"""Recency: the newest tokens stay (policies.md, 3.2 and 3.3).

With nothing protected this is the local window; with protected sinks it is StreamingLLM (Xiao et al. 2023), whose
budget includes the sinks. Positions stay absolute, as in the KeyDiff and CAOTE suites (A-05).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from policies.scorer import Stateless
from policies.view import CacheView


@dataclass(frozen=True)
class Recency(Stateless):
    """Score = position of the token."""

    layers_as_rows: ClassVar[bool] = True

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N): positions as fp32, exact up to 2^24 tokens; beyond, the tie rule still prefers the newer."""
        return view.positions.float()
