"""Parts: parquet files of rows that never change, each named by the sha256 of its own bytes.

The name is the checksum, so no second file can disagree with the first when a process is killed. Many small tables are
joined in arrow and converted to pandas once: joining thousands of small frames takes twice as long, and leaves text
columns in thousands of pieces, which makes every filter on the whole fifty times as slow.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.atomic_files import write_atomically
from harness.errors import UserError

METADATA_KEY = b"kvreplica"  # of the parquet metadata that holds what is known about a part as a whole
TEXTS, NUMBERS = ("cell_id", "sample_id", "metric", "invalid"), ("value", "weight")  # columns that every part has
_NAMES = ("part-", ".parquet")


class DamagedPartError(UserError):
    """A part whose bytes are not those that were written."""

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(
            f"{file} is damaged ({why}). Run 'python -m harness store verify --repair results_dir="
            f"{file.parent.parent.parent}': it is put aside, and only its samples are computed again. To read the "
            "other cells meanwhile: load_rows(…, damaged='skip')."
        )
        self.file, self.why = file, why


@dataclass(frozen=True)
class Part:
    """The summary of a part that the manifest keeps. ``columns``: name and type; ``spent``: what was
    recorded for the part as a whole (`harness.runner.process.Usage`, provenance)."""

    cell_id: str
    name: str
    rows: int
    invalid: int  # rows that broke a promise
    samples: tuple[str, ...]
    columns: Mapping[str, str]
    spent: Mapping[str, Any]


def part_names(folder: Path) -> list[str]:
    """The parts of a cell, in an order that depends on their content only; none where there is no such folder."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 (several times as fast, which counts over thousands of cells)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in names if name.startswith(_NAMES[0]) and name.endswith(_NAMES[1]))


def encode_part(rows: Sequence[Mapping[str, Any]], spent: Mapping[str, Any]) -> tuple[str, bytes]:
    """Name and content of a part of these rows."""
    names = dict.fromkeys(name for row in rows for name in row)
    table = pa.table({name: _column([row.get(name) for row in rows]) for name in names})
    sink = pa.BufferOutputStream()
    # Parts are small: what parquet adds for large files would be half of their size, and half of the time to read them.
    lean = {"write_statistics": False, "store_schema": False, "use_dictionary": False}
    with pq.ParquetWriter(sink, table.schema, **lean) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({METADATA_KEY.decode(): json.dumps(dict(spent), sort_keys=True)})
    content = sink.getvalue().to_pybytes()
    return f"{_NAMES[0]}{hashlib.sha256(content).hexdigest()}{_NAMES[1]}", content


