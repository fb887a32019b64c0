"""L2: keys of low norm attract attention, so high norms are evicted (Devoto et al. 2024; policies.md, 3.13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.scorer import Stateless, tiles_of_copies
from policies.view import CacheView


@dataclass(frozen=True)
class L2(Stateless):
    """Score = minus the key's norm. Rotations such as RoPE do not change it; no attention is needed."""

    layers_as_rows: ClassVar[bool] = True

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N), fp32 because in bf16 many norms tie."""
        keys = view.keys
        return -torch.cat([torch.linalg.vector_norm(keys[rows].float(), dim=-1) for rows in tiles_of_copies(keys)])
