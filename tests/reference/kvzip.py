"""KVzip's scores from queries and keys of a model that repeats its context (policies.md section 3.28)."""

from collections.abc import Sequence

import numpy as np


def scores(queries: np.ndarray, keys: np.ndarray, context: int, piece: range, sinks: int, scale: float) -> np.ndarray:
    """(H, piece). ``queries`` (H·G, m, D) of what was fed for a piece, ``keys`` (H, context + m, D), row by row."""
    heads, group = len(keys), len(queries) // len(keys)
    out = np.zeros((heads, len(piece)))
    for g in range(heads):
        for own in queries[g * group : (g + 1) * group]:
            for i, q in enumerate(own):
                seen = [*range(min(sinks, piece.start)), *piece, *range(context, context + i + 1)]
                logits = np.array([q @ keys[g, j] * scale for j in seen])
                weights = np.exp(logits - logits.max())
                weights /= weights.sum()
                for j, p in zip(seen, weights, strict=True):
                    if j in piece:
                        out[g, j - piece.start] = max(out[g, j - piece.start], p)
    return out


def kept(table: np.ndarray, budget: int, sinks: int) -> list[list[list[int]]]:
    """Positions that each layer and head keeps, of scores (L, H, T), under one budget for the whole model."""
    layers, heads, tokens = table.shape
    places = [
        (-(np.inf if t < sinks else table[layer, h, t]), -layer, -h, -t)
        for layer in range(layers)
        for h in range(heads)
        for t in range(tokens)
    ]
    won = sorted(places)[: min(budget, tokens) * layers * heads]
    out: list[list[list[int]]] = [[[] for _ in range(heads)] for _ in range(layers)]
    for _, layer, h, t in won:
        out[-layer][-h].append(-t)
    return [[sorted(head) for head in layer] for layer in out]


def passes(
    context: Sequence[int], chunk: int, first: Sequence[int], later: Sequence[int], answer: Sequence[int]
) -> list[tuple[range, list[int]]]:
    """What is fed for each piece."""
    out = []
    for start in range(0, len(context), chunk):
        stop = min(start + chunk, len(context))
        said = [*later, *context[start - 8 : start]] if start else [*first]
        out.append((range(start, stop), [*said, *answer, *context[start:stop]]))
    return out
