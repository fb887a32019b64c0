"""KeyDiff: keep the keys that differ most from the others (Park et al. 2025, Eq. 8; policies.md, 3.15)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from policies.scorer import Stateless, tiles
from policies.view import CacheView, PolicyError

Anchor = Literal["mean_normed", "mean", "median", "pairwise"]
Metric = Literal["cosine", "dot", "euclid"]

_SMALLEST_NORM = 1e-8
_KEYS_PER_TILE = 128  # rows of the pairwise matrix that exist at one time


@dataclass(frozen=True)
class KeyDiff(Stateless):
    """Score = dissimilarity of a key from an anchor over all keys, the new block included.

    ``anchor``: ``mean_normed`` is Eq. 8, the mean of the normalised keys; ``mean`` that of the raw keys (Figure 3 and
    the text of section 3.2, A-07); ``median`` is per coordinate of the normalised keys, of an even count the mean of
    the middle two; ``pairwise`` compares with every key instead, itself included. ``metric``: minus the cosine,
    minus the dot product, or the Euclidean distance between the raw key and the anchor (A-08). It reads no
    attention, so any attention kernel will do.
    """

    anchor: Anchor = "mean_normed"
    metric: Metric = "cosine"
    layers_as_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.anchor not in get_args(Anchor):
            raise PolicyError(f"keydiff anchor='{self.anchor}' is not one of {', '.join(get_args(Anchor))}.")
        if self.metric not in get_args(Metric):
            raise PolicyError(f"keydiff metric='{self.metric}' is not one of {', '.join(get_args(Metric))}.")
        if self.anchor == "pairwise" and self.metric != "cosine":
            raise PolicyError(
                f"keydiff anchor=pairwise is a sum of cosines, so metric={self.metric} has no meaning: "
                "set policy.scorer.metric=cosine."
            )

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N); cosines lie in [-1, 1], pairwise sums in [-n, n]."""
        # Keys are read three times: in tiles, so that they stay in a processor's cache meanwhile, fp32 ones too.
        parts = [self._score(view.keys[rows].float(), view.filled[rows]) for rows in tiles(view.keys)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _score(self, keys: Tensor, filled: Tensor) -> Tensor:
        """(r, H, N), of keys (r, H, N, D) in fp32."""
        norms: Tensor = torch.linalg.vector_norm(keys, dim=-1).clamp(min=_SMALLEST_NORM)
        if self.anchor == "pairwise":
            return -_pairwise_sums(keys / norms.unsqueeze(-1) * filled.unsqueeze(-1))
        anchor = self._anchor(keys, norms, filled)
        if self.metric == "cosine":  # needs the anchor's direction only
            towards = F.normalize(anchor, dim=-1, eps=_SMALLEST_NORM)
            return -(towards @ keys.transpose(-1, -2)).squeeze(-2) / norms  # one row: twice as fast as one column
        if self.anchor != "median":
            anchor = anchor / filled.sum(-1)[..., None, None].clamp(min=1)
        if self.metric == "dot":
            return -(anchor @ keys.transpose(-1, -2)).squeeze(-2)
        distance: Tensor = torch.linalg.vector_norm(keys - anchor, dim=-1)
        return distance

    def _anchor(self, keys: Tensor, norms: Tensor, filled: Tensor) -> Tensor:
        """(R, H, 1, D): the median, or the sum that is n times the mean."""
        if self.anchor == "median":
            return _median(keys / norms.unsqueeze(-1), filled)
        weights = 1 / norms if self.anchor == "mean_normed" else torch.ones_like(norms)
        total: Tensor = weights.masked_fill(~filled, 0.0).unsqueeze(-2) @ keys
        return total


def _median(vectors: Tensor, filled: Tensor) -> Tensor:
    """Per coordinate over the filled slots: (R, H, N, D) and (R, H, N) bool to (R, H, 1, D)."""
    ascending = vectors.masked_fill(~filled.unsqueeze(-1), torch.inf).sort(dim=-2).values
    count = filled.sum(-1)[..., None, None].clamp(min=1)
    low, high = (
        ascending.gather(-2, middle.expand(-1, -1, -1, vectors.shape[-1])) for middle in ((count - 1) // 2, count // 2)
    )
    return (low + high) / 2


def _pairwise_sums(directions: Tensor) -> Tensor:
    """(R, H, N): sum over j of cos(k_i, k_j), from the cosines themselves.

    In exact arithmetic the sum of the directions gives the same number (and so the ranking of ``mean_normed``) in O(n);
    the paper's table has different numbers for the two, and only the matrix shows whether rounding explains that.
    """
    transposed = directions.transpose(-1, -2)
    return torch.cat([(tile @ transposed).sum(-1) for tile in torch.split(directions, _KEYS_PER_TILE, -2)], -1)
