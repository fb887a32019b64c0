"""DuoAttention: some heads keep everything, the others sinks and recent tokens (Xiao et al. 2024, arXiv 2410.10819;
policies.md, 3.26)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from policies.headkv import Importance, ProfiledHeads
from policies.view import CacheView


@lru_cache(maxsize=64)
def head_ranks(profile: Importance, kv_heads: int) -> tuple[tuple[int, ...], ...]:
    """(L, H): place of every KV head of the model, 0 = retrieves most; the mean of its query heads, ties in order."""
    group = len(profile[0]) // kv_heads
    means = [sum(row[start : start + group]) / group for row in profile for start in range(0, len(row), group)]
    order = sorted(range(len(means)), key=lambda head: (-means[head], head))
    place = {head: rank for rank, head in enumerate(order)}
    return tuple(tuple(place[layer * kv_heads + head] for head in range(kv_heads)) for layer in range(len(profile)))


@dataclass(frozen=True)
class DuoAttention(ProfiledHeads):
    """Retrieval heads keep the whole prompt, streaming heads what is protected: sinks and recent tokens.

    As many heads retrieve as the average budget pays for, those first that the profile says retrieve most. What is left
    over makes the next head's recent window longer, so that all heads together hold the budget exactly.

    Deviations: the paper learns a gate for each head on synthetic passkeys and states the share of retrieval heads;
    here a profile of HeadKV ranks the heads, and the budget decides how many retrieve. Decode evicts nothing.
    """

    profile: str | Importance = ()
    transfer: bool = False  # whether the profile may stem from another model of the same layout
    name: ClassVar[str] = "duo_attention"
    exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.freeze_profile()

    def targets(self, view: CacheView, scores: Tensor, protected: Tensor) -> Tensor:
        """(R, H, 1)."""
        heads = scores.shape[1]
        profile = self.checked_profile(view.layers, heads)
        ranks = torch.tensor(head_ranks(profile, heads)[view.layer], device=scores.device).view(1, -1, 1)
        whole = view.per_row(view.counts)
        streaming = protected.sum(-1, keepdim=True).minimum(view.per_row(view.budgets))
        more = whole - streaming  # slots that a head must get to keep everything
        extra = (view.per_row(view.budgets) - streaming) * (view.layers * heads)
        return streaming + (extra - ranks * more).clamp(min=0).minimum(more)
