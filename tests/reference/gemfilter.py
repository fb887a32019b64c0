"""GemFilter: choose prompt tokens once, then run the model on those alone (policies.md section 3.10).

Token selection in the input, not cache eviction, so there is no policy class: pass 2 is a fresh prompt of the
kept tokens at positions 0 ... k - 1.
"""

import numpy as np

from tests.reference.selection import keep
from tests.reference.snapkv import pool


def token_scores(q_last: np.ndarray, k: np.ndarray) -> np.ndarray:
    """q_last (Hq, D), k (H, T, D) of the filter layer -> (T,): raw dot products summed over all query heads."""
    group = q_last.shape[0] // k.shape[0]
    scores = np.zeros(k.shape[1])
    for h in range(q_last.shape[0]):
        for j in range(k.shape[1]):
            scores[j] += float(np.dot(q_last[h], k[h // group, j]))
    return scores


def select_tokens(scores: np.ndarray, budget: int, kernel: int = 5) -> list[int]:
    """(T,) -> the `budget` tokens that are fed again, ascending; all of them if the prompt already fits.

    Zero-padded average pooling with divisor `kernel`; nothing is protected, not even the last token.
    """
    return keep(range(len(scores)), list(pool(scores, kernel, "avg")), budget)


class GemFilter:
    """layer: the filter layer r (the caller supplies that layer's q and k); kernel: pooling width."""

    def __init__(self, layer: int, kernel: int = 5) -> None:
        self.layer, self.kernel = layer, kernel

    def keep(self, q: np.ndarray, k: np.ndarray, budget: int) -> list[int]:
        """q (Hq, T, D), k (H, T, D) of layer `self.layer` -> positions to feed again."""
        return select_tokens(token_scores(q[:, -1], k), budget, self.kernel)
