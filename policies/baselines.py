"""The baselines: the newest tokens, random ones, and the oracle's, which hindsight gives.

Every method has to beat random eviction, and no real one can see the future: the oracle shows how much a budget can
still gain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.scorer import Stateless
from policies.view import CacheView, PolicyError

_MANTISSA = 24  # bits of a hash that fp32 holds exactly


@dataclass(frozen=True)
class Recency(Stateless):
    """Score = position of the token: the newest stay (policies.md, 3.2 and 3.3).

    With nothing protected this is the local window; with protected sinks it is StreamingLLM (Xiao et al. 2023), whose
    budget includes the sinks. Positions stay absolute, as in the KeyDiff and CAOTE suites (A-05).
    """

    layers_as_rows: ClassVar[bool] = True

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N): positions as fp32, exact up to 2^24 tokens; beyond, the tie rule still prefers the newer."""
        return view.positions.float()


@dataclass(frozen=True)
class Random(Stateless):
    """Score = a number in [0, 1) that is a pure function of seed, layer, head and position.

    A token keeps its number, so the survivors are a uniform sample of the text, whatever the block size and the other
    rows of the batch are. A new draw at each eviction would favour new tokens instead.
    """

    seed: int = 0
    nonnegative: ClassVar[bool] = True
    layers_as_rows: ClassVar[bool] = True

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N)."""
        heads: Tensor = torch.arange(view.positions.shape[1], device=view.positions.device).view(1, -1, 1)
        layers = _scrambled(_scrambled(heads.new_full((), self.seed)) + view.row_layers)
        number = _scrambled(_scrambled(layers + heads) + view.positions)
        share: Tensor = _shifted(number, 64 - _MANTISSA).float() / 2**_MANTISSA
        return share


@dataclass(frozen=True)
class Oracle(Stateless):
    """Score = attention that a slot receives from all *later* queries of the dense run of the same prompt.

    Queries of later prompt chunks and of the dense run's greedy continuation count: averaged over the query group,
    summed over queries. This is optimal for the attention mass that each head keeps, not for the answer.
    """

    nonnegative: ClassVar[bool] = True
    layers_as_rows: ClassVar[bool] = True

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N)."""
        if view.future is None:
            raise PolicyError("The oracle needs the dense run of its prompt: set policy.hindsight=true.")
        return view.future


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
