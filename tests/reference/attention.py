"""Attention of one KV head's group and the statistics taken from it (policies.md sections 1.1, 1.6 and 6.1)."""

import math

import numpy as np

from tests.reference.selection import largest


def attend(
    q: np.ndarray, q_pos: list[int], k: np.ndarray, v: np.ndarray, pos: list[int], scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Softmax attention, causal by position and not by slot index.

    q (G, m, D), k and v (n, D), pos: n positions -> probabilities (G, m, n) and output (G, m, D).
    A row that sees no slot at all (a FastGen head that keeps nothing) has zero probabilities and zero output.
    """
    G, m, _ = q.shape
    n = len(pos)
    probs = np.zeros((G, m, n))
    out = np.zeros((G, m, v.shape[1] if n else q.shape[2]))
    for h in range(G):
        for i in range(m):
            visible = [j for j in range(n) if pos[j] <= q_pos[i]]
            if not visible:
                continue
            # One dot product per pair, so that equal keys get equal logits wherever they lie in the matrix.
            logits = [scale * float(np.dot(q[h, i], k[j])) for j in visible]
            top = max(logits)
            weights = [math.exp(x - top) for x in logits]
            total = sum(weights)
            for j, weight in zip(visible, weights, strict=True):
                probs[h, i, j] = weight / total
                out[h, i] += probs[h, i, j] * v[j]
    return probs, out


def column_sums(probs: np.ndarray, w: int) -> np.ndarray:
    """probs (G, m, n) -> (G, n): attention that each slot received from the last min(w, m) rows, per query
    head.
    """
    G, m, n = probs.shape
    sums = np.zeros((G, n))
    for h in range(G):
        for i in range(m - min(w, m), m):
            sums[h] += probs[h, i]
    return sums


def reduce_group(per_head: np.ndarray, gqa: str) -> np.ndarray:
    """(G, n) -> (n,): one value per KV head (section 1.6)."""
    if gqa not in {"mean", "sum", "max"}:
        raise ValueError(f"unknown group reduction {gqa!r}")
    G, n = per_head.shape
    out = np.zeros(n)
    for j in range(n):
        column = [float(per_head[h, j]) for h in range(G)]
        out[j] = largest(column) if gqa == "max" else sum(column) / (G if gqa == "mean" else 1)
    return out


def group_mean(probs: np.ndarray) -> np.ndarray:
    """probs (G, m, n) -> mean over the group (m, n): A-bar of section 1.1."""
    G, m, n = probs.shape
    mean = np.zeros((m, n))
    for h in range(G):
        mean += probs[h]
    return mean / G
