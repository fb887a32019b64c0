"""DropKV: the squared change of a window's outputs (policies.md section 3.25)."""

import numpy as np

from tests.reference.attention import attend
from tests.reference.policy import HeadView
from tests.reference.snapkv import SnapKV, pool


class DropKV(SnapKV):
    """SnapKV's carried window; each output is computed again without each slot, up to epsilon."""

    def __init__(self, window: int = 32, kernel: int = 7, epsilon: float = 1e-6, **common: str) -> None:
        super().__init__(window=window, kernel=kernel, window_source="carry", **common)
        self.epsilon = epsilon

    def score(self, head: HeadView) -> np.ndarray:
        group = head.q.shape[0]
        rows = np.array([q[head.g * group : (head.g + 1) * group] for _, q in self.ring]).transpose(1, 0, 2)
        probs, _ = attend(rows, [p for p, _ in self.ring], head.k, head.v, head.pos, head.layer.scale)
        total = np.zeros(len(head.pos))
        for of_head in probs:
            for row in of_head:
                output = row @ head.v
                for j, p in enumerate(row):
                    moved = p / (1 - p + self.epsilon) * (output - head.v[j])
                    total[j] += moved @ moved / group
        return pool(total, self.kernel, "avg")
