"""Random eviction: the baseline that every method has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.scorer import Stateless
from policies.view import CacheView

_MANTISSA = 24  # bits of a hash that fp32 holds exactly


@dataclass(frozen=True)
class Random(Stateless):
    """Score = a number in [0, 1) that is a pure function of seed, layer, head and position.

    A token keeps its number, so the survivors are a uniform sample of the text, whatever the block size and the other
    rows of the batch are. A new draw at each eviction would favour new tokens instead.
    """

    seed: int = 0
    nonnegative: ClassVar[bool] = True

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N)."""
        heads: Tensor = torch.arange(view.positions.shape[1], device=view.positions.device).view(1, -1, 1)
        layer = _scrambled(_scrambled(heads.new_full((), self.seed)) + view.layer)
        number = _scrambled(_scrambled(layer + heads) + view.positions)
        share: Tensor = _shifted(number, 64 - _MANTISSA).float() / 2**_MANTISSA
        return share


def _scrambled(number: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele et al. 2014): every input bit moves every output bit. int64, wrapping."""
    number = number + _signed(0x9E3779B97F4A7C15)
    number = (number ^ _shifted(number, 30)) * _signed(0xBF58476D1CE4E5B9)
    number = (number ^ _shifted(number, 27)) * _signed(0x94D049BB133111EB)
    return number ^ _shifted(number, 31)


def _shifted(number: Tensor, bits: int) -> Tensor:
    """Shift right as if unsigned: torch repeats the sign bit."""
    shifted: Tensor = (number >> bits) & ((1 << (64 - bits)) - 1)
    return shifted


def _signed(constant: int) -> int:
    """An unsigned 64-bit constant as the int64 with the same bits."""
    return constant - (1 << 64) if constant >> 63 else constant
