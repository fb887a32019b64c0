"""All rows of a results folder as one small file, to be kept under version control or sent to somebody.

What is packed can be read (`harness.store.load_rows`, reports, claims), not added to: sweeps go on in ``runs/``.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from harness.store.writing import not_written, write_atomically
from harness.user_error import UserError

FILE = "rows.parquet"
AS_JSON = b"kvreplica.json"  # columns that hold text in some cells and numbers in others, which no parquet column does


def pack(rows: pd.DataFrame, to: Path) -> Path:
    """Write the rows of `harness.store.load_rows` as ``<to>/rows.parquet`` and return that file.

    Ordered by cell, sample and metric, so that the same rows give the same bytes with the same pyarrow. Raises
    `UserError` where there are no rows or the file cannot be written.
    """
    if rows.empty:
        raise UserError("There are no rows to pack: choose the right folder with --results-dir <folder>.")
    ordered = rows.sort_values(["cell_id", "sample_id", "metric"], kind="stable", ignore_index=True)
    mixed = [str(name) for name in ordered if ordered[name].dropna().map(type).nunique() > 1]
    table = pa.Table.from_pandas(
        ordered.assign(**{name: ordered[name].map(_json) for name in mixed}), preserve_index=False
    )
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), AS_JSON: json.dumps(mixed)})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    try:
        to.mkdir(parents=True, exist_ok=True)
        write_atomically(to / FILE, buffer.getvalue())
    except OSError as error:
        raise not_written(to, error) from error
    return to / FILE


def unpacked(file: Path) -> pd.DataFrame:
    """The rows of such a file. Raises `UserError` where it is damaged."""
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{file} cannot be read ({error}): restore it, or pack the rows again.") from error
    rows: pd.DataFrame = table.to_pandas()
    mixed = json.loads((table.schema.metadata or {}).get(AS_JSON, b"[]"))
    return rows.assign(**{name: rows[name].map(json.loads, na_action="ignore") for name in mixed})


def _json(value: Any) -> str | None:
    return None if pd.isna(value) else json.dumps(value)