def _column(values: list[Any]) -> pa.Array:
    """The values in the type that they have in common; as text where they have none."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values])


def write_part(folder: Path, rows: Sequence[Mapping[str, Any]], spent: Mapping[str, Any]) -> str:
    """Write these rows as one new part and return its name. On OSError no part is left."""
    name, content = encode_part(rows, spent)
    write_atomically(folder / name, content)
    return name


def open_part(file: Path) -> pq.ParquetFile:
    """Open a part after checking its checksum.

    Raises `DamagedPartError`, and `UserError` for a file that this user may not read.
    """
    try:
        content = file.read_bytes()
        if hashlib.sha256(content).hexdigest() != file.name.removeprefix(_NAMES[0]).removesuffix(_NAMES[1]):
            raise DamagedPartError(file, "its content does not have the checksum in its name")
        return pq.ParquetFile(pa.BufferReader(content))
    except PermissionError as error:
        raise UserError(
            f"{file} cannot be read ({error.strerror}): give yourself the permission (chmod u+r)."
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise DamagedPartError(file, " ".join(str(error).split())) from error


def read_part(file: Path) -> pa.Table:
    """All rows of a part. Raises as `open_part` does."""
    parquet = open_part(file)
    _metadata(file, parquet)
    return parquet.read(use_threads=False).replace_schema_metadata(None)


def summarise_part(file: Path) -> Part:
    """Read the summary of a part that the manifest keeps. Raises as `open_part` does."""
    parquet = open_part(file)
    schema = parquet.schema_arrow
    if "sample_id" not in schema.names:
        raise DamagedPartError(file, "it lacks the column sample_id")
    present = [name for name in ("sample_id", "invalid") if name in schema.names]
    table = parquet.read(columns=present, use_threads=False)
    broken = table["invalid"].to_pylist() if "invalid" in present else []
    return Part(
        cell_id=file.parent.name,
        name=file.name,
        rows=table.num_rows,
        invalid=sum(bool(sentence) for sentence in broken),
        samples=tuple(dict.fromkeys(table["sample_id"].to_pylist())),
        columns={field.name: str(field.type) for field in schema},
        spent=_metadata(file, parquet),
    )


def _metadata(file: Path, parquet: pq.ParquetFile) -> dict[str, Any]:
    try:
        return dict(json.loads((parquet.metadata.metadata or {}).get(METADATA_KEY, b"{}")))
    except (ValueError, TypeError) as error:
        raise DamagedPartError(file, f"its metadata cannot be read: {' '.join(str(error).split())}") from error


def add_labels(samples: pa.Table, labels: Mapping[str, Any]) -> pa.Table:
    """The table with each label on every row, in the place of a column of that name or behind all others."""
    for name, value in labels.items():
        column, place = pa.repeat(pa.scalar(value), samples.num_rows), samples.schema.get_field_index(name)
        samples = samples.append_column(name, column) if place < 0 else samples.set_column(place, name, column)
    return samples


def as_shown(table: pa.Table) -> pa.Table:
    """Stored rows with the columns that people see (docs/design/rows.md).

    ``slots_requested`` is missing for dense cells (-1 in parts), ``budget_share`` is made of it, and ``seconds``, which
    rows had until November 2026, is left out: it was the mean of a batch, the same in all its rows.
    """
    if "seconds" in table.column_names:
        table = table.drop_columns("seconds")
    if not {"slots_requested", "prompt_tokens"} <= set(table.column_names) or "budget_share" in table.column_names:
        return table
    asked, place = table["slots_requested"], table.column_names.index("slots_requested")
    asked = pc.if_else(pc.less(asked, 0), pa.scalar(None, asked.type), asked)
    share = pc.divide(asked.cast(pa.float64()), table["prompt_tokens"].cast(pa.float64()))
    return table.set_column(place, "slots_requested", asked).add_column(place + 1, "budget_share", share)


def to_frame(tables: Sequence[pa.Table]) -> pd.DataFrame:
    """All rows in the order of the tables, columns in the order in which they first come up.

    A column that a table lacks is empty there; one that is text in some tables and numbers in others holds both, as
    Python objects. No tables give an empty frame with the columns of every part.
    """
    if not tables:
        return pd.DataFrame(columns=[*TEXTS, *NUMBERS])
    kinds: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for column in table.schema:
            kinds.setdefault(column.name, set()).add(column.type)
    mixed = [name for name, types in kinds.items() if _is_mixed(types)]
    alike = [table.drop_columns([name for name in mixed if name in table.column_names]) for table in tables]
    frame: pd.DataFrame = pa.concat_tables(alike, promote_options="permissive").combine_chunks().to_pandas()
    return frame.assign(**{name: _objects(name, tables) for name in mixed})[list(kinds)]


def _is_mixed(types: Collection[pa.DataType]) -> bool:
    """Whether arrow has no type that holds all of these."""
    try:
        pa.unify_schemas([pa.schema([("column", kind)]) for kind in types], promote_options="permissive")
    except pa.ArrowException:
        return True
    return False


def _objects(name: str, tables: Sequence[pa.Table]) -> pd.Series:
    values = [
        value
        for table in tables
        for value in (table[name].to_pylist() if name in table.column_names else [None] * table.num_rows)
    ]
    return pd.Series(values, dtype=object).where(lambda column: column.notna())
