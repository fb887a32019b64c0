"""The comparison that all tests of the fast path against the slow reference make.

The reference computes in fp64 from the equations of policies.md and shares no code with the engine. fp32 can only
decide what lies further from a tie than its rounding, so a disagreement is accepted where the reference's margin is
below `ROUNDING`, and the run is compared no further. Ties that both see as ties must be broken alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import raw
import torch
from reference import engine as reference

ROUNDING = 2e-5  # of scores of size one; sums over up to 50 rows of fp32 probabilities err by less

NumpyChunk = tuple[np.ndarray, ...]


def drawn_chunks(seed: int, sizes: list[int], group: int, kind: str) -> list[NumpyChunk]:
    """Random fp32 chunks with 2 KV heads; some kinds are full of exact ties."""
    rng = np.random.default_rng(seed)
    chunks = []
    for m in sizes:
        query, keys, values = (rng.normal(size=(heads, m, 8)).astype(np.float32) for heads in (2 * group, 2, 2))
        if kind == "zero keys":
            keys = np.zeros_like(keys)
        if kind == "sharp":
            query = query * 30
        if kind == "equal values":
            values = np.ones_like(values)
        chunks.append((query, keys, values))
    return chunks


def tensors(chunks: Sequence[NumpyChunk]) -> list[raw.Chunk]:
    """The same chunks for the fast path."""
    return [tuple(map(torch.from_numpy, chunk)) for chunk in chunks]


def share_agreed(slow: Sequence[reference.Step], fast: Sequence[raw.Step], exact_ties: bool = False) -> float:
    """Assert same survivors and outputs, chunk by chunk and head by head, up to the first near tie.

    Returns the share of chunks before it. ``exact_ties``: equal scores are exact in both programs, so that not even
    one near tie is an excuse.
    """
    for number, (expected, got) in enumerate(zip(slow, fast, strict=True)):
        if expected.kept != got.kept:
            differing = [g for g, (a, b) in enumerate(zip(expected.kept, got.kept, strict=True)) if a != b]
            assert not exact_ties, (number, expected.margin)
            assert all(expected.margin[g] < ROUNDING for g in differing), (number, expected.margin)
            return number / len(slow)
        np.testing.assert_allclose(got.output.numpy(), expected.output, atol=1e-4)
    return 1.0
