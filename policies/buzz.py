"""BUZZ: beehive sampling between sinks and a sliding window (Zhao et al. 2024, Eq. 10, Figure 3; policies.md, 3.17).

In the order of the text a cache reads [sinks | old | new | window]; old and new together are the middle. When the
middle outgrows its threshold, old tokens are thinned by a small stride without regard to scores, and every hive of
``stride`` new tokens keeps the one that was attended to most. What is left counts as old from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import floor
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from policies.policy import Schedule
from policies.scorer import SlotState
from policies.selection import ranks, sortable
from policies.view import CacheView, PolicyError

SizeKind = Literal["peak", "mean", "post"]
Prefill = Literal["loop", "single"]
NewRule = Literal["local_max", "interval"]

_POSITION_BITS = 28
_NEW, _TURNING, _OLD = 0, 1, 2  # a token's age: never swept; swept now for the first time; survivor of a sweep
_SMALLEST_THRESHOLD = 5  # below, one sweep may not get under the threshold


@dataclass(frozen=True)
class Buzz:
    """Sizes come from the budget C by ``size_kind`` (A-12) or are given as ``window`` and ``threshold``.

    ``peak``: never more than C slots after a step; ``mean`` and ``post``: C on average, or after a sweep. The ratio of
    threshold to window is Theorem 3.1's. ``prefill``: ``loop`` thins the swept prompt until it fits (the text), and
    ``single`` sweeps once per prompt chunk, leaving the rest to decode (the released code, and blocks in a stream).
    ``new_rule="interval"`` samples new tokens without scores, ``swap_strides`` exchanges the strides of old and new,
    ``accumulate=False`` scores by the current chunk's attention alone.
    """

    sinks: int = 4
    window: int | None = None  # tokens
    stride: int = 5  # tokens of a hive
    threshold: int | None = None  # slots of the middle
    size_kind: SizeKind = "peak"
    prefill: Prefill = "loop"
    new_rule: NewRule = "local_max"
    swap_strides: bool = False
    accumulate: bool = True
    self_visible: ClassVar[bool] = True

    def __post_init__(self) -> None:
        choices = {"size_kind": SizeKind, "prefill": Prefill, "new_rule": NewRule}
        for name, known in choices.items():
            if getattr(self, name) not in get_args(known):
                raise PolicyError(f"buzz {name}='{getattr(self, name)}' is not one of {', '.join(get_args(known))}.")
        if self.stride < 3:
            raise PolicyError(f"buzz stride={self.stride} would never drop an old token: give a stride of at least 3.")
        if self.sinks < 0 or (self.window or 0) < 0:
            raise PolicyError(f"buzz sinks={self.sinks} and window={self.window} must be 0 or more tokens.")
        if (self.window is None) != (self.threshold is None):
            raise PolicyError("buzz needs both window and threshold, or neither: then the budget decides.")
        if self.threshold is not None and self.threshold < _SMALLEST_THRESHOLD:
            raise PolicyError(
                f"buzz threshold={self.threshold} is too small for one sweep to get below it: "
                f"give at least {_SMALLEST_THRESHOLD} slots."
            )

    @property
    def keeps_to_budget(self) -> bool:
        """Only a peak derived from the budget, with a prompt that is thinned until it fits."""
        return self.threshold is None and self.size_kind == "peak" and self.prefill == "loop"

    @property
    def state(self) -> dict[str, SlotState]:
        """Accumulated attention, and the age that tells old from new."""
        return {"received": SlotState(), "age": SlotState(dtype=torch.uint8)}

    def check_budget(self, budget: int) -> None:
        """Raise `PolicyError` where the sizes derived from the budget leave no window or too small a middle."""
        window, threshold = self.sizes(budget)
        if self.threshold is None and (window < 1 or threshold < _SMALLEST_THRESHOLD):
            raise PolicyError(
                f"A budget of {budget} slots leaves buzz a window of {window} and a middle of {threshold} slots; it "
                f"needs at least 1 and {_SMALLEST_THRESHOLD}: raise the budget or lower policy.structure.sinks."
            )

    def check_schedule(self, schedule: Schedule) -> None:
        """Sweeps follow attention, in the prompt and in every decode step."""
        if schedule.evict_first or "never" in (schedule.prompt, schedule.decode):
            raise PolicyError(
                "buzz sweeps after attention in prompt and decode: set policy.schedule.evict_first=false, "
                "prompt=after_prompt or each_block, and decode=each_step."
            )

    def sizes(self, budget: int) -> tuple[int, int]:
        """Window and threshold in slots."""
        if self.window is not None and self.threshold is not None:
            return self.window, self.threshold
        return _sizes(self.size_kind, self.stride, budget - self.sinks)

    def update(self, view: CacheView) -> dict[str, Tensor]:
        """Accumulated column sums; and ages: swept tokens become old, and tokens of a sweep that is due are marked."""
        received = view.attention.received("all")
        if self.accumulate:
            received = received + view.state["received"]
        age = view.state["age"]
        age = age.masked_fill(age == _TURNING, _OLD)
        if self._may_sweep(view):
            layout = self._layout(view)
            age = age.masked_fill(layout.middle & layout.due & (age == _NEW), _TURNING)
        return {"received": received, "age": age}

    def keep(self, view: CacheView) -> tuple[Tensor, Tensor]:
        """All slots, or what a sweep leaves in the rows whose middle is over its threshold."""
        broken = (view.state["received"].isnan() & view.filled).flatten(1).any(-1)
        if not self._may_sweep(view):
            return view.filled, broken
        layout = self._layout(view)
        old = layout.middle & (view.state["age"] == _OLD)
        new = layout.middle & ~old
        for_old, for_new = small_stride(self.stride), self.stride
        if self.swap_strides:
            for_old, for_new = for_new, for_old
        olds = old.sum(-1, keepdim=True)
        place = layout.rank - self.sinks  # within the middle; the old come first
        hive = (place - olds).clamp(min=0) // for_new
        left = (old & (place % for_old == 0)) | (new & self._sampled(view, new, place - olds, hive, for_new))
        if self.prefill == "loop" and view.phase == "prompt":
            left = self._thinned(left, layout, for_old)
        return view.filled & (~layout.middle | ~layout.due | left), broken

    def admits(self, view: CacheView) -> Tensor:
        """Every token."""
        return view.filled.new_ones(view.filled.shape[:2])

    def _sampled(self, view: CacheView, new: Tensor, place: Tensor, hive: Tensor, stride: int) -> Tensor:
        """(R, H, N) bool: one of each hive of new tokens, the earliest of equals (not rule 1.3-4)."""
        if self.new_rule == "interval":
            return place % stride == 0
        earliest = (1 << _POSITION_BITS) - 1 - view.positions.long()
        key = torch.where(new, (sortable(view.state["received"]) << _POSITION_BITS) | earliest, -1)
        best = torch.full_like(key, -1).scatter_reduce(-1, hive, key, "amax")
        return key == best.gather(-1, hive)

    def _thinned(self, left: Tensor, layout: _Layout, stride: int) -> Tensor:
        """Interval sampling repeated until the middle fits: p passes keep every stride^p-th token."""
        size, step = left.sum(-1, keepdim=True), torch.ones_like(layout.threshold)
        for _ in range(left.shape[-1].bit_length()):
            step = torch.where(size > step * layout.threshold, step * stride, step)
        order = layout.rank.argsort(-1)
        in_line = left.gather(-1, order)
        place = torch.empty_like(order).scatter_(-1, order, in_line.cumsum(-1) - 1)
        return left & (place % step == 0)

    def _may_sweep(self, view: CacheView) -> bool:
        """Whether a sweep can be due in any row: known from the width of the view, without waiting for the device."""
        return view.positions.shape[-1] > min(self.sinks + sum(self.sizes(budget)) for budget in view.budgets)

    def _layout(self, view: CacheView) -> _Layout:
        sizes = [self.sizes(budget) for budget in view.budgets]
        window, threshold = (view.per_row(numbers) for numbers in zip(*sizes, strict=True))
        rank = ranks(view.positions)
        middle = (rank >= self.sinks) & (rank < view.filled.sum(-1, keepdim=True) - window)
        due = (middle.sum(-1, keepdim=True) > threshold) & (view.attention.rows("all") > 0)
        return _Layout(rank, middle, due, threshold)


class _Layout(NamedTuple):
    """Where each slot stands in the text's order, (R, H, N)."""

    rank: Tensor  # int64, empty slots after all others
    middle: Tensor  # bool
    due: Tensor  # (R, H, 1) bool: the middle is over its threshold, and the row got tokens in this chunk
    threshold: Tensor  # (R, 1, 1) int64


@cache
def _sizes(kind: SizeKind, stride: int, room: int) -> tuple[int, int]:
    """Window and threshold that share ``room`` slots; asked for in every layer of every step."""
    ratio = best_ratio(stride)
    if kind == "peak":
        window = floor(room / (1 + ratio))
        return window, room - window
    window = room // 2 if kind == "post" else round(room / (1 + (1 + ratio) / 2))
    return window, round(ratio * window)


def small_stride(stride: int) -> int:
    """For old tokens: floor((s + 1) / 2)."""
    return (stride + 1) // 2


def best_ratio(stride: int) -> Fraction:
    """Theorem 3.1: the ratio threshold / window at which the middle tends to the size of the window."""
    return Fraction(stride * stride + 1, stride + 1) if stride % 2 else Fraction(stride - 1)
