"""Attention over all earlier tokens, recomputed from recorded queries and keys, tile by tile."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from harness.diagnostics.tape import Vectors

QUERIES_PER_TILE = 512


def dense_rows(vectors: Vectors, query_head: int) -> Iterator[tuple[slice, Tensor]]:
    """Tiles of query tokens with their probabilities over all tokens, (t, T) fp32, 0 at later tokens."""
    keys = vectors.keys[query_head // vectors.group].float()
    length = len(keys)
    for start in range(0, length, QUERIES_PER_TILE):
        tile = slice(start, min(start + QUERIES_PER_TILE, length))
        logits = vectors.queries[query_head, tile].float() @ keys.T * vectors.scaling
        if vectors.softcap is not None:
            logits = vectors.softcap * torch.tanh(logits / vectors.softcap)
        yield tile, logits.masked_fill(later(tile, length, keys.device), -torch.inf).softmax(-1)


def later(tile: slice, length: int, device: torch.device) -> Tensor:
    """(t, T) bool: tokens that come after each query token of the tile."""
    places = torch.arange(length, device=device)
    return places > places[tile].unsqueeze(-1)
