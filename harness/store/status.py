"""How far the cells of a store are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.store import cells, leases
from harness.store.cells import DamagedCellError
from harness.store.parts import DamagedPartError, Part
from harness.store.runs import Store
from harness.store.standing import reason_stale

State = Literal["done", "running", "open", "stale", "invalid", "damaged"]
STATES: tuple[State, ...] = ("done", "running", "open", "stale", "invalid", "damaged")
AXES = ("model", "task", "policy", "budget")


@dataclass(frozen=True)
class CellStatus:
    """``open``: samples are missing and nobody works on it. ``samples`` counts those that are there, each once."""

    cell_id: str
    state: State
    why: str = ""
    description: dict[str, Any] = field(default_factory=dict)
    samples: int = 0
    wanted: int | None = None
    parts: Sequence[Part] = ()

    def axis(self, name: str) -> str:
        """The value on one of `AXES`; ``?`` where ``cell.json`` cannot be read."""
        return str(self.description.get(name, "?"))


def statuses(store: Store) -> tuple[list[CellStatus], list[DamagedPartError]]:
    """Every cell, and the parts that could not be read (of those never seen before; `verify` reads all again)."""
    names = store.cells()
    parts, damaged = store.survey(names)
    now = time.time()
    return [_status(store, cell_id, parts[cell_id], now) for cell_id in names], damaged


def _status(store: Store, cell_id: str, parts: Sequence[Part], now: float) -> CellStatus:
    folder = store.root / cell_id
    samples = len({sample for part in parts for sample in part.samples})
    wanted = cells.wanted(folder)
    try:
        description = cells.described(folder)
    except DamagedCellError as error:
        return CellStatus(cell_id, "damaged", error.why, {}, samples, wanted, parts)
    broken = sum(part.invalid for part in parts)
    state: State
    why = ""
    if why := reason_stale(description):
        state = "stale"
    elif broken:
        state, why = "invalid", f"{broken} rows broke a promise"
    elif any(lease.alive(now) for lease in leases.of_cell(folder)):
        state = "running"
    else:
        state = "done" if samples >= max(1, wanted or 1) else "open"
    return CellStatus(cell_id, state, why, description, samples, wanted, parts)


def counts(found: Iterable[CellStatus], axis: str) -> dict[str, Counter[State]]:
    """Cells by state, for every value of an axis."""
    table: dict[str, Counter[State]] = {}
    for cell in found:
        table.setdefault(cell.axis(axis), Counter())[cell.state] += 1
    return dict(sorted(table.items()))
