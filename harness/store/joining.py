"""Many small tables with their labels as one pandas frame.

Done in arrow and converted once: thousands of small frames take twice as long to put together, and leave text columns
in thousands of pieces, which makes every filter on the whole fifty times as slow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa


def labelled(samples: pa.Table, labels: Mapping[str, Any]) -> pa.Table:
    """The table with each label on every row, in the place of a column of that name or behind all others."""
    for name, value in labels.items():
        column, place = pa.repeat(pa.scalar(value), samples.num_rows), samples.schema.get_field_index(name)
        samples = samples.append_column(name, column) if place < 0 else samples.set_column(place, name, column)
    return samples


def one_frame(tables: Sequence[pa.Table]) -> pd.DataFrame:
    """All rows in the order of the tables, columns in the order in which they first come up.

    A column that a table lacks is empty there; one that is text in some tables and numbers in others holds both, as
    Python objects. No tables give an empty frame.
    """
    if not tables:
        return pd.DataFrame()
    kinds: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for column in table.schema:
            kinds.setdefault(column.name, set()).add(column.type)
    mixed = [name for name, types in kinds.items() if _is_mixed(types)]
    alike = [table.drop_columns([name for name in mixed if name in table.column_names]) for table in tables]
    frame: pd.DataFrame = pa.concat_tables(alike, promote_options="permissive").combine_chunks().to_pandas()
    return frame.assign(**{name: _objects(name, tables) for name in mixed})[list(kinds)]


def _is_mixed(types: Collection[pa.DataType]) -> bool:
    """Whether no type of arrow holds all of these."""
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
