"""DropKV: how much attention outputs would change without a slot, over a window of queries (Zhang et al. 2026;
policies.md, 3.25)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.scorer import Stateless, tiles
from policies.snapkv import SnapKV, pool_neighbours
from policies.view import CacheView, PolicyError

PROBABILITIES = 2**22  # numbers: those of as many queries as this allows are in memory together


@dataclass(frozen=True)
class DropKV(Stateless):
    """Score = Σ over the last ``window`` queries i of (p / (1 - p + ``epsilon``))² · |v_j - o_i|², p = p_ij.

    Without slot j the output o_i of query i moves by p / (1 - p) · (o_i - v_j): CAOTE's residual, squared and summed
    over a window instead of taken for one averaged row. Mean over the query group, then average pooling over ``kernel``
    neighbours. The window itself stays through ``protect.recent``. Its queries are carried over chunks.

    |v - o|² is computed as |v|² - 2 v·o + |o|² in fp64: one matrix product for many queries, and in fp32 that sum loses
    the digits of a slot that has nearly all of a query's attention.

    Source: the authors' kvpress#284 and #285. Deviation: probabilities are not rounded to the model's dtype.
    """

    window: int = 32  # query rows
    kernel: int = 7  # slots
    epsilon: float = 1e-6
    nonnegative: ClassVar[bool] = True
    layers_as_rows: ClassVar[bool] = True
    same_state_for_all_budgets: ClassVar[bool] = True
    carried: ClassVar[tuple[str, ...]] = ("queries", "asked")

    def __post_init__(self) -> None:
        if self.window < 1:
            raise PolicyError(f"dropkv needs an observation window of at least 1 row, not {self.window}.")
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise PolicyError(f"dropkv needs an odd pooling kernel (1, 3, 5, 7, …), not {self.kernel}.")
        if not self.epsilon > 0:
            raise PolicyError(f"dropkv epsilon={self.epsilon:g} must be above 0: a query may see a single slot.")

    def update(self, view: CacheView) -> Mapping[str, Tensor]:
        """The window's queries (R, H·G, w, D) and the positions of their tokens (R, w), as SnapKV carries them."""
        return SnapKV(self.window, window_source="carry").update(view)

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N): 0 or more."""
        queries, asked = view.state["queries"], view.state["asked"]
        total = torch.zeros_like(view.positions, dtype=torch.float32)
        rows, heads, slots, _ = view.values.shape
        at_once = min(self.window, max(1, PROBABILITIES // (rows * queries.shape[1] * slots)))
        for start in range(0, self.window, at_once):
            some = slice(start, start + at_once)
            given = view.attention.probabilities_from(queries[:, :, some], asked[:, some]).flatten(2, 3)
            for tile in tiles(view.values):  # copies in fp32 and fp64 of all values would be larger than the cache
                total[tile] += self._moved(given[tile], view.values[tile], view.filled[tile])
        mean = total / (queries.shape[1] // heads)
        return pool_neighbours(mean, view.positions, self.kernel, "avg", no_slot_is_empty=view.is_full)

    def _moved(self, given: Tensor, values: Tensor, filled: Tensor) -> Tensor:
        """(r, H, N): the sum over the probabilities ``given`` (r, H, G·w, N) of some queries."""
        present = values.float().masked_fill(~filled.unsqueeze(-1), 0.0)
        precise, outputs = present.double(), (given @ present).double()
        squares = precise.square().sum(-1).unsqueeze(2)
        away = squares - 2 * outputs @ precise.mT + outputs.square().sum(-1, keepdim=True)  # (r, H, G·w, N)
        return ((given / (1 - given + self.epsilon)).square() * away.clamp_(min=0).float()).sum(2)
