"""PyramidKV: a budget that falls linearly over the layers (Cai et al. 2024; policies.md, 3.7)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import floor
from typing import Literal, get_args

from torch import Tensor

from policies.selection import as_written, largest_remainder
from policies.view import CacheView, PolicyError

PrefixSchedule = Literal["exact", "public_code"]
LayerSchedule = Literal["exact", "public_code", "kvcache_factory", "kvpress"]


@lru_cache(maxsize=4096)
def prefix_slots(base: int, prefix: int, layers: int, beta: float, schedule: PrefixSchedule) -> tuple[int, ...]:
    """Slots of every layer before its window, first layer first, for an average of ``base`` per layer.

    ``prefix`` are the prompt's tokens before the window: the first layer never gets more, and what it cannot use
    goes to the layers after it. ``exact`` rounds a real-valued line so that the total is layers x base;
    ``public_code`` rounds the step down, which allocates up to 15 % more (A-26).
    """
    if base <= 0 or layers == 1:
        return (max(0, base),) * layers
    last = floor(base / as_written(beta))
    first = 2 * base - last
    if first >= prefix:
        first, last = prefix, 2 * base - prefix
    if schedule == "public_code":
        step = (first - last) // (layers - 1)
        return tuple(first - layer * step for layer in range(layers))
    slope = Fraction(first - last, layers - 1)
    return largest_remainder([first - layer * slope for layer in range(layers)], layers * base)


@lru_cache(maxsize=4096)
def layer_slots(
    budget: int, prompt: int, window: int, layers: int, beta: float, schedule: LayerSchedule
) -> tuple[int, ...]:
    """Slots of every layer with its window, first layer first; see `PyramidKV` for the schedules."""
    if schedule == "kvpress":
        return _whole_layer_slots(budget, prompt, window, layers, beta)
    if schedule == "kvcache_factory":
        if prompt < 2 * (budget - window):
            return (budget,) * layers
        schedule = "public_code"
    prefix = prefix_slots(budget - window, prompt - window, layers, beta, schedule)
    return tuple(min(window, budget) + slots for slots in prefix)


def _whole_layer_slots(budget: int, prompt: int, window: int, layers: int, beta: float) -> tuple[int, ...]:
    """The line of NVIDIA/kvpress, over layers with their windows: in floats and rounded half to even, as there."""
    last = budget / beta
    first = 2 * budget - last
    if first >= prompt - window:
        first = float(prompt - window)
        last = 2 * budget - first
    if layers == 1 or not prompt >= first >= last >= window:
        return (budget,) * layers
    step = (first - last) / (layers - 1)
    return tuple(round(first - layer * step) for layer in range(layers))


@dataclass(frozen=True)
class PyramidKV:
    """Each layer keeps its part of the prefix and the whole window; computed anew for every prompt.

    ``schedule`` (policies.md 3.7, A-26): ``exact`` rounds a real-valued line over the prefix so that the total holds.
    ``public_code`` rounds the step down, as FFY0/AdaKV does; ``kvcache_factory`` as well, but gives all layers the
    average where the prompt is shorter than twice the average prefix (Zefan-Cai/KVCache-Factory). ``kvpress`` draws
    the line over prefix and window together and rounds every layer by itself; all layers get the average where the
    last one would be smaller than the window (NVIDIA/kvpress).

    FFY0/AdaKV freezes the schedule of the first prompt that a process sees; ours does not.
    """

    window: int = 32  # recent tokens inside the budget; the same number as protect.recent
    beta: float = 20  # the last layer's prefix is the average divided by this
    schedule: LayerSchedule = "exact"

    def __post_init__(self) -> None:
        check_pyramid("pyramid", self.window, self.beta, self.schedule, get_args(LayerSchedule))

    @property
    def exact(self) -> bool:
        """Whether the layers together hold no more than the average says."""
        return self.schedule == "exact"

    def targets(self, view: CacheView, scores: Tensor, protected: Tensor) -> Tensor:
        """(R, H, 1): the layer's capacity, the same for all heads. A layer with more than the prompt keeps it all."""
        own = tuple(
            layer_slots(budget, prompt, self.window, view.layers, self.beta, self.schedule)[view.layer]
            for budget, prompt in zip(view.budgets, view.prompt_lengths, strict=True)
        )
        return view.per_row(own).expand(*scores.shape[:2], 1)


def check_pyramid(name: str, window: int, beta: float, schedule: str, known: tuple[str, ...]) -> None:
    """Raise `PolicyError` for parameters of a pyramid that mean nothing."""
    if window < 0:
        raise PolicyError(f"{name} window={window} must be 0 or more tokens.")
    if beta < 1:
        raise PolicyError(f"{name} beta={beta:g} would give the last layer more than the average: use 1 or more.")
    if schedule not in known:
        raise PolicyError(f"{name} schedule='{schedule}' is not one of {', '.join(known)}.")
