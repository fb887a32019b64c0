"""Correlations of tensors, without a statistics package."""

from __future__ import annotations

import torch
from torch import Tensor


def pearson(first: Tensor, second: Tensor) -> float:
    """Of two (n,) tensors, in fp64; NaN where one of them does not vary."""
    first, second = first.double() - first.double().mean(), second.double() - second.double().mean()
    scale = first.square().sum().sqrt() * second.square().sum().sqrt()
    return float((first * second).sum() / scale) if scale > 0 else float("nan")


def spearman(first: Tensor, second: Tensor) -> float:
    """Pearson's correlation of the ranks of two (n,) tensors, equal numbers sharing their mean rank."""
    return pearson(average_ranks(first), average_ranks(second))


def average_ranks(numbers: Tensor) -> Tensor:
    """(n,) to (n,) fp64: ranks from 0, equal numbers sharing the mean of theirs."""
    _, group, sizes = torch.unique(numbers, return_inverse=True, return_counts=True)
    ends = sizes.cumsum(0).double()
    ranks: Tensor = (ends - (sizes + 1) / 2)[group]
    return ranks
