"""The store: whole parts or none, whatever happens while one is written."""

from __future__ import annotations

import pandas as pd
import pytest

from harness.store import Store

CELL = {"cell_id": "c0", "policy": "sink", "config": {"format": 1}}


def row(sample: str, value: float = 1.0) -> dict:
    return {"sample_id": sample, "metric": "string_match", "value": value}


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "runs")
    store.describe("c0", CELL)
    return store


def test_rows_come_back_joined_with_their_cell(store):
    store.append("c0", [row("a"), row("b", 0.0)])
    store.append("c0", [row("c")])
    rows = store.load(["c0", "absent"])
    assert sorted(rows["sample_id"]) == ["a", "b", "c"]
    assert set(rows["policy"]) == {"sink"}
    assert store.finished("c0") == {"a", "b", "c"}
    assert store.finished("absent") == set()


def test_a_crash_while_writing_leaves_no_part(store, monkeypatch):
    store.append("c0", [row("a")])

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="No space"):
        store.append("c0", [row("b")])
    assert store.finished("c0") == {"a"}
    assert list(store.load(["c0"])["sample_id"]) == ["a"]


def test_no_rows_give_an_empty_frame(store):
    assert store.load(["c0"]).empty


def test_the_description_of_a_cell_is_written_once(store):
    store.describe("c0", {**CELL, "policy": "other"})
    store.append("c0", [row("a")])
    assert set(store.load(["c0"])["policy"]) == {"sink"}


def test_parts_are_plain_parquet(store):
    store.append("c0", [row("a")])
    (part,) = (store.root / "c0").glob("part-*.parquet")
    assert list(pd.read_parquet(part).columns) == ["cell_id", "sample_id", "metric", "value"]
