"""Expected Attention: what future queries will give, from their distribution so far (Devoto et al. 2025, arXiv
2510.00636; policies.md, 3.23)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import torch
from torch import Tensor

from policies.scorer import Stateless, tiles
from policies.view import CacheView, PolicyError, turned


@dataclass(frozen=True)
class ExpectedAttention(Stateless):
    """Score = expected attention of the next ``future`` tokens' queries × length of the value.

    Queries without their rotation are taken as normal, with the mean μ and covariance Σ of those read so far, the first
    ``sinks`` tokens left out. Rotated by the mean rotation R of the next positions they give a key k on average
    exp(k·Rμ / √D + kᵀ RΣRᵀ k / 2D), of which the softmax over slots is taken; then the mean over the query group.
    ``covariance`` and ``value_norm``: whether these two factors count. ``epsilon`` is added to the attention before it
    is multiplied by the length. The sinks stay through ``protect.sinks``.

    Mean and scatter are carried over chunks, (1 + D + D²) fp32 numbers for each query head. Source: kvpress
    (ExpectedAttentionPress), whose statistics are those of one pass over a whole prompt.
    """

    future: int = 512  # positions
    sinks: int = 4  # tokens
    covariance: bool = True
    value_norm: bool = True
    epsilon: float = 0.0
    reads_rotation: ClassVar[bool] = True
    layers_as_rows: ClassVar[bool] = True
    same_state_for_all_budgets: ClassVar[bool] = True
    carried: ClassVar[tuple[str, ...]] = ("count", "mean", "scatter")

    def __post_init__(self) -> None:
        if self.future < 1:
            raise PolicyError(f"expected_attention looks at least 1 position ahead, not future={self.future}.")
        if self.sinks < 0:
            raise PolicyError(f"expected_attention sinks={self.sinks} must be 0 or more tokens.")
        if self.epsilon < 0:
            raise PolicyError(f"expected_attention epsilon={self.epsilon:g} must be 0 or more.")

    @property
    def nonnegative(self) -> bool:  # type: ignore[override]
        """Without the values' lengths, scores are expected attention: a mass."""
        return not self.value_norm

    @property
    def foresees(self) -> int:
        """Positions beyond the text."""
        return self.future

    def update(self, view: CacheView) -> Mapping[str, Tensor]:
        """Count (R, 1, 1), mean (R, H·G, D) and scatter (R, H·G, D, D) of all queries so far, without rotation.

        Chunks are merged by their own means (Chan et al. 1979), so that nothing large is subtracted.
        """
        rotated = view.attention.queries("all")
        rows, _, width, size = rotated.shape
        places = view.seen.view(-1, 1) - width + torch.arange(width, device=rotated.device)  # (R, m)
        real = torch.arange(width, device=rotated.device) >= width - view.attention.rows("all").view(-1, 1)
        counted = (real & (places >= self.sinks)).view(rows, 1, width, 1).float()
        wide = rotated[:, :, :1].expand(-1, -1, max(width, size), -1)  # as large as queries and scatter
        each = [self._merged(view, some, rotated[some], places[some], counted[some]) for some in tiles(wide)]
        return {name: torch.cat([part[name] for part in each]) for name in self.carried}

    def _merged(
        self, view: CacheView, rows: slice, rotated: Tensor, places: Tensor, counted: Tensor
    ) -> dict[str, Tensor]:
        """What is carried of a tile of rows, with the chunk's queries (r, H·G, m, D) at ``places`` (r, m)."""
        assert view.rotation is not None
        queries = view.rotation.taken_off(rotated, places.unsqueeze(1).expand(-1, rotated.shape[1], -1))
        added = counted.sum(2)  # (r, 1, 1)
        own = (queries * counted).sum(2) / added.clamp(min=1)
        centred = (queries - own.unsqueeze(2)) * counted
        scatter = centred.transpose(-1, -2) @ centred
        if "count" not in view.state:
            return {"count": added, "mean": own, "scatter": scatter}
        count, mean = view.state["count"][rows], view.state["mean"][rows]
        total = (count + added).clamp(min=1)
        step = (own - mean) * (added > 0)
        between = step.unsqueeze(-1) * step.unsqueeze(-2) * (count * added / total).unsqueeze(-1)
        return {
            "count": count + added,
            "mean": mean + step * (added / total),
            "scatter": view.state["scatter"][rows] + scatter + between,
        }

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N): 0 or more; the first ``sinks`` tokens 0, which is what protection is for."""
        shown = view.filled & (view.positions >= self.sinks)
        parts = max(tiles(view.keys), tiles(view.state["scatter"]), key=len)  # whichever is larger
        return torch.cat([self._of(view, rows, shown[rows]) for rows in parts])

    def _of(self, view: CacheView, rows: slice, shown: Tensor) -> Tensor:
        """(r, H, N), of a tile of rows."""
        assert view.rotation is not None
        cos, sin = (each.unsqueeze(1) for each in view.rotation.mean(view.seen[rows].flatten(), self.future))
        ahead = turned(view.state["mean"][rows], cos, sin)  # (r, H·G, D)
        spread = view.state["scatter"][rows] / view.state["count"][rows].clamp(min=1).unsqueeze(-1)
        half_turned = turned(spread, cos.unsqueeze(1), sin.unsqueeze(1)).transpose(-1, -2)
        spread = turned(half_turned, cos.unsqueeze(1), sin.unsqueeze(1))
        keys, values = view.keys[rows].float(), view.values[rows].float()
        some, heads, _, size = keys.shape
        mean = ahead.view(some, heads, -1, size)
        logits = keys @ mean.transpose(-1, -2) / sqrt(size)  # (r, H, N, G)
        if self.covariance:
            each = spread.view(some, heads, -1, size, size)
            by_head = [((keys @ each[:, :, g]) * keys).sum(-1) for g in range(each.shape[2])]
            logits = logits + torch.stack(by_head, -1) / (2 * size)
        hidden = ~shown.unsqueeze(-1)
        expected = logits.masked_fill(hidden, -torch.inf).softmax(2).masked_fill(hidden, 0.0).mean(-1)
        if not self.value_norm:
            return expected
        return torch.where(shown, (expected + self.epsilon) * torch.linalg.vector_norm(values, dim=-1), 0.0)
