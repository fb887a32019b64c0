"""Attention of one KV head's group and the statistics taken from it (policies.md sections 1.1, 1.6 and 6.1)."""

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
    if not pos:
        return np.zeros((G, m, 0)), np.zeros((G, m, q.shape[2]))
    visible = np.asarray(pos) <= np.asarray(q_pos)[:, None]  # (m, n)
    # One sum per pair, so that equal keys get equal logits wherever they lie in the matrix.
    logits = scale * (q[:, :, None] * k).sum(axis=3)  # (G, m, n)
    logits = np.where(visible, logits, -np.inf)
    top = logits.max(axis=2, keepdims=True)
    weights = np.exp(logits - np.where(top == -np.inf, 0.0, top))
    total = np.add.accumulate(weights, axis=2)[..., -1:]  # slot by slot, so that hidden ones do not change its rounding
    probs = weights / np.where(total == 0.0, 1.0, total)
    return probs, (probs[..., None] * v).sum(axis=2)


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
