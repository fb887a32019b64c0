"""Ada-SnapKV and Ada-Pyramid: head budgets from comparing scores across heads (policies.md section 3.8)."""

from collections.abc import Sequence

import numpy as np

from tests.reference.policy import HeadView, LayerView
from tests.reference.pyramidkv import capacities
from tests.reference.selection import exact, floor_of, largest_remainder, refuse_nan
from tests.reference.snapkv import SnapKV, mean_rows, pool


def counts(scores: Sequence[np.ndarray], base: int) -> list[int]:
    """scores: H arrays (P,). How many of the H * base largest scores of the layer each head owns: c_g.

    On equal scores the larger position counts first (1.3-4), then the lower head. Position before head is what
    makes identical heads get identical budgets, whatever their ties.
    """
    for row in scores:
        refuse_nan(row)
    ranked = sorted(((float(s), j, -g) for g, row in enumerate(scores) for j, s in enumerate(row)), reverse=True)
    owned = [0] * len(scores)
    for _, _, minus_g in ranked[: len(scores) * base]:
        owned[-minus_g] += 1
    return owned


def head_budgets(c: Sequence[int], base: int, alpha: float = 0.2, rounding: str = "largest_remainder") -> list[int]:
    """c_g -> N_g: convex mix with the uniform allocation (alpha = 1 uniform, alpha = 0 fully adaptive)."""
    mix = exact(alpha)
    if rounding == "public_code":
        floor = floor_of(alpha, base)
        return [round((1 - mix) * x + floor) for x in c]
    if rounding != "largest_remainder":
        raise ValueError(f"unknown rounding {rounding!r}")
    return largest_remainder([(1 - mix) * x + mix * base for x in c], len(c) * base)


def normalised(scores: Sequence[np.ndarray], base: int) -> list[np.ndarray]:
    """`normalize`: a head's scores times the fraction of its mass that its own top `base` captures."""
    out = []
    for row in scores:
        mass = sum(sorted((float(s) for s in row), reverse=True)[:base])
        whole = sum(float(s) for s in row)
        out.append(row * (mass / whole if whole else 1.0))
    return out


class AdaKV(SnapKV):
    """base: 'uniform' (C - w in every layer) or 'pyramid' (cap_l of section 3.7, exact schedule by default)."""

    def __init__(
        self,
        window: int = 32,
        kernel: int = 7,
        pool: str = "max",
        alpha: float = 0.2,
        normalize: bool = False,
        rounding: str = "largest_remainder",
        base: str = "uniform",
        beta: float = 20,
        schedule: str = "exact",
        **common: str,
    ) -> None:
        once = {"prefill_evict": "once_after_prompt", "decode_evict": "never"}
        super().__init__(window, kernel, pool, **once | common)
        if base not in {"uniform", "pyramid"}:
            raise ValueError(f"unknown base {base!r}")
        self.alpha, self.normalize, self.rounding, self.base = alpha, normalize, rounding, base
        self.beta, self.schedule = beta, schedule
        self.targets: list[int] = []

    def prefix_scores(self, head: HeadView) -> np.ndarray:
        """(P,): pooled mean attention of the window's rows. A mean, because heads are compared on one scale."""
        mean = mean_rows(head.attention, self.window)
        return pool(mean[: max(len(mean) - self.window, 0)], self.kernel, self.pool)

    def score(self, head: HeadView) -> np.ndarray:
        prefix = self.prefix_scores(head)
        return np.concatenate([prefix, np.zeros(len(head.pos) - len(prefix))])

    def target(self, head: HeadView, budget: int) -> int:
        return self.targets[head.g]

    def layer_base(self, view: LayerView, budget: int) -> int:
        if self.base == "uniform":
            return budget - self.window
        plan = capacities(budget, self.window, view.total, view.n_layers, self.beta, self.schedule)
        return plan[view.index]

    def select(self, view: LayerView, budget: int | None) -> list[list[int]]:
        if budget is None:
            return [list(head.pos) for head in view.heads]
        base = self.layer_base(view, budget)
        prefix = len(view.heads[0].pos) - self.window
        if budget <= self.window:
            self.targets = [budget] * len(view.heads)
        elif prefix <= base:
            return [list(head.pos) for head in view.heads]  # the layer fits: nothing to allocate
        else:
            scores = [self.prefix_scores(head) for head in view.heads]
            if self.normalize:
                scores = normalised(scores, base)
            owned = counts(scores, base)
            shares = head_budgets(owned, base, self.alpha, self.rounding)
            self.targets = [n + self.window for n in shares]
            border = sorted((float(s) for row in scores for s in row), reverse=True)
            edge = len(scores) * base
            self.margins = [border[edge - 1] - border[edge]] * len(view.heads) if edge > 0 else self.margins
        return super().select(view, budget)
