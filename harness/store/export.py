"""Two tidy tables of a whole store, for DuckDB, pandas or anything else that reads parquet or CSV."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from harness.atomic_files import not_written
from harness.errors import UserError
from harness.store.loading import superseded
from harness.store.maintenance import CellStatus
from harness.store.parts import as_shown
from harness.store.store import READERS, Store

FORMATS = ("parquet", "csv")
CELLS_AT_ONCE = 256
_SUMS = ("wall_seconds", "device_seconds", "joules")


def export(store: Store, found: Sequence[CellStatus], to: Path, kind: str, with_superseded: bool) -> list[Path]:
    """Write ``samples`` and ``cells`` and return the two files. Memory does not grow with the store.

    Raises `UserError` where a part is damaged, nothing is there, or the files cannot be written.
    """
    readable = [cell for cell in found if cell.state != "damaged"]
    hidden = set() if with_superseded else superseded(cell.description for cell in readable)
    exported = [cell for cell in readable if cell.cell_id not in hidden]
    if not any(cell.parts for cell in exported):
        raise UserError(f"There are no rows in {store.root}: choose the right folder with results_dir=<folder>.")
    try:
        to.mkdir(parents=True, exist_ok=True)
        return [
            _write(to / f"samples.{kind}", _samples(store, exported)),
            _write(to / f"cells.{kind}", iter([cells_table(exported)])),
        ]
    except OSError as error:
        raise not_written(to, error) from error


def schema_of(found: Sequence[CellStatus]) -> pa.Schema:
    """All columns of all parts. Where whole and broken numbers meet the column is broken numbers, else text."""
    columns: dict[str, str] = {}
    seen: set[int] = set()  # parts share their columns where the manifest has read them
    for part in (part for cell in found for part in cell.parts):
        if id(part.columns) in seen:
            continue
        seen.add(id(part.columns))
        for name, kind in part.columns.items():
            columns[name] = _common(columns.get(name, kind), kind)
    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in columns.items()])


def cells_table(found: Sequence[CellStatus]) -> pa.Table:
    """One row per cell: labels, provenance, state, what it cost; identity, sources and configuration as JSON."""
    lines = [_line(cell) for cell in found]
    names = dict.fromkeys(name for line in lines for name in line)
    return pa.table({name: [line.get(name) for line in lines] for name in names})


def _line(cell: CellStatus) -> dict[str, Any]:
    labels = dict(cell.description)
    texts = {name: json.dumps(labels.pop(name, {}), sort_keys=True) for name in ("config", "resolved", "sources")}
    progress = {"state": cell.state, "why": cell.why, "samples": cell.samples, "wanted": cell.requested}
    spent = {name: _sum([part.spent.get(name) for part in cell.parts]) for name in _SUMS}
    return {**labels, **progress, "parts": len(cell.parts), **spent, **texts}


def _sum(amounts: Sequence[float | None]) -> float | None:
    """Of all parts; None where one of them does not say."""
    known = [amount for amount in amounts if amount is not None]
    return float(sum(known)) if known and len(known) == len(amounts) else None


def _common(one: str, other: str) -> str:
    if one == other or other == "null":
        return one
    if one == "null":
        return other
    return "double" if {one, other} <= {"int64", "double"} else "string"


def _samples(store: Store, found: Sequence[CellStatus]) -> Iterator[pa.Table]:
    """The rows of all cells in their order; several cells are read at once."""
    schema = as_shown(schema_of(found).empty_table()).schema
    names = [cell.cell_id for cell in found if cell.parts]
    with ThreadPoolExecutor(READERS) as pool:
        for start in range(0, len(names), CELLS_AT_ONCE):
            tables = pool.map(store.samples, names[start : start + CELLS_AT_ONCE])
            yield pa.concat_tables(_fitted(table, schema) for table in tables)


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with all columns of the schema, those that it lacks empty."""
    if table.schema.equals(schema):
        return table
    columns = [
        table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _write(file: Path, tables: Iterator[pa.Table]) -> Path:
    """All tables as one file, under a temporary name until it is whole."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    first = next(tables)
    kind = pa.csv.CSVWriter if file.suffix == ".csv" else pq.ParquetWriter
    try:
        with kind(temporary, first.schema) as writer:
            writer.write_table(first)
            for table in tables:
                writer.write_table(table)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return file
