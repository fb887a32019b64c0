"""Parts: parquet files that never change, each under the sha256 of its own bytes.

The name is the checksum, so there is no second file to fall out of step with the first, whenever a process is killed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.store.writing import write_atomically
from harness.user_error import UserError

BESIDE = b"kvreplica"  # key of the parquet metadata that holds what is known about a part as a whole
_NAMES = ("part-", ".parquet")


class DamagedPartError(UserError):
    """A part whose bytes are not those that were written."""

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(
            f"{file} is damaged ({why}). Run 'python -m harness.store verify --repair --results-dir "
            f"{file.parent.parent.parent}': it is put aside, and only its samples are computed again."
        )
        self.file, self.why = file, why


@dataclass(frozen=True)
class Part:
    """What the store remembers of a part without opening it again. ``columns``: name and type; ``spent``: whatever was
    measured for the part as a whole (`harness.origin.provenance.Spent`)."""

    cell_id: str
    name: str
    rows: int
    invalid: int  # rows that broke a promise
    samples: tuple[str, ...]
    columns: Mapping[str, str]
    spent: Mapping[str, Any]


def names_in(folder: Path) -> list[str]:
    """The parts of a cell, in an order that depends on their content only; none where there is no such folder."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 (several times as fast, which counts over thousands of cells)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in names if name.startswith(_NAMES[0]) and name.endswith(_NAMES[1]))


def encoded(rows: Sequence[Mapping[str, Any]], spent: Mapping[str, Any]) -> tuple[str, bytes]:
    """Name and content of a part of these rows."""
    names = dict.fromkeys(name for row in rows for name in row)
    table = pa.table({name: _column([row.get(name) for row in rows]) for name in names})
    sink = pa.BufferOutputStream()
    # Parts are small: what parquet adds for large files would be half of them, and half of the time to read them.
    lean = {"write_statistics": False, "store_schema": False, "use_dictionary": False}
    with pq.ParquetWriter(sink, table.schema, **lean) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({BESIDE.decode(): json.dumps(dict(spent), sort_keys=True)})
    content = sink.getvalue().to_pybytes()
    return f"{_NAMES[0]}{hashlib.sha256(content).hexdigest()}{_NAMES[1]}", content


def _column(values: list[Any]) -> pa.Array:
    """The values in the type that they have in common; as text where they have none."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values])


def write(folder: Path, rows: Sequence[Mapping[str, Any]], spent: Mapping[str, Any]) -> str:
    """One new part of these rows; its name. Raises OSError, and then there is no part."""
    name, content = encoded(rows, spent)
    write_atomically(folder / name, content)
    return name


def opened(file: Path) -> pq.ParquetFile:
    """A part, its checksum tested. Raises `DamagedPartError`."""
    try:
        content = file.read_bytes()
        if hashlib.sha256(content).hexdigest() != file.name.removeprefix(_NAMES[0]).removesuffix(_NAMES[1]):
            raise DamagedPartError(file, "its content does not have the checksum in its name")
        return pq.ParquetFile(pa.BufferReader(content))
    except (pa.ArrowException, OSError) as error:
        raise DamagedPartError(file, " ".join(str(error).split())) from error


def read(file: Path) -> pa.Table:
    """All rows of a part. Raises `DamagedPartError`."""
    return opened(file).read(use_threads=False).replace_schema_metadata(None)


def summarised(file: Path) -> Part:
    """What the manifest keeps of a part. Raises `DamagedPartError`."""
    parquet = opened(file)
    schema = parquet.schema_arrow
    wanted = [name for name in ("sample_id", "invalid") if name in schema.names]
    table = parquet.read(columns=wanted, use_threads=False)
    broken = table["invalid"].to_pylist() if "invalid" in wanted else []
    beside = (parquet.metadata.metadata or {}).get(BESIDE, b"{}")
    return Part(
        cell_id=file.parent.name,
        name=file.name,
        rows=table.num_rows,
        invalid=sum(bool(sentence) for sentence in broken),
        samples=tuple(dict.fromkeys(table["sample_id"].to_pylist())),
        columns={field.name: str(field.type) for field in schema},
        spent=json.loads(beside),
    )
