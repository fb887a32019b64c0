"""Expected Attention from its definition (policies.md section 3.23): normally distributed queries, rotated ahead."""

import math

import numpy as np


def rotation(position: int, width: int, base: float = 10_000.0) -> np.ndarray:
    """R(p) (D, D) as a matrix: coordinate i is paired with i + D / 2."""
    half = width // 2
    matrix = np.zeros((width, width))
    for i in range(half):
        angle = position * base ** (-2 * i / width)
        matrix[i, i] = matrix[i + half, i + half] = math.cos(angle)
        matrix[i, i + half], matrix[i + half, i] = -math.sin(angle), math.sin(angle)
    return matrix


def scores(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, seen: int, future: int, sinks: int,
    covariance: bool = True, value_norm: bool = True, epsilon: float = 0.0,
) -> np.ndarray:  # fmt: skip
    """One KV head. queries (G, T, D) without rotation, of all tokens read; keys, values (n, D) of the slots, none of
    them a sink -> (n,).
    """
    width = keys.shape[1]
    ahead = sum(rotation(p, width) for p in range(seen, seen + future)) / future
    expected = np.zeros(len(keys))
    for of_head in queries[:, sinks:]:
        mean = of_head.mean(0)
        spread = sum(np.outer(q - mean, q - mean) for q in of_head) / len(of_head)
        mean, spread = ahead @ mean, ahead @ spread @ ahead.T
        logits = [k @ mean / math.sqrt(width) + covariance * (k @ spread @ k) / (2 * width) for k in keys]
        weights = np.exp(np.array(logits) - max(logits))
        expected += weights / weights.sum() / len(queries)
    return (expected + epsilon) * np.linalg.norm(values, axis=1) if value_norm else expected
