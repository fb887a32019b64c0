"""Allocators: how many slots each layer and KV head gets out of one nominal budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from policies.shape import ModelShape
from policies.view import CacheView


class Allocator(Protocol):
    """A frozen dataclass. Uniform allocation is the absence of one."""

    @property
    def exact(self) -> bool:
        """Whether all layers and heads together never hold more than the nominal budget times their number."""
        ...

    def targets(self, view: CacheView, scores: Tensor, protected: Tensor) -> Tensor:
        """(R, H, 1) int64: slots for each head of this layer, protected ones included.

        ``scores`` (R, H, N) after the value correction, ``protected`` (R, H, N) bool. The engine's budget
        (``view.budgets``) is the average per layer and head.
        """
        ...


@dataclass(frozen=True)
class SkipLayers:
    """Some layers keep everything (the original L2 method skips the first two; policies.md 3.13)."""

    layers: tuple[int, ...] = (0, 1)
    exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))

    def reason_against_model(self, shape: ModelShape) -> str:
        """A layer that does not exist would be skipped in silence."""
        missing = [layer for layer in self.layers if not 0 <= layer < shape.layers]
        if not missing:
            return ""
        return (
            f"skip_layers names layer {missing[0]}, but this model has layers 0 to {shape.layers - 1}: "
            "correct policy.allocator.layers."
        )

    def targets(self, view: CacheView, scores: Tensor, protected: Tensor) -> Tensor:
        """The budget, or all slots in a skipped layer."""
        own = view.lengths if view.layer in self.layers else view.budgets
        return view.per_row(own).expand(*scores.shape[:2], 1)
