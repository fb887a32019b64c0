"""CriticalKV: half of the budget by attention, the rest by attention and what a value adds to the output (Feng et al.
2025, arXiv 2502.03805; policies.md, 3.24)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import floor
from typing import Any

import torch
from torch import Tensor

from policies.policy import Protect
from policies.scorer import OverScorer, tiles
from policies.selection import as_written, keep_best, priorities
from policies.snapkv import SnapKV
from policies.view import CacheView, PolicyError


@dataclass(frozen=True)
class CriticalKV(OverScorer):
    """Two stages over ``base``, any other scorer whose scores are an attention mass.

    The first keeps ``share`` of the budget by the base's scores, protected slots first. The second ranks all others by
    (score + ``epsilon``) × mean over the query group of |W_O v|₁, what the value adds to the layer's output in the
    L1 norm (the paper's bound on the perturbation). ``epsilon`` is a share of attention: of a base whose scores are
    sums over queries (``query_rows``) the mean is taken first. ``sinks`` and ``recent`` are protected slots, as in
    ``protect``.

    Source: the paper's Algorithm 1 and kvpress (CriticalKVPress), whose numbers these are. Deviation: a selection is
    one ranking here, so that slots of the first stage get scores above all others.
    """

    base: Any = field(default_factory=SnapKV)  # a scorer; `build` makes it from its name or {name, …}
    share: float = 0.5  # of the budget
    epsilon: float = 1e-4
    sinks: int = 0  # tokens
    recent: float = 0  # tokens, or a share of the budget

    def __post_init__(self) -> None:
        self.check_base("criticalkv")
        if not self.base.nonnegative:
            raise PolicyError(
                f"criticalkv weighs values by scores, which must be an attention mass, and those of "
                f"{type(self.base).__name__} are none: use snapkv, tova, h2o, or expected_attention with "
                "value_norm: false as its base."
            )
        if not 0 <= self.share <= 1:
            raise PolicyError(f"criticalkv share={self.share:g} is a share of the budget: use a number from 0 to 1.")
        if self.epsilon < 0:
            raise PolicyError(f"criticalkv epsilon={self.epsilon:g} must be 0 or more.")

    @property
    def layers_as_rows(self) -> bool:
        """Never: each layer has a W_O of its own."""
        return False

    @property
    def reads_output(self) -> bool:
        """Whatever the base reads."""
        return True

    @property
    def nonnegative(self) -> bool:
        """Scores are no mass any more: those of the first stage stand above all others."""
        return False

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N)."""
        base: Tensor = self.base.score(view)
        second = (self._mean_mass(view, base) + self.epsilon) * self._added(view)
        first = self._first_stage(view, base)
        most = second.masked_fill(~view.filled, 0.0).amax(-1, keepdim=True)
        return torch.where(first, 2 * most + 1 + second, second)

    def _mean_mass(self, view: CacheView, base: Tensor) -> Tensor:
        """(R, H, N): the base's scores over the queries whose sum they are, which is the scale of ``epsilon``."""
        rows: Callable[[CacheView], Tensor] | None = getattr(self.base, "query_rows", None)
        return base if rows is None else base / rows(view).clamp(min=1)

    def _first_stage(self, view: CacheView, base: Tensor) -> Tensor:
        """(R, H, N) bool: the slots that ``share`` of the budget keeps by the base's scores."""
        part = tuple(floor(as_written(self.share) * budget) for budget in view.budgets)
        protect = Protect(self.sinks, self.recent)
        ranked = priorities(base, view, protect.sink_mask(view), protect.recent_mask(view))
        return keep_best(ranked, replace(view, budgets=part))

    def _added(self, view: CacheView) -> Tensor:
        """(R, H, N): mean over the query group of the L1 norm of W_O v."""
        assert view.output_heads is not None
        matrices = view.output_heads()  # (H, G, D, E)
        groups = range(matrices.shape[1])
        norms = []
        for rows in tiles(view.values):
            values = view.values[rows].float()
            norms.append(torch.stack([(values @ matrices[:, g]).abs().sum(-1) for g in groups]).mean(0))
        return torch.cat(norms)
