"""Chunks with prescribed attention, for the worked examples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from raw import Chunk
from reference import cases


def scripted(rows: Sequence[object], heads: int = 1) -> list[Chunk]:
    """Per chunk (H·G, m, n) probabilities, one column per token read so far; see `reference.cases.scripted`.

    Over what is still cached, attention is the prescribed row, renormalised.
    """
    chunks = cases.scripted([np.array(block, dtype=float) for block in rows], H=heads)
    scale = chunks[0][0].shape[-1] ** 0.5  # the engine divides logits by the square root of the width
    return [tuple(torch.from_numpy(x).float() for x in (q * scale, k, v)) for q, k, v in chunks]


def uniform_prompt(tokens: int, heads: int = 1) -> list[list[list[float]]]:
    """(heads, tokens, tokens): every token attends to itself and to all before it alike."""
    return [[[1 / (i + 1)] * (i + 1) + [0.0] * (tokens - 1 - i) for i in range(tokens)]] * heads
