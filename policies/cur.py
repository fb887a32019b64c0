"""CUR: keys and values of high leverage (CurDKV; Sengupta et al. 2025, arXiv 2509.15038; policies.md, 3.21)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from policies.scorer import Stateless, tiles_of_copies
from policies.view import CacheView, PolicyError

Leverage = Literal["kv_product", "kv_avg", "key", "value"]

_TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class CUR(Stateless):
    """Score = share of the squared norms of its window that a key has, and a value, put together by ``leverage``.

    Windows are ``window`` neighbouring slots in the order of the text, the last one shorter; 0 = all slots of the head.
    ``kv_product`` multiplies the two shares, ``kv_avg`` is their mean, ``key`` and ``value`` are one of them. Sinks
    stay through ``protect.sinks``.

    Deviations: the paper projects keys and values to 20 random directions first, which keeps squared norms in
    expectation; like kvpress by default we take the norms themselves. A window without any norm scores 0.
    """

    leverage: Leverage = "kv_product"
    window: int = 16  # slots; 0: all
    layers_as_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.leverage not in get_args(Leverage):
            raise PolicyError(f"cur leverage='{self.leverage}' is not one of {', '.join(get_args(Leverage))}.")
        if self.window < 0:
            raise PolicyError(f"cur window={self.window} must be 1 or more slots, or 0 for all.")

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N): shares that sum to 1 over a head."""
        last = torch.iinfo(view.positions.dtype).max
        order = view.positions.masked_fill(~view.filled, last).argsort(-1)  # empty slots end the last window
        key, value = (self._shares(_squares(each, view.filled).gather(-1, order)) for each in (view.keys, view.values))
        put_together = {"kv_product": key * value, "kv_avg": (key + value) / 2, "key": key, "value": value}
        line = put_together[self.leverage]
        line = line / line.sum(-1, keepdim=True).clamp(min=_TINY)
        return torch.empty_like(line).scatter_(-1, order, line)

    def _shares(self, squares: Tensor) -> Tensor:
        """(R, H, N) in the order of the text to shares of their window."""
        slots = squares.shape[-1]
        window = self.window or max(1, slots)
        windows = F.pad(squares, (0, -slots % window)).view(*squares.shape[:-1], -1, window)
        return (windows / windows.sum(-1, keepdim=True).clamp(min=_TINY)).flatten(-2)[..., :slots]


def _squares(vectors: Tensor, filled: Tensor) -> Tensor:
    """(R, H, N) fp32: squared norms of (R, H, N, D), 0 at empty slots."""
    norms = [torch.linalg.vector_norm(vectors[rows].float(), dim=-1) for rows in tiles_of_copies(vectors)]
    return torch.cat(norms).square().masked_fill(~filled, 0.0)
