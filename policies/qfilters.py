"""Q-Filters: keys against the direction in which their head's queries lie (Godey et al. 2025, arXiv 2503.02812;
policies.md, 3.27)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from policies.scorer import Stateless, tiles_of_copies
from policies.view import CacheView, ModelShape, PolicyError

Filters = tuple[tuple[tuple[float, ...], ...], ...]  # (L, H, D)


@lru_cache(maxsize=8)
def directions(filters: Filters, device: torch.device) -> Tensor:
    """(L, H, D, 1) fp32."""
    return torch.tensor(filters, dtype=torch.float32, device=device).unsqueeze(-1)


@dataclass(frozen=True)
class QFilters(Stateless):
    """Score = projection of the key on its head's filter: on average over queries, its logit up to a factor.

    A filter is the mean, over the query heads of the group, of the first right singular vector of many queries, each
    pointing to where its queries lie on average. It is measured once for a model, on any text; nothing is attended.
    ``filters`` is the path of a file until `harness.config.head_profiles` has read it; policies read no files.
    """

    filters: str | Filters = ()
    transfer: bool = False  # whether the filters may stem from another model of the same layout
    layers_as_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.filters, str):
            object.__setattr__(self, "filters", tuple(tuple(map(tuple, layer)) for layer in self.filters))

    def reason_against_model(self, shape: ModelShape) -> str:
        """There is one filter for every KV head of its model."""
        if isinstance(self.filters, str):
            return ""
        layers, heads = len(self.filters), len(self.filters[0]) if self.filters else 0
        if (layers, heads) == (shape.layers, shape.kv_heads):
            return ""
        return (
            f"qfilters has filters for {layers} layers with {heads} KV heads each, but the model has {shape.layers} "
            f"layers with {shape.kv_heads}: make some for this model with 'python -m harness profile kind=q', and set "
            "policy.scorer.filters."
        )

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N). Raises `PolicyError` where the filters were not read or have another head dimension."""
        if isinstance(self.filters, str):
            raise PolicyError(
                f"The filters {self.filters} were not read: pass them through harness.config.head_profiles first."
            )
        filters, keys = directions(self.filters, view.keys.device), view.keys
        if filters.shape[2] != keys.shape[-1]:
            raise PolicyError(
                f"qfilters has filters of {filters.shape[2]} numbers, but this model's heads have {keys.shape[-1]}: "
                "make some for this model with 'python -m harness profile kind=q'."
            )
        own = filters.index_select(0, view.row_layers.flatten())
        return torch.cat([(keys[rows].float() @ own[rows]).squeeze(-1) for rows in tiles_of_copies(keys)])
