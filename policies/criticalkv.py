"""CriticalKV: half of the budget by attention, the rest by attention and what a value adds to the output (Feng et al.
2025, arXiv 2502.03805; policies.md, 3.24)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import floor
from typing import Any

import torch
from torch import Tensor

from policies.policy import Protect
from policies.scorer import OverScorer, SlotState, tiles
from policies.selection import as_written, keep_best, priorities
from policies.snapkv import SnapKV
from policies.view import CacheView, PolicyError

ADDED = "added"  # the state's name


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
    def reads_output(self) -> bool:
        """Whatever the base reads."""
        return True

    @property
    def nonnegative(self) -> bool:
        """Scores are no mass any more: those of the first stage stand above all others."""
        return False

    @property
    def state(self) -> Mapping[str, SlotState]:
        """The base's, and what each slot's value adds."""
        return {**self.base.state, ADDED: SlotState()}

    def update(self, view: CacheView) -> Mapping[str, Tensor]:
        """The base's; what a value adds is computed once, when it arrives: values do not change."""
        added = view.state[ADDED].clone()
        added[:, :, added.shape[2] - view.arriving.shape[2] :] = self._added(view)
        own = self.base.update(view) if self.base.state or self.carried else {}
        return {**own, ADDED: added}

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N)."""
        base: Tensor = self.base.score(view)
        second = (self._mean_mass(view, base) + self.epsilon) * view.state[ADDED]
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
        """(R, H, m): of the chunk's values v, the mean over the query group of the L1 norm of W_O v."""
        assert view.output_heads is not None
        arrived = view.values[:, :, view.values.shape[2] - view.arriving.shape[2] :]
        found = torch.empty_like(arrived[..., 0], dtype=torch.float32)
        for layer, rows in view.by_layer():
            matrices, own = view.output_heads(layer), arrived[rows]  # (H, G, D, E)
            norms = [self._mean_norms(own[tile].float(), matrices) for tile in tiles(own)]
            found[rows] = torch.cat(norms)
        return found

    def _mean_norms(self, values: Tensor, matrices: Tensor) -> Tensor:
        """(r, H, m), of values (r, H, m, D)."""
        return torch.stack([(values @ matrices[:, g]).abs().sum(-1) for g in range(matrices.shape[1])]).mean(0)
