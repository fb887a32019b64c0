"""Shares of slots become whole slots: exactly, the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import floor


@cache
def as_written(number: float) -> Fraction:
    """The decimal that the user wrote: 0.29 is 29/100, so that 0.29 x 100 is 29 and not 28.999999999999996."""
    return Fraction(str(number))


def largest_remainder(shares: Sequence[Fraction], total: int) -> tuple[int, ...]:
    """Whole numbers nearest to the shares whose sum is ``total``; of equal remainders the first goes up."""
    whole = [floor(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (whole[i] - shares[i], i))
    for i in by_remainder[: total - sum(whole)]:
        whole[i] += 1
    return tuple(whole)
