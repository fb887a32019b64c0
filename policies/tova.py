"""TOVA: the slots that the last token attends to least are evicted (Oren et al. 2024; policies.md, 3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from policies.scorer import AttentionRows, Stateless
from policies.view import CacheView, attention_of


@dataclass(frozen=True)
class TOVA(Stateless):
    """Score = attention row of the chunk's last query, averaged over the query group (KeyDiff's per-head reading).

    The current token competes like any other and may be evicted (A-04).
    """

    rows: ClassVar[AttentionRows] = 1
    nonnegative = True

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N): probabilities that sum to 1 over a head's slots."""
        return attention_of(view)
