"""Care of a store: how far its cells are, which files are damaged, and what can be removed."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from harness.atomic_files import flush_folder, is_left_behind
from harness.config import identity
from harness.store import cell_folders, parts
from harness.store.cell_folders import DamagedCellError
from harness.store.loading import reason_stale
from harness.store.parts import NUMBERS, TEXTS, DamagedPartError, Part
from harness.store.store import Store

State = Literal["done", "running", "open", "stale", "invalid", "damaged"]
STATES: tuple[State, ...] = ("done", "running", "open", "stale", "invalid", "damaged")
AXES = ("model", "task", "policy", "budget")


@dataclass(frozen=True)
class CellStatus:
    """``open``: samples are missing and no worker computes them. ``samples`` counts those that are there, each once."""

    cell_id: str
    state: State
    why: str = ""
    description: dict[str, Any] = field(default_factory=dict)
    samples: int = 0
    requested: int | None = None
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
    requested = cell_folders.read_requested(folder)
    try:
        description = cell_folders.read_description(folder)
    except DamagedCellError as error:
        return CellStatus(cell_id, "damaged", error.why, {}, samples, requested, parts)
    broken = sum(part.invalid for part in parts)
    state: State
    why = ""
    if why := reason_stale(description):
        state = "stale"
    elif broken:
        state, why = "invalid", f"{broken} rows broke a promise"
    elif any(lease.alive(now) for lease in cell_folders.leases_of_cell(folder)):
        state = "running"
    else:
        state = "done" if samples >= max(1, requested or 1) else "open"
    return CellStatus(cell_id, state, why, description, samples, requested, parts)


def counts(found: Iterable[CellStatus], axis: str) -> dict[str, Counter[State]]:
    """Cells by state, for every value of an axis."""
    table: dict[str, Counter[State]] = {}
    for cell in found:
        table.setdefault(cell.axis(axis), Counter())[cell.state] += 1
    return dict(sorted(table.items()))


# Damage: found by reading every byte of a store, and put aside so that the samples are computed again.


QUARANTINE = ".quarantine"  # within the store's root, by cell
_SCORED = ("metric", "value", "weight", "invalid")


SHARES = {
    "accuracy", "code_similarity", "contains", "count", "flexible", "rouge_1", "rouge_2", "rouge_l", "strict",
    "string_match", "string_match_all",
}  # metrics from 0 to 1  # fmt: skip


@dataclass(frozen=True)
class Damage:
    """A damaged file, or the folder of a cell that no run can ever have, and what is wrong with it."""

    file: Path
    why: str


def find_damage(store: Store) -> Iterator[Damage]:
    """Every damaged file. Reads all parts and computes their checksums."""
    for cell_id in store.cells():
        folder = store.root / cell_id
        try:
            found = identity.hash_data(cell_folders.read_description(folder)["config"])
            if found != cell_id:
                yield Damage(folder / cell_folders.CELL, f"what it describes is cell {found}")
        except DamagedCellError as error:
            yield Damage(folder if _never_valid(error.file) else error.file, error.why)
    for folder in sorted(path for path in store.root.glob("*") if path.is_dir() and not path.name.startswith(".")):
        for name in parts.part_names(folder):
            if why := _wrong(folder / name):
                yield Damage(folder / name, why)


def repeated(members: Sequence[Part]) -> int:
    """How many samples stand in several parts of one cell; they count once."""
    found = [sample for part in members for sample in part.samples]
    return len(found) - len(set(found))


def put_aside(store: Store, file: Path) -> Path:
    """Move a file out of its cell, so that its samples count as missing, and return its new path."""
    place = store.root / QUARANTINE / file.parent.name / file.name
    place.parent.mkdir(parents=True, exist_ok=True)
    number = 0
    while place.exists():
        number += 1
        place = place.with_name(f"{file.name}.{number}")
    file.replace(place)
    flush_folder(place.parent)
    flush_folder(file.parent)
    return place


def _never_valid(file: Path) -> bool:
    """Whether a ``cell.json`` describes a cell with a number that no column of rows holds: no run can read it again."""
    try:
        return cell_folders.beyond_64_bits(json.loads(file.read_bytes())["config"])
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _wrong(file: Path) -> str:
    """What is wrong with a part; empty where nothing is."""
    try:
        table = parts.read_part(file)
    except DamagedPartError as error:
        return error.why
    for name in (*TEXTS, *NUMBERS):
        if name not in table.column_names:
            return f"it lacks the column {name}"
        kind = table.schema.field(name).type
        if pa.types.is_string(kind) != (name in TEXTS):
            return f"its column {name} holds {kind}"
    if set(table["cell_id"].to_pylist()) != {file.parent.name}:
        return "it has rows of another cell"
    if wrong := _wrong_value(table):
        return wrong
    keys = list(zip(table["sample_id"].to_pylist(), table["metric"].to_pylist(), strict=True))
    return "it has a sample and metric twice" if len(set(keys)) < len(keys) else ""


def _wrong_value(table: pa.Table) -> str:
    """The first score that no metric can have; rows that broke a promise may have any."""
    for metric, value, weight, invalid in zip(*(table[name].to_pylist() for name in _SCORED), strict=True):
        if not invalid and (value is None or not math.isfinite(value) or (metric in SHARES and not 0 <= value <= 1)):
            return f"it has {value} as {metric}"
        if not invalid and (weight is None or not math.isfinite(weight)):
            return f"it has {weight} as the weight of {metric}"
    return ""


# Removal of files that were never finished and of older versions of cells.


def left_behind(store: Store) -> Iterator[Path]:
    """Temporary files and probes whose writing process has ended."""
    for pattern in (".*.tmp", ".probe-*", "*/.*.tmp", "*/*/.*.tmp"):
        yield from (file for file in sorted(store.root.glob(pattern)) if is_left_behind(file))


def stale_cells(store: Store) -> Iterator[tuple[Path, str]]:
    """Folders of stale cells and why they are stale; never one with a living lease."""
    for cell in statuses(store)[0]:
        folder = store.root / cell.cell_id
        if cell.state == "stale" and not any(lease.alive() for lease in cell_folders.leases_of_cell(folder)):
            yield folder, cell.why


def remove_path(path: Path) -> None:
    """A file, or a folder with all that is in it. Raises OSError."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
