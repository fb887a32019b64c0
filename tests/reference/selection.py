"""The selection rule of all score-based policies (policies.md section 1.3), and exact rounding helpers."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction


def keep(
    pos: Sequence[int],
    score: Sequence[float],
    target: int,
    sinks: Iterable[int] = (),
    others: Iterable[int] = (),
) -> list[int]:
    """Positions that survive, ascending (section 1.3).

    pos: n positions; score: n retention scores, larger = keep; target: slots to keep; sinks and others:
    protected positions, told apart because a budget too small for both keeps the sinks first (1.3-2).
    """
    refuse_nan(score)
    target = max(target, 0)
    if len(pos) <= target:
        return sorted(pos)
    first, late = _protected(pos, sinks, others)
    if len(first) + len(late) > target:
        chosen = first[:target]
        room = target - len(chosen)
        return sorted(chosen + late[len(late) - room :])
    held = set(first) | set(late)
    # Descending by score, then by position: on equal scores the smaller position is evicted first (1.3-4).
    free = sorted(((s, p) for s, p in zip(score, pos, strict=True) if p not in held), reverse=True)
    return sorted(held | {p for _, p in free[: target - len(held)]})


def _protected(pos: Sequence[int], sinks: Iterable[int], others: Iterable[int]) -> tuple[list[int], list[int]]:
    sinks, others = set(sinks), set(others)
    return sorted(p for p in pos if p in sinks), sorted(p for p in pos if p in others and p not in sinks)


def refuse_nan(values: Iterable[float]) -> None:
    """A NaN decides nothing: comparing with it would be a silent choice (1.3-6)."""
    if any(math.isnan(x) for x in values):
        raise ValueError("a retention score is NaN")


def largest(values: Sequence[float]) -> float:
    """max() that returns NaN if any value is NaN; the built-in depends on the order."""
    return math.nan if any(math.isnan(x) for x in values) else max(values)


def gap(
    pos: Sequence[int],
    score: Sequence[float],
    kept: Sequence[int],
    sinks: Iterable[int] = (),
    others: Iterable[int] = (),
) -> float:
    """Lowest kept score minus highest evicted score among unprotected slots; inf where scores decided nothing.

    A comparison in another precision is meaningful only where this margin exceeds that precision; 0 is an exact
    tie.
    """
    held, survivors = set(sinks) | set(others), set(kept)
    inside = [s for s, p in zip(score, pos, strict=True) if p not in held and p in survivors]
    outside = [s for s, p in zip(score, pos, strict=True) if p not in held and p not in survivors]
    if not inside or not outside or min(inside) == math.inf:
        return math.inf
    return float(min(inside) - max(outside))


def exact(x: float) -> Fraction:
    """The decimal the user wrote: 0.29 is 29/100, so that 0.29 * 100 is 29 and not 28.999999999999996."""
    return Fraction(repr(x)) if isinstance(x, float) else Fraction(x)


def floor_of(fraction: float, size: int) -> int:
    """floor(fraction * size) without binary rounding."""
    return math.floor(exact(fraction) * size)


def ceil_of(fraction: float, size: int) -> int:
    """ceil(fraction * size) without binary rounding."""
    return math.ceil(exact(fraction) * size)


def largest_remainder(shares: Sequence[Fraction], total: int) -> list[int]:
    """Integers closest to the shares whose sum is `total`: floors, then one more for the largest remainders.

    Equal remainders go to the lower index; policies.md leaves that open.
    """
    whole = [math.floor(s) for s in shares]
    missing = total - sum(whole)
    by_remainder = sorted(range(len(shares)), key=lambda i: (whole[i] - shares[i], i))
    for i in by_remainder[:missing]:
        whole[i] += 1
    return whole
