"""R-KV: attention minus redundancy, for long generations (Cai et al. 2025, arXiv 2505.24133; policies.md, 3.20)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.scorer import Stateless, tiles
from policies.snapkv import SnapKV, pool_neighbours
from policies.view import CacheView, PolicyError

_SMALLEST_NORM = 1e-8
_NEWEST = 32  # keys among which nearly all find what they leave out
_PARTS = 8  # of the heads, by how many keys search further
_KEYS_PER_TILE = 128  # rows of the matrix of cosines that exist at one time


@dataclass(frozen=True)
class RKV(Stateless):
    """Score = ``lam`` x importance - (1 - ``lam``) x redundancy, the paper's Z = λ I - (1 - λ) R.

    Importance: what the last ``window`` queries of the text, carried over chunks, give to the slots before them, as
    shares of their sum for each query head; the largest share of the query group, max-pooled over ``kernel``
    neighbours. Redundancy: the softmax over slots of a key's mean cosine to the other keys, where each key leaves out
    its ``beta`` most recent keys with a cosine above ``threshold``: of keys that are alike the newest stay. The window
    itself stays through ``protect.recent``.

    Deviations: public code takes the largest logit of the group before the softmax; a policy is shown probabilities.
    Public code also zeroes the cosine to the oldest key where no key is alike, a side effect that we leave out, and
    compresses every 128 generated tokens, where our budget holds at every step.
    """

    window: int = 8  # query rows
    kernel: int = 7  # slots
    lam: float = 0.1
    threshold: float = 0.5  # cosine
    beta: int = 1  # keys
    layers_as_rows: ClassVar[bool] = True
    same_state_for_all_budgets: ClassVar[bool] = True
    carried: ClassVar[tuple[str, ...]] = ("queries", "asked")

    def __post_init__(self) -> None:
        if self.window < 1:
            raise PolicyError(f"rkv needs an observation window of at least 1 row, not {self.window}.")
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise PolicyError(f"rkv needs an odd pooling kernel (1, 3, 5, 7, …), not {self.kernel}.")
        if not 0 <= self.lam <= 1:
            raise PolicyError(f"rkv lam={self.lam:g} must lie between 0 (redundancy only) and 1 (attention only).")
        if not 0 <= self.threshold <= 1:
            raise PolicyError(f"rkv threshold={self.threshold:g} is a cosine: use a number from 0 to 1.")
        if self.beta < 0:
            raise PolicyError(f"rkv beta={self.beta} must be 0 or more keys.")

    def update(self, view: CacheView) -> Mapping[str, Tensor]:
        """The window's queries (R, H·G, w, D) and the positions of their tokens (R, w), as SnapKV carries them."""
        return SnapKV(self.window, window_source="carry").update(view)

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N), from lam - 1 to lam."""
        return self.lam * self._importance(view) - (1 - self.lam) * self._redundancy(view)

    def _importance(self, view: CacheView) -> Tensor:
        """(R, H, N): 0 in the window."""
        by_head = view.attention.received_from(view.state["queries"], view.state["asked"])
        before = view.positions.masked_fill(view.positions >= view.seen - self.window, -1)
        given = by_head.masked_fill((before < 0).unsqueeze(2), 0.0)
        shares = given / given.sum(-1, keepdim=True).clamp(min=torch.finfo(given.dtype).tiny)
        return pool_neighbours(shares.amax(2), before, self.kernel, "max")

    def _redundancy(self, view: CacheView) -> Tensor:
        """(R, H, N): sums to 1 over the filled slots of a head."""
        means = [self._means(view.keys[rows].float(), view.positions[rows]) for rows in tiles(view.keys)]
        return torch.cat(means).masked_fill(~view.filled, -torch.inf).softmax(-1)

    def _means(self, keys: Tensor, positions: Tensor) -> Tensor:
        """(r, H, N): mean over keys (r, H, N, D) of their cosine to each one, after what they leave out."""
        newest_first = positions.argsort(-1, descending=True)
        filled = (positions >= 0).gather(-1, newest_first).flatten(0, 1)
        units = keys.gather(2, newest_first.unsqueeze(-1).expand_as(keys)).flatten(0, 1)
        norms: Tensor = torch.linalg.vector_norm(units, dim=-1, keepdim=True).clamp(min=_SMALLEST_NORM)
        units = (units / norms).masked_fill(~filled.unsqueeze(-1), 0.0)
        to_others = (units @ units.sum(-2).unsqueeze(-1)).squeeze(-1) - units.square().sum(-1)
        left_out = self._left_out(units, filled) if self.beta else 0.0
        means = (to_others - left_out) / filled.sum(-1, keepdim=True).clamp(min=1)
        return torch.empty_like(positions, dtype=means.dtype).scatter_(-1, newest_first, means.view_as(positions))

    def _left_out(self, units: Tensor, filled: Tensor) -> Tensor:
        """(b, N): the cosines to each key that others leave out. ``units``: (b, N, D) of b heads, newest keys first.

        How far a search must go is known on the device alone, where asking costs a GPU more than it saves, and a
        recorded pass (CUDA graphs) cannot ask.
        """
        if units.device.type != "cpu" or units.shape[1] <= _KEYS_PER_TILE:
            return self._left_out_of_all(units)
        return self._left_out_by_search(units, filled)

    def _left_out_of_all(self, units: Tensor) -> Tensor:
        """As `_left_out`, every key compared with all."""
        sums = units.new_zeros(units.shape[:2])
        for start in range(0, units.shape[1], _KEYS_PER_TILE):
            cosines = units[:, start : start + _KEYS_PER_TILE] @ units.transpose(-1, -2)
            cosines.diagonal(start, -2, -1).zero_()
            found, at, _ = self._newest_alike(cosines)
            sums += torch.zeros_like(cosines).scatter_add_(-1, at, found).sum(-2)
        return sums

    def _left_out_by_search(self, units: Tensor, filled: Tensor) -> Tensor:
        """As `_left_out`: nearly all keys find those that they leave out among the newest few.

        So only the others are compared with all keys, heads with about as many of these together.
        """
        sums = units.new_zeros(units.shape[:2])
        cosines = units @ units[:, :_NEWEST].transpose(-1, -2)
        cosines.diagonal(0, -2, -1).zero_()
        found, at, complete = self._newest_alike(cosines)
        sums.scatter_add_(-1, at.flatten(1), found.masked_fill(~complete, 0.0).flatten(1))
        searching = filled & ~complete.squeeze(-1)
        counts = searching.sum(-1)
        for heads in torch.tensor_split(counts.argsort(descending=True), _PARTS):
            own, most = units[heads], int(counts[heads].max()) if len(heads) else 0
            if not most:
                break
            is_searching, keys = searching[heads].to(units.dtype).topk(most, dim=-1)  # others fill up
            parts = (torch.split(each, _KEYS_PER_TILE, -1) for each in (is_searching, keys))
            for there, rows in zip(*parts, strict=True):
                cosines = own.gather(1, rows.unsqueeze(-1).expand(-1, -1, own.shape[-1])) @ own.transpose(-1, -2)
                cosines.scatter_(-1, rows.unsqueeze(-1), 0.0)
                found, at, _ = self._newest_alike(cosines)
                sums[heads] = sums[heads].scatter_add(-1, at.flatten(1), (found * there.unsqueeze(-1)).flatten(1))
        return sums

    def _newest_alike(self, cosines: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of cosines (b, m, n) to keys, newest first, those that each of m rows leaves out.

        Returns these cosines (b, m, beta), 0 where no key is alike any more, the places of their keys, and whether a
        row has found all (b, m, 1).
        """
        order = torch.arange(cosines.shape[-1], 0, -1, device=cosines.device, dtype=cosines.dtype)
        alike = torch.where(cosines > self.threshold, order, 0.0)
        found, places = [], []
        for _ in range(min(self.beta, len(order))):
            newest = alike.amax(-1, keepdim=True)
            at = (len(order) - newest).clamp(max=len(order) - 1).long()
            found.append(cosines.gather(-1, at).masked_fill(newest == 0, 0.0))
            places.append(at)
            alike.scatter_(-1, at, 0.0)
        return torch.cat(found, -1), torch.cat(places, -1), newest > 0
