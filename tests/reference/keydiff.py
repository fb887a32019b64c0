"""KeyDiff: keep the keys least similar to an anchor (policies.md section 3.15; KeyDiff Eq. 7, 8 and 10)."""

import numpy as np

from tests.reference.policy import HeadView, Policy, last_slots
from tests.reference.selection import floor_of

EPS = 1e-8


def norm(x: np.ndarray) -> float:
    return float(np.sqrt(np.dot(x, x)))


def unit(k: np.ndarray) -> np.ndarray:
    """(D,) -> k / |k|, the denominator clamped so that a zero key stays zero."""
    return k / max(norm(k), EPS)


def anchor_of(keys: np.ndarray, kind: str) -> np.ndarray:
    """keys (n, D) -> (D,). The median is taken per coordinate, of an even count the mean of the middle two."""
    if kind == "mean_normed":
        return sum((unit(k) for k in keys), np.zeros(keys.shape[1])) / len(keys)
    if kind == "mean":
        return sum(keys, np.zeros(keys.shape[1])) / len(keys)
    if kind == "median":
        return np.median(np.array([unit(k) for k in keys]), axis=0)
    raise ValueError(f"unknown anchor {kind!r}")


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.dot(a, b)) / max(norm(a) * norm(b), EPS)


def pairwise_sums(keys: np.ndarray) -> np.ndarray:
    """keys (n, D) -> (n,): sum over j of cos(k_i, k_j), the diagonal included."""
    return np.array([sum(cosine(a, b) for b in keys) for a in keys])


def scores(keys: np.ndarray, anchor: str = "mean_normed", metric: str = "cosine") -> np.ndarray:
    """keys (n, D) -> (n,) retention scores: unlike the anchor = keep."""
    if anchor == "pairwise":
        if metric != "cosine":
            raise ValueError("the pairwise variant is defined for cosine only")
        return -pairwise_sums(keys)
    a = anchor_of(keys, anchor)
    if metric == "cosine":
        return np.array([-cosine(a, k) for k in keys])
    if metric == "dot":
        return np.array([-float(np.dot(a, k)) for k in keys])
    if metric == "euclid":
        return np.array([norm(k - a) for k in keys])
    raise ValueError(f"unknown metric {metric!r}")


class KeyDiff(Policy):
    """The anchor covers all slots present, the new block included, and is recomputed at every eviction.

    recent_frac: floor(recent_frac * N) most recent slots are protected; they still count in the anchor (A-09).
    """

    def __init__(
        self, anchor: str = "mean_normed", metric: str = "cosine", recent_frac: float = 0.0, **common: str
    ) -> None:
        super().__init__(**common)
        self.anchor, self.metric, self.recent_frac = anchor, metric, recent_frac

    def score(self, head: HeadView) -> np.ndarray:
        return scores(head.k, self.anchor, self.metric)

    def others(self, head: HeadView) -> set[int]:
        return last_slots(head, floor_of(self.recent_frac, self.budget or 0))
