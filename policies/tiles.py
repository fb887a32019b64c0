"""Vectors in fp32, a tile of rows at a time.

A policy is shown all layers at once, and a copy of all their keys in fp32 would take as much memory as the cache.
"""

from __future__ import annotations

import torch
from torch import Tensor

ON_A_PROCESSOR = 2**18  # numbers: a tile of so many in fp32 stays in its cache
ON_A_GPU = 2**23  # the same there, and enough to occupy it


def tiles(vectors: Tensor) -> list[slice]:
    """Rows of (R, H, N, D) to look at together, at least one at a time."""
    rows = len(vectors)
    numbers = ON_A_PROCESSOR if vectors.device.type == "cpu" else ON_A_GPU
    at_once = max(1, numbers * rows // max(1, vectors.numel()))
    return [slice(start, min(start + at_once, rows)) for start in range(0, rows, at_once)]


def tiles_of_copies(vectors: Tensor) -> list[slice]:
    """The same where only a copy in fp32 takes memory: all rows together where they are in fp32."""
    return [slice(0, len(vectors))] if vectors.dtype == torch.float32 else tiles(vectors)
