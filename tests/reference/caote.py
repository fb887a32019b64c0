"""CAOTE and FastCAOTE: a base score turned into an eviction error (policies.md section 3.16; CAOTE Eq. 8, 21,
23).

h_j = H_j / sum(H); X = sum_j h_j v_j (CAOTE) or mean_j v_j (FastCAOTE); c_j = h_j / (1 - h_j) |X - v_j|.
"""

import math
from collections.abc import Collection, Sequence

import numpy as np

from tests.reference.policy import HeadView, LayerView, Policy
from tests.reference.selection import gap, keep, refuse_nan

ALMOST_ONE = 1.0 - 1e-6


def normalised(base: Sequence[float], over: Sequence[int]) -> dict[int, float]:
    """Base scores (n,) -> shares h of the slots in `over`; uniform if they are all zero."""
    refuse_nan(base)  # before the zero-sum guard, which a NaN would pass as "not positive"
    if any(x < 0 for x in base):
        raise ValueError("CAOTE needs non-negative base scores")
    total = sum(float(base[j]) for j in over)
    return {j: float(base[j]) / total if total > 0 else 1.0 / len(over) for j in over}


def scores(
    base: Sequence[float], values: np.ndarray, fast: bool = False, over: Sequence[int] | None = None
) -> np.ndarray:
    """base (n,), values (n, D) -> c (n,). over: slots that take part in the normalisation and in X, all if
    None.

    X - v_j is summed as sum_i w_i (v_i - v_j), which equals it because the weights sum to 1, and which is
    exactly zero when all values are equal - the tie that the selection rule then breaks by position.
    """
    over = list(range(len(base))) if over is None else list(over)
    h = normalised(base, over)
    out = np.zeros(len(base))
    for j in over:
        if h[j] > ALMOST_ONE:
            out[j] = math.inf  # removing it would leave nothing to renormalise
            continue
        difference = np.zeros(values.shape[1])
        for i in over:
            difference += (1.0 / len(over) if fast else h[i]) * (values[i] - values[j])
        out[j] = h[j] / (1.0 - h[j]) * float(np.sqrt(np.dot(difference, difference)))
    return out


def joint_error(base: Sequence[float], values: np.ndarray, evicted: Collection[int]) -> float:
    """|sum over E of h_i (X - v_i)| / (1 - sum over E of h_i): exact output change when the set E leaves at
    once.
    """
    h = normalised(base, range(len(base)))
    X = sum((h[j] * values[j] for j in h), np.zeros(values.shape[1]))
    moved = sum((h[i] * (X - values[i]) for i in evicted), np.zeros(values.shape[1]))
    return float(np.sqrt(np.dot(moved, moved))) / (1.0 - sum(h[i] for i in evicted))


class Caote(Policy):
    """State, schedule and protection are the base policy's; only the ranking changes.

    gqa_order: 'pre' scores the base's group-reduced score, 'post' scores every query head and averages (A-10).
    normalize_over: 'all' slots or the unprotected 'prefix' (A-11). greedy: re-score after each single removal.
    """

    def __init__(
        self,
        base: Policy,
        fast: bool = False,
        gqa_order: str = "pre",
        normalize_over: str = "all",
        greedy: bool = False,
    ) -> None:
        super().__init__(
            gqa=base.gqa,
            prefill_evict=base.prefill_evict,
            decode_evict=base.decode_evict,
            order=base.order,
        )
        if gqa_order not in {"pre", "post"} or normalize_over not in {"all", "prefix"}:
            raise ValueError(f"unknown gqa_order {gqa_order!r} or normalize_over {normalize_over!r}")
        self.base, self.fast, self.greedy = base, fast, greedy
        self.gqa_order, self.normalize_over = gqa_order, normalize_over

    def begin_sequence(self, n_layers: int) -> None:
        self.base.begin_sequence(n_layers)

    def begin_layer(self, index: int, n_kv_heads: int, group: int, budget: int | None) -> None:
        super().begin_layer(index, n_kv_heads, group, budget)
        self.base.begin_layer(index, n_kv_heads, group, budget)
        self.tables = self.base.tables

    def update(self, view: LayerView) -> None:
        self.base.update(view)

    def after_eviction(self, view: LayerView, kept: list[list[int]]) -> None:
        self.base.after_eviction(view, kept)

    def sinks(self, head: HeadView) -> set[int]:
        return self.base.sinks(head)

    def others(self, head: HeadView) -> set[int]:
        return self.base.others(head)

    def score_slots(self, head: HeadView, alive: Sequence[int]) -> np.ndarray:
        """(n,) scores when only the slot indices in `alive` are left; the rest stay 0."""
        over = list(alive)
        if self.normalize_over == "prefix":
            held = self.sinks(head) | self.others(head)
            over = [j for j in alive if head.pos[j] not in held]
        if self.gqa_order == "pre":
            return scores(list(self.base.score(head)), head.v, self.fast, over)
        each = self.base.score_heads(head)  # type: ignore[attr-defined]
        return sum((scores(list(row), head.v, self.fast, over) for row in each), np.zeros(len(head.pos))) / len(each)

    def score(self, head: HeadView) -> np.ndarray:
        return self.score_slots(head, range(len(head.pos)))

    def choose(self, head: HeadView, score: np.ndarray, target: int) -> list[int]:
        if not self.greedy:
            return super().choose(head, score, target)
        self.scores[head.g] = dict(zip(head.pos, map(float, score), strict=True))
        sinks, others = self.sinks(head), self.others(head)
        alive = list(range(len(head.pos)))
        while len(alive) > max(target, 0):
            c = self.score_slots(head, alive)
            pos = [head.pos[j] for j in alive]
            left = keep(pos, [float(c[j]) for j in alive], len(alive) - 1, sinks, others)
            self.margins[head.g] = min(self.margins[head.g], gap(pos, [c[j] for j in alive], left, sinks, others))
            alive = [j for j in alive if head.pos[j] in set(left)]
        return [head.pos[j] for j in alive]
