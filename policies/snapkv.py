"""SnapKV: attention of an observation window, smoothed over neighbouring tokens (Li et al. 2024; policies.md, 3.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from policies.scorer import Stateless
from policies.view import CacheView, PolicyError

Pooling = Literal["avg", "avg_nopad", "max", "none"]
PoolOver = Literal["all", "prefix"]
PoolOrder = Literal["after_mean", "before_mean"]
WindowSource = Literal["chunk", "carry"]


def pool_neighbours(
    scores: Tensor, positions: Tensor, kernel: int, pool: Pooling, no_slot_is_empty: bool = False
) -> Tensor:
    """Pool along slots sorted by position (neighbours in the cache, not necessarily in the text).

    ``scores``, ``positions``: (R, H, N), empty slots at position -1. ``avg`` pads with zeros and always divides by
    ``kernel`` (edges are damped), ``avg_nopad`` divides by the neighbours that exist, ``max`` pads with -inf.
    """
    if pool == "none" or kernel == 1:
        return scores.masked_fill(positions < 0, 0.0)
    order = positions.argsort(dim=-1)  # empty slots come first, so they pad the left edge
    line, half = scores.gather(-1, order), kernel // 2
    if not no_slot_is_empty:
        filled = positions.gather(-1, order) >= 0
        line = line.masked_fill(~filled, -torch.inf if pool == "max" else 0.0)
    smooth = F.max_pool1d(line, kernel, stride=1, padding=half) if pool == "max" else _means(line, kernel)
    if pool == "avg_nopad":
        there = torch.ones_like(line) if no_slot_is_empty else filled.to(line.dtype)
        smooth = smooth / _means(there, kernel).clamp(min=0.5 / kernel)
    if not no_slot_is_empty:
        smooth = smooth.masked_fill(~filled, 0.0)
    return torch.empty_like(smooth).scatter_(-1, order, smooth)


def _means(line: Tensor, kernel: int) -> Tensor:
    """What `avg_pool1d` gives, padded with zeros, which on a processor takes two to four times as long."""
    return F.pad(line, (kernel // 2, kernel // 2)).unfold(-1, kernel, 1).mean(-1)


@dataclass(frozen=True)
class SnapKV(Stateless):
    """Score = pooled column sum over the last ``window`` rows of the chunk; fewer in a short block, 1 in decode (A-06).

    KeyDiff and CAOTE state average pooling with kernel 7 and window 32; the LongBench configurations of the public
    code use max pooling. The window itself stays through ``protect.recent``. One-shot originals pool over the slots
    before the window only (``pool_over="prefix"``); the window then scores 0, which is also CAOTE's reading of A-11
    that leaves it out.

    ``window_source="carry"`` keeps the last ``window`` queries of the text, whatever the chunks, and recomputes their
    attention over the slots that are present: w·H·G·D numbers per layer, which the memory statistics count as state.
    ``pool_order="before_mean"`` smooths each query head by itself and averages then, as kvpress does; with average
    pooling that is the same.
    """

    window: int = 32  # query rows
    kernel: int = 7  # slots
    pool: Pooling = "avg"
    pool_over: PoolOver = "all"
    pool_order: PoolOrder = "after_mean"
    window_source: WindowSource = "chunk"
    nonnegative: ClassVar[bool] = True
    layers_as_rows: ClassVar[bool] = True
    same_state_for_all_budgets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.window < 1:
            raise PolicyError(f"snapkv needs an observation window of at least 1 row, not {self.window}.")
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise PolicyError(f"snapkv needs an odd pooling kernel (1, 3, 5, 7, …), not {self.kernel}.")
        if self.pool not in ("avg", "avg_nopad", "max", "none"):
            raise PolicyError(f"snapkv pool='{self.pool}' is not one of avg, avg_nopad, max, none.")
        if self.pool_over not in get_args(PoolOver):
            raise PolicyError(f"snapkv pool_over='{self.pool_over}' is not one of all, prefix.")
        if self.pool_order not in get_args(PoolOrder):
            raise PolicyError(f"snapkv pool_order='{self.pool_order}' is not one of after_mean, before_mean.")
        if self.window_source not in get_args(WindowSource):
            raise PolicyError(f"snapkv window_source='{self.window_source}' is not one of chunk, carry.")

    @property
    def carried(self) -> tuple[str, ...]:  # type: ignore[override]
        """The ring of the window's queries (R, H·G, w, D) and the positions of their tokens (R, w), newest last."""
        return ("queries", "asked") if self.window_source == "carry" else ()

    def update(self, view: CacheView) -> Mapping[str, Tensor]:
        """The newest ``window`` queries of ring and chunk together, right-aligned."""
        fresh = view.attention.queries("all")
        rows, heads, chunk, width = fresh.shape
        index = torch.arange(chunk, device=fresh.device) - chunk
        present = index >= -view.attention.rows("all").flatten(1)
        places = torch.where(present, view.seen.flatten(1) + index, -1)
        ring = view.state.get("queries", fresh.new_zeros(rows, heads, self.window, width))
        asked = view.state.get("asked", places.new_full((rows, self.window), -1))
        queries, places = torch.cat([ring, fresh], 2), torch.cat([asked, places], 1)
        newest = places.argsort(dim=-1, stable=True)[:, -self.window :]  # places without a query come first
        wide = newest[:, None, :, None].expand(-1, heads, -1, width)
        return {"queries": queries.gather(2, wide), "asked": places.gather(1, newest)}

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N)."""
        pooled = view.positions
        if self.pool_over == "prefix":
            pooled = pooled.masked_fill(pooled >= view.seen - self.window, -1)
        by_head = self._window_sums(view)  # (R, H, G, N)
        if self.pool_order == "after_mean":
            full = view.is_full and self.pool_over == "all"
            return pool_neighbours(by_head.mean(2), pooled, self.kernel, self.pool, no_slot_is_empty=full)
        each = pooled.unsqueeze(2).expand(by_head.shape)
        return (
            pool_neighbours(by_head.flatten(1, 2), each.flatten(1, 2), self.kernel, self.pool).view_as(by_head).mean(2)
        )

    def query_rows(self, view: CacheView) -> Tensor:
        """(R, 1, 1): over how many queries the scores are sums."""
        if self.window_source == "carry":
            return (view.state["asked"] >= 0).sum(-1).view(-1, 1, 1)
        return view.attention.rows(self.window)

    def _window_sums(self, view: CacheView) -> Tensor:
        if self.window_source == "carry":
            return view.attention.received_from(view.state["queries"], view.state["asked"])
        if self.pool_order == "after_mean":
            return view.attention.received(self.window).unsqueeze(2)
        return view.attention.received_by_head(self.window)
