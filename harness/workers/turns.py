"""What a worker does next: the first unit that is not finished and that nobody holds, until all are finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from harness.workers.agenda import Unit
from harness.workers.claims import Claim, Claims

PAUSE = 1.0  # seconds between looks at units that others hold


def turns(
    units: Iterable[Unit], claims: Claims, runs: Path, finished: Callable[[Unit], bool], pause: float = PAUSE
) -> Iterator[tuple[Claim, Unit]]:
    """Units that this worker now holds, each once. Ends when everything is finished, by whomever.

    While others hold all that is left it waits: should one of them die, its unit is taken over.
    """
    left = list(units)
    while left:
        held_by_others: list[Unit] = []
        for unit in left:
            if finished(unit):
                continue
            claim = claims.take(unit.name, [runs / cell for cell in unit.cells])
            if claim is None:
                held_by_others.append(unit)
                continue
            yield claim, unit
            if not finished(unit):  # lost to somebody, who may not finish it either
                held_by_others.append(unit)
        if len(held_by_others) == len(left):
            time.sleep(min(pause, claims.seconds / 2))
        left = held_by_others
