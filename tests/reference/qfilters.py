"""Q-Filters: keys against one vector for each KV head (policies.md section 3.27)."""

from collections.abc import Sequence

import numpy as np

from tests.reference.policy import HeadView, Policy


class QFilters(Policy):
    """S[g, j] = k_gj · u_g. `filters[layer][g]` is u_g."""

    def __init__(self, filters: Sequence[Sequence[Sequence[float]]], **common: str) -> None:
        super().__init__(**common)
        self.filters = filters

    def score(self, head: HeadView) -> np.ndarray:
        direction = self.filters[head.layer.index][head.g]
        return np.array([sum(a * b for a, b in zip(key, direction, strict=True)) for key in head.k])


def filter_of(queries: Sequence[np.ndarray]) -> np.ndarray:
    """Of a KV head, from all queries (n, D) of each of its query heads: singular vectors, pointed and averaged."""
    pointed = []
    for own in queries:
        first = np.linalg.svd(own, full_matrices=False)[2][0]
        pointed.append(-first if (own @ first).mean() < 0 else first)
    return np.mean(pointed, axis=0)
