"""CAOTE and FastCAOTE: weigh a base score by how much the eviction changes the attention output.

Goel et al. 2025, Eq. 13-21; policies.md, 3.16. With a base score h that sums to 1, removing slot j alone and
renormalising moves the output X = sum h v by exactly h_j / (1 - h_j) * |X - v_j|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from policies.scorer import tiles
from policies.view import CacheView

NEVER_EVICT_ABOVE = 1 - 1e-6  # a slot with all the mass: the effect of its removal is undefined, so it stays


class Correction(Protocol):
    """A value correction: a pure function from base scores to corrected ones."""

    def correct(self, scores: Tensor, view: CacheView) -> Tensor:
        """(R, H, N) non-negative base scores to (R, H, N) corrected scores, larger = keep."""
        ...


def evenly(view: CacheView) -> Tensor:
    """The same share for every filled slot of a head, (R, H, N) fp32."""
    if view.is_full:
        slots = view.positions.shape[-1]
        return view.values.new_full((), 1 / slots, dtype=torch.float32).expand(view.positions.shape)
    return view.filled.float() / view.filled.sum(-1, keepdim=True).clamp(min=1)


def normalised_mass(scores: Tensor, view: CacheView) -> Tensor:
    """h: scores as shares of a head's total, uniform where the total is 0. (R, H, N) fp32."""
    mass = scores.float() if view.is_full else scores.float().masked_fill(~view.filled, 0.0)
    total = mass.sum(-1, keepdim=True)
    shares = mass / total.clamp(min=torch.finfo(torch.float32).tiny)
    return torch.where(total <= 0, evenly(view), shares)  # NaN stays NaN


def distance_to_output(weights: Tensor, view: CacheView) -> Tensor:
    """|X - v| per slot, (R, H, N) fp32, where X is the mean of the values under ``weights`` (R, H, N), which sum to 1.

    CAOTE only uses differences of values, so any origin will do: here it is the newest slot's value, so that equal
    values have distances of exactly 0. The distance is computed directly, not as |v|^2 - 2 v.X + |X|^2, which loses
    half of the digits where values are nearly equal, and there digits decide the ranking.
    """
    place = view.positions.argmax(-1)[..., None, None].expand(-1, -1, 1, view.values.shape[-1])
    newest = view.values.gather(2, place).float()
    distance = torch.empty_like(weights)
    parts = tiles(view.values)
    buffer = newest.new_empty(parts[0].stop, *view.values.shape[1:])  # one for all tiles: large tensors are slow to get
    bits = None if view.is_full else view.filled.int().neg_().unsqueeze(-1)  # of a slot: all, or none where it is empty
    for rows in parts:
        values = torch.sub(view.values[rows], newest[rows], out=buffer[: rows.stop - rows.start])
        if bits is not None:
            values.view(torch.int32).bitwise_and_(bits[rows])  # a quarter of masked_fill_'s time on a processor
        output = weights[rows].unsqueeze(-2) @ values
        torch.linalg.vector_norm(values.sub_(output), dim=-1, out=distance[rows])
    return distance


def output_change(mass: Tensor, distance: Tensor) -> Tensor:
    """h / (1 - h) * |X - v| per slot, (R, H, N) fp32."""
    change = mass / (1 - mass).clamp(min=1 - NEVER_EVICT_ABOVE) * distance
    return change.masked_fill_(mass > NEVER_EVICT_ABOVE, torch.inf)


@dataclass(frozen=True)
class CAOTE:
    """X = the base scores' own weighted mean of values (Eq. 21), all slots included (A-11)."""

    layers_as_rows: ClassVar[bool] = True

    def correct(self, scores: Tensor, view: CacheView) -> Tensor:
        """(R, H, N)."""
        mass = normalised_mass(scores, view)
        return output_change(mass, distance_to_output(mass, view))


@dataclass(frozen=True)
class FastCAOTE:
    """X = the plain mean of the values."""

    layers_as_rows: ClassVar[bool] = True

    def correct(self, scores: Tensor, view: CacheView) -> Tensor:
        """(R, H, N)."""
        mass = normalised_mass(scores, view)
        return output_change(mass, distance_to_output(evenly(view), view))
