"""TOVA: the attention row of the last query (policies.md section 3.5). Stateless, nothing protected."""

import numpy as np

from tests.reference.attention import column_sums
from tests.reference.policy import HeadView, Policy


class Tova(Policy):
    """S[g, j] = mean over the group of A[h, m-1, j]. heads: 'kv' (per KV head) or 'layer' (mean over all
    heads).
    """

    def __init__(self, heads: str = "kv", **common: str) -> None:
        if heads not in {"kv", "layer"}:
            raise ValueError(f"unknown heads {heads!r}")
        super().__init__(**({"gqa": "all_heads"} if heads == "layer" else {}) | common)

    def score_heads(self, head: HeadView) -> np.ndarray:
        """(G, n): last row of each query head."""
        return column_sums(head.attention, 1)

    def score(self, head: HeadView) -> np.ndarray:
        return self.reduced(head, self.score_heads)
