"""KeyDiff: keep the keys that differ most from the others (Park et al. 2025, Eq. 8; policies.md, 3.15)."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from policies.scorer import Stateless
from policies.view import CacheView


@dataclass(frozen=True)
class KeyDiff(Stateless):
    """Score = minus the cosine between a key and the mean of all normalised keys, the new block included (A-07).

    Reads no attention, so any attention kernel serves it.
    """

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N), in [-1, 1]."""
        directions = F.normalize(view.keys.float(), dim=-1, eps=1e-8)
        anchor = (directions * view.filled.unsqueeze(-1)).sum(-2, keepdim=True)  # cosines need no division by n
        return -(directions @ F.normalize(anchor, dim=-1, eps=1e-8).transpose(-1, -2)).squeeze(-1)
