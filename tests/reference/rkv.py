"""R-KV: importance minus redundancy (policies.md section 3.20; R-KV section 3)."""

import math

import numpy as np

from tests.reference.keydiff import cosine
from tests.reference.policy import HeadView
from tests.reference.snapkv import SnapKV, pool


def redundancy(keys: np.ndarray, threshold: float, beta: int) -> np.ndarray:
    """keys (n, D) in the order of the text -> (n,): softmax of the mean cosine that the other keys have to each."""
    n = len(keys)
    total = np.zeros(n)
    for i in range(n):
        others = {j: cosine(keys[i], keys[j]) for j in range(n) if j != i}
        alike = [j for j, c in others.items() if c > threshold]
        for j in sorted(alike, reverse=True)[:beta]:
            others[j] = 0.0
        for j, c in others.items():
            total[j] += c / n
    weights = [math.exp(x) for x in total]
    return np.array(weights) / sum(weights)


class RKV(SnapKV):
    """SnapKV's carried window, read as shares of each query head, their largest over the group, and max pooling."""

    def __init__(
        self, window: int = 8, kernel: int = 7, lam: float = 0.1, threshold: float = 0.5, beta: int = 1, **common: str
    ) -> None:
        super().__init__(window=window, kernel=kernel, pool="max", window_source="carry", **common)
        self.lam, self.threshold, self.beta = lam, threshold, beta

    def importance(self, head: HeadView) -> np.ndarray:
        """(n,): 0 for the last `window` tokens of the text."""
        before = sum(p < head.layer.next_pos - self.window for p in head.pos)
        out = np.zeros(len(head.pos))
        if before:
            given = self.window_sums(head)[:, :before]
            shares = np.array([row / row.sum() if row.sum() > 0 else row for row in given])
            out[:before] = pool([max(column) for column in shares.T], self.kernel, "max")
        return out

    def score(self, head: HeadView) -> np.ndarray:
        return self.lam * self.importance(head) - (1 - self.lam) * redundancy(head.k, self.threshold, self.beta)
