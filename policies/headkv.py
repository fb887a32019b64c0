"""HeadKV-R and HeadKV-R2: head budgets from a profile of the model (Fu et al. 2024; policies.md, 3.9)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import fsum
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from policies.selection import largest_remainder
from policies.view import CacheView, ModelShape, PolicyError

Rounding = Literal["largest_remainder", "public_code"]
Importance = tuple[tuple[float, ...], ...]  # (L, H·G): mean score of each query head, layer by layer


def shared_pool(base: int, beta: float) -> tuple[float, float]:
    """Slots that one head gives to the pool, and slots that it keeps.

    ``//`` is the float floor division of the released code: 96 // 1.005 = 95. A smaller beta pools more.
    """
    return base // beta, base - base // beta


@lru_cache(maxsize=1024)
def prefix_slots(
    profile: Importance, kv_heads: int, base: int, beta: float, temp: float, rounding: Rounding
) -> tuple[tuple[int, ...], ...]:
    """(L, H): slots of every KV head before its window, for an average of ``base``.

    A KV head gets the mean of its query heads' capacities. ``public_code`` rounds those first and so misses the
    total by a few slots; ``largest_remainder`` rounds once, over all heads of the model.
    """
    layers, query_heads = len(profile), len(profile[0])
    group = query_heads // kv_heads
    weights = [weight**temp for weight in _shares([score for row in profile for score in row])]
    pooled, own = shared_pool(base, beta)
    wanted = [share * pooled * layers * query_heads + own for share in _shares(weights)]
    capacities = [Fraction(round(slots) if rounding == "public_code" else slots) for slots in wanted]
    means = [sum(capacities[start : start + group], Fraction(0)) / group for start in range(0, len(wanted), group)]
    total = round(sum(means, Fraction(0))) if rounding == "public_code" else layers * kv_heads * base
    slots = largest_remainder(means, total)
    return tuple(slots[layer * kv_heads : (layer + 1) * kv_heads] for layer in range(layers))


def _shares(numbers: list[float]) -> list[float]:
    total = fsum(numbers)
    return [number / total for number in numbers]


class ProfiledHeads:
    """Base of allocators that know their model's heads, by their field ``profile``.

    It is the path of a profile file until `harness.config.head_profiles` has read it; policies read no files.
    """

    name: ClassVar[str]
    profile: str | Importance

    def freeze_profile(self) -> None:
        """Lists of a configuration as tuples."""
        if not isinstance(self.profile, str):
            object.__setattr__(self, "profile", tuple(tuple(row) for row in self.profile))

    def reason_against_model(self, shape: ModelShape) -> str:
        """A profile has one number for every query head of its model."""
        if isinstance(self.profile, str) or self._layout == (shape.layers, shape.query_heads):
            return ""
        return self._other_layout(f"{shape.layers} layers with {shape.query_heads} query heads each")

    def checked_profile(self, layers: int, kv_heads: int) -> Importance:
        """The importance table; `PolicyError` where it is that of a model with another layout."""
        if isinstance(self.profile, str):
            raise PolicyError(
                f"The head profile {self.profile} was not read: pass it through harness.config.head_profiles first."
            )
        measured, heads = self._layout
        if measured != layers or heads == 0 or heads % kv_heads:
            raise PolicyError(self._other_layout(f"{layers} layers with {kv_heads} KV heads each"))
        return self.profile

    @property
    def _layout(self) -> tuple[int, int]:
        """Layers and query heads of the profile."""
        return len(self.profile), len(self.profile[0]) if self.profile else 0

    def _other_layout(self, has: str) -> str:
        layers, heads = self._layout
        return (
            f"{self.name} has a profile of {layers} layers with {heads} query heads each, but the model has {has}: "
            "make one for this model with 'python -m harness profile', and set policy.allocator.profile."
        )


@dataclass(frozen=True)
class HeadKV(ProfiledHeads):
    """Fixed head budgets: an equal part, and a pool shared by how well each head retrieves.

    Capacities beyond the prompt are lost, not given to other heads.
    """

    profile: str | Importance = ()
    beta: float = 1.5  # at least 1; choose it before looking at test scores, and report it
    temp: float = 1.0  # exponent of the importance
    window: int = 8  # recent tokens inside the budget; the same number as protect.recent
    rounding: Rounding = "largest_remainder"
    transfer: bool = False  # whether the profile may stem from another model of the same layout
    name: ClassVar[str] = "headkv"

    def __post_init__(self) -> None:
        self.freeze_profile()
        if self.beta < 1:
            raise PolicyError(f"headkv beta={self.beta:g} would share more than there is: use 1 or more.")
        if self.temp <= 0:
            raise PolicyError(f"headkv temp={self.temp:g} must be above 0.")
        if self.window < 0:
            raise PolicyError(f"headkv window={self.window} must be 0 or more tokens.")
        if self.rounding not in get_args(Rounding):
            raise PolicyError(f"headkv rounding='{self.rounding}' is not one of {', '.join(get_args(Rounding))}.")

    @property
    def exact(self) -> bool:
        """Whether all heads of the model together hold no more than the average says."""
        return self.rounding == "largest_remainder"

    def targets(self, view: CacheView, scores: Tensor, protected: Tensor) -> Tensor:
        """(R, H, 1). A prompt within the budget stays whole, whatever its heads' capacities (A-32)."""
        heads, slots = scores.shape[1:]
        profile = self.checked_profile(view.layers, heads)
        own = [
            [slots] * heads if count <= budget else self._capacities(profile, heads, budget, view.layer)
            for budget, count in zip(view.budgets, view.counts, strict=True)
        ]
        return torch.tensor(own, device=scores.device).unsqueeze(-1)

    def _capacities(self, profile: Importance, heads: int, budget: int, layer: int) -> list[int]:
        base = max(0, budget - self.window)
        prefix = prefix_slots(profile, heads, base, self.beta, self.temp, self.rounding)[layer]
        return [min(self.window, budget) + slots for slots in prefix]
