"""Tables of cells become one frame as pandas would join them, in one piece."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from harness.store.parts import add_labels, to_frame

SAMPLES = [
    {"sample_id": ["a", "b"], "value": [1.0, 0.5], "cell_id": ["1", "1"], "axis_book": ["Emma", None]},
    {"sample_id": ["a"], "value": [2], "cell_id": ["2"], "axis_depth": [0.5]},
    {"sample_id": ["c"], "value": [3.5], "cell_id": ["3"], "axis_book": [7], "axis_depth": [1.0]},
]
LABELS = [{"cell_id": "one", "seed": 0, "note": "y"}, {"cell_id": "two", "seed": 1, "note": "x"}, {"cell_id": "three"}]
TABLES = [add_labels(pa.table(own), labels) for own, labels in zip(SAMPLES, LABELS, strict=True)]


def test_it_is_what_pandas_makes_of_the_cells():
    frames = [pd.DataFrame(own).assign(**labels) for own, labels in zip(SAMPLES, LABELS, strict=True)]
    pd.testing.assert_frame_equal(to_frame(TABLES), pd.concat(frames, ignore_index=True), check_dtype=False)


def test_text_and_numbers_in_one_column_stay_what_they_are():
    found = to_frame(TABLES)["axis_book"]
    assert found.dtype == object
    assert (found[0], found[3]) == ("Emma", 7)
    assert found[1:3].isna().all()


def test_columns_are_in_one_piece_and_numbers_are_numbers():
    frame = to_frame(TABLES)
    assert list(frame) == ["sample_id", "value", "cell_id", "axis_book", "seed", "note", "axis_depth"]
    assert frame["value"].dtype == np.float64
    assert frame["sample_id"].array.__arrow_array__().num_chunks == 1


def test_no_tables_are_an_empty_frame():
    assert to_frame([]).empty
