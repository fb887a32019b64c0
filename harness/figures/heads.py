"""Which of a model's layers and heads stand for those that a paper names, where the model has fewer."""

from __future__ import annotations

from collections.abc import Sequence


def stand_in(place: int, of: int, there: int) -> int:
    """Place ``place`` of ``of`` at the same relative depth among ``there``; itself where that many are there."""
    return place if there >= of else round(place / max(1, of - 1) * (there - 1))


def spread_over(count: int, wanted: int) -> list[int]:
    """At most ``wanted`` of ``count`` places from the first to the last, evenly spaced."""
    if count <= wanted:
        return list(range(count))
    return [round(place * (count - 1) / (wanted - 1)) for place in range(wanted)]


def said(asked: Sequence[int], taken: Sequence[int], what: str) -> tuple[str, ...]:
    """A note where others were taken than were asked for."""
    if list(asked) == list(taken):
        return ()
    one, other = (", ".join(map(str, each)) for each in (asked, taken))
    plural = "s" if len(asked) > 1 else ""
    return (f"This model has fewer {what}s: {what}{plural} {other} for the paper's {one}, at the same relative place.",)
