"""CAOTE and FastCAOTE: weigh a base score by what the eviction does to the attention output.

Goel et al. 2025, Eq. 13-21; policies.md, 3.16. With a base score h that sums to 1, removing slot j alone and
renormalising moves the output X = sum h v by exactly h_j / (1 - h_j) * |X - v_j|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from policies.view import CacheView

NEVER_EVICT_ABOVE = 1 - 1e-6  # a slot with all the mass: its removal is undefined, not free


class Correction(Protocol):
    """A value correction: a pure function from base scores to corrected ones."""

    def correct(self, scores: Tensor, view: CacheView) -> Tensor:
        """(R, H, N) non-negative base scores to (R, H, N) corrected scores, larger = keep."""
        ...


def normalised_mass(scores: Tensor, filled: Tensor) -> Tensor:
    """h: scores as shares of a head's total, uniform where the total is 0. (R, H, N) fp32."""
    mass = scores.float().masked_fill(~filled, 0.0)
    total = mass.sum(-1, keepdim=True)
    uniform = filled.float() / filled.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(total <= 0, uniform, mass / total.clamp(min=torch.finfo(torch.float32).tiny))  # NaN stays NaN


def centred_values(view: CacheView) -> Tensor:
    """Values seen from the newest slot's value, (R, H, N, D) fp32, 0 at empty slots.

    CAOTE only uses differences of values, so the origin is free; with this one equal values tie at exactly 0.
    """
    newest = view.positions.argmax(-1)[..., None, None].expand(-1, -1, 1, view.values.shape[-1])
    values = view.values.float()
    centred = values - values.gather(2, newest)
    return centred if view.is_full else centred.masked_fill(~view.filled.unsqueeze(-1), 0.0)


def output_change(mass: Tensor, values: Tensor, output: Tensor) -> Tensor:
    """h / (1 - h) * |X - v| per slot, (R, H, N) fp32; ``output`` is X, (R, H, 1, D).

    The distance is taken directly, not expanded into |v|^2 - 2 v.X + |X|^2: the expansion loses half of the digits
    where values are nearly equal, which is where the ranking is decided.
    """
    distance = torch.cdist(values, output, compute_mode="donot_use_mm_for_euclid_dist").squeeze(-1)
    change = mass / (1 - mass).clamp(min=1 - NEVER_EVICT_ABOVE) * distance
    return change.masked_fill(mass > NEVER_EVICT_ABOVE, torch.inf)


@dataclass(frozen=True)
class CAOTE:
    """X = the base scores' own weighted mean of values (Eq. 21), all slots included (A-11)."""

    layers_as_rows: ClassVar[bool] = True

    def correct(self, scores: Tensor, view: CacheView) -> Tensor:
        """(R, H, N)."""
        mass = normalised_mass(scores, view.filled)
        values = centred_values(view)
        return output_change(mass, values, mass.unsqueeze(-2) @ values)


@dataclass(frozen=True)
class FastCAOTE:
    """X = the plain mean of the values."""

    layers_as_rows: ClassVar[bool] = True

    def correct(self, scores: Tensor, view: CacheView) -> Tensor:
        """(R, H, N)."""
        mass = normalised_mass(scores, view.filled)
        values = centred_values(view)
        count = view.filled.sum(-1).clamp(min=1)[..., None, None]
        return output_change(mass, values, values.sum(-2, keepdim=True) / count)
