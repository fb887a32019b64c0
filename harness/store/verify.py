"""Looking at every byte of a store: what is damaged, and putting it aside so that it is computed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from harness.origin import fingerprint
from harness.store import cells, parts
from harness.store.cells import DamagedCellError
from harness.store.parts import DamagedPartError, Part
from harness.store.runs import Store
from harness.store.writing import flush_folder

QUARANTINE = ".quarantine"  # within the store's root, by cell
TEXTS, NUMBERS = ("cell_id", "sample_id", "metric", "invalid"), ("value", "weight")  # columns that every part has


@dataclass(frozen=True)
class Finding:
    """A file that cannot be trusted, and why."""

    file: Path
    why: str


def findings(store: Store) -> Iterator[Finding]:
    """Every damaged file, all parts read and their checksums computed."""
    for cell_id in store.cells():
        folder = store.root / cell_id
        try:
            found = fingerprint.of_data(cells.described(folder)["config"])
            if found != cell_id:
                yield Finding(folder / cells.CELL, f"what it describes is cell {found}")
        except DamagedCellError as error:
            yield Finding(error.file, error.why)
    for folder in sorted(path for path in store.root.glob("*") if path.is_dir() and not path.name.startswith(".")):
        for name in parts.names_in(folder):
            if why := _wrong(folder / name):
                yield Finding(folder / name, why)


def repeated(members: Sequence[Part]) -> int:
    """Samples that stand in several parts of one cell; they count once."""
    found = [sample for part in members for sample in part.samples]
    return len(found) - len(set(found))


def put_aside(store: Store, file: Path) -> Path:
    """Move a file out of its cell, so that what it held counts as missing; where it lies now."""
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


def _wrong(file: Path) -> str:
    """What is wrong with a part; empty where nothing is."""
    try:
        table = parts.read(file)
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
    keys = list(zip(table["sample_id"].to_pylist(), table["metric"].to_pylist(), strict=True))
    return "it has a sample and metric twice" if len(set(keys)) < len(keys) else ""
