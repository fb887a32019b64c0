"""HeadKV-R and HeadKV-R2: static head capacities from a profile (policies.md section 3.9)."""

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from tests.reference.policy import HeadView
from tests.reference.selection import largest_remainder
from tests.reference.snapkv import SnapKV

Profile = Mapping[str, Sequence[float]]
"""'layer-head' (query heads) -> scores of the recorded trials."""


def read_profile(path: str) -> Profile:
    return json.loads(Path(path).read_text())


def importance(profile: Profile, n_layers: int, n_heads: int, temp: float = 1.0) -> np.ndarray:
    """(L, Hq), sum 1: mean over trials, normalised; then raised to `temp` and normalised again."""
    table = np.zeros((n_layers, n_heads))
    for layer in range(n_layers):
        for h in range(n_heads):
            trials = profile[f"{layer}-{h}"]
            table[layer, h] = sum(trials) / len(trials)
    table = table / table.sum()
    table = table**temp
    return table / table.sum()


def shared_pool(base: int, beta: float, heads: int) -> tuple[float, float]:
    """pool and min_each for L * H = `heads` heads. `//` is the float floor-division of the released code."""
    return (base // beta) * heads, base - base // beta


def query_head_capacities(weights: np.ndarray, base: int, beta: float = 1.5) -> np.ndarray:
    """weights (L, Hq) of sum 1 -> prefix slots (L, Hq): round(weight * pool + min_each)."""
    pool, min_each = shared_pool(base, beta, weights.size)
    out = np.zeros(weights.shape, dtype=int)
    for index, weight in np.ndenumerate(weights):
        out[index] = round(float(weight) * pool + min_each)
    return out


def kv_head_capacities(per_query_head: np.ndarray, group: int) -> np.ndarray:
    """(L, Hq) -> (L, H): mean of each group's capacities, rounded so that the total stays sum / G.

    policies.md asks for the mean and for an unchanged total; means are not integers, so largest remainder over
    all heads of the model decides.
    """
    n_layers, n_heads = per_query_head.shape
    means = [
        Fraction(sum(int(x) for x in per_query_head[layer, g * group : (g + 1) * group]), group)
        for layer in range(n_layers)
        for g in range(n_heads // group)
    ]
    total = round(sum(means, Fraction(0)))
    return np.array(largest_remainder(means, total)).reshape(n_layers, n_heads // group)


class HeadKV(SnapKV):
    """Head (l, g) keeps its capacity plus the w window slots; capacities beyond the prefix are lost, not
    shared.
    """

    def __init__(
        self,
        profile: Profile | str,
        beta: float = 1.5,
        temp: float = 1.0,
        window: int = 8,
        kernel: int = 7,
        pool: str = "max",
        **common: str,
    ) -> None:
        once = {"prefill_evict": "once_after_prompt", "decode_evict": "never"}
        super().__init__(window, kernel, pool, **once | common)
        self.profile = read_profile(profile) if isinstance(profile, str) else profile
        self.beta, self.temp = beta, temp

    def target(self, head: HeadView, budget: int) -> int:
        if budget <= self.window:
            return budget
        view, group = head.layer, head.q.shape[0]
        weights = importance(self.profile, view.n_layers, len(view.heads) * group, self.temp)
        per_query_head = query_head_capacities(weights, budget - self.window, self.beta)
        return int(kv_head_capacities(per_query_head, group)[view.index, head.g]) + self.window


def retrieval_score(
    rows: Sequence[np.ndarray], generated: Sequence[int], tokens: Sequence[int], needle: range
) -> float:
    """HeadKV-R, one head and one trial. rows: attention (n,) of each generated token over the text `tokens`.

    A step scores 1 / |needle| if the most attended position lies in the needle and holds the token just
    generated.
    """
    total = Fraction(0)
    for row, token in zip(rows, generated, strict=True):
        best = int(np.argmax(row))
        if best in needle and tokens[best] == token:
            total += Fraction(1, len(needle))
    return float(total)


def reasoning_score(rows: Sequence[np.ndarray], needle: range) -> float:
    """HeadKV-R2, one head and one trial: attention / |needle| of each top-|needle| position within it."""
    total = 0.0
    for row in rows:
        top = sorted(range(len(row)), key=lambda j: (float(row[j]), j), reverse=True)[: len(needle)]
        total += sum(float(row[j]) / len(needle) for j in top if j in needle)
    return total


def uniform_profile(n_layers: int, n_heads: int) -> Profile:
    """Every head equally important: HeadKV then is SnapKV with the same window (T-26)."""
    return {f"{layer}-{h}": [1.0] for layer in range(n_layers) for h in range(n_heads)}
