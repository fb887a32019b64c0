"""Which rows of a table are asked, and in which order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

HASHEVICT_SEED = 100


def drawn(rows: int, wanted: int, seed: int = HASHEVICT_SEED) -> list[int]:
    """``wanted`` of ``rows`` indices (all, where fewer are there) as HashEvict draws them: ``Random(100).sample``."""
    return random.Random(seed).sample(range(rows), min(wanted, rows))


def diagonals(first: Sequence[int], second: Sequence[int]) -> Iterator[tuple[int, int]]:
    """All pairs; each run of ``len(first)`` has every one of ``first``, and as many of ``second`` as it can."""
    for shift in range(len(second)):
        for index, item in enumerate(first):
            yield item, second[(index * len(second) // len(first) + shift) % len(second)]
