"""The store: whole parts or none, whatever happens while one is written; every sample once."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import time

import pandas as pd
import pyarrow.parquet as pq
import pytest
from harness_stores import appended_in_a_process, description, files, flip_a_bit, in_a_process, opened, row

from harness.errors import UserError
from harness.store import parts
from harness.store.cell_folders import DamagedCellError
from harness.store.loading import load_rows
from harness.store.parts import DamagedPartError
from harness.store.store import Store


@pytest.fixture
def opened_store(tmp_path):
    store, (cell_id,) = opened(tmp_path, description())
    return store, cell_id


def test_rows_come_back_joined_with_their_cell(opened_store):
    store, cell = opened_store
    store.append(cell, [row("a"), row("b", 0.0)])
    store.append(cell, [row("c")])
    rows = store.load([cell, "absent"])
    assert list(rows["sample_id"]) == ["a", "b", "c"]
    assert set(rows["policy"]) == {"sink"}
    assert store.finished(cell) == {"a", "b", "c"}
    assert store.finished("absent") == set()


def test_no_rows_give_an_empty_frame(opened_store):
    store, cell = opened_store
    assert store.load([cell]).empty
    assert {"cell_id", "sample_id", "metric", "value"} <= set(store.load([cell])), "so that a filter on it works"


def test_the_description_of_a_cell_is_written_once(opened_store):
    store, cell = opened_store
    store.describe(cell, {**description(), "policy": "other"})
    store.append(cell, [row("a")])
    assert set(store.load([cell])["policy"]) == {"sink"}


def test_parts_are_plain_parquet_and_say_what_they_cost(opened_store):
    store, cell = opened_store
    store.append(cell, [row("a", axis_depth=20)], {"wall_seconds": 1.5, "joules": None})
    (file,) = files(store, cell)
    assert list(pd.read_parquet(file).columns) == [
        "cell_id", "sample_id", "metric", "value", "weight", "invalid", "axis_depth",
    ]  # fmt: skip
    assert store.parts(cell)[0].spent == {"wall_seconds": 1.5, "joules": None}
    assert pq.read_metadata(file).metadata[parts.METADATA_KEY] == b'{"joules": null, "wall_seconds": 1.5}'


def test_rows_with_different_columns_and_kinds_of_values_are_kept_together(opened_store):
    store, cell = opened_store
    store.append(cell, [row("a", axis_depth=20), row("b", axis_length=9, axis_depth="deep")])
    rows = store.load([cell]).set_index("sample_id")
    assert rows["axis_depth"].to_dict() == {"a": "20", "b": "deep"}
    assert rows.loc["b", "axis_length"] == 9


def test_a_sample_that_two_workers_have_written_counts_once_and_the_same_for_every_reader(tmp_path):
    order = [[row("a", 0.0), row("a", 0.5, "f1"), row("b")], [row("a", 1.0), row("a", 0.7, "f1"), row("c")]]
    found = []
    for number, batches in enumerate((order, order[::-1])):
        store, (cell,) = opened(tmp_path / str(number), description())
        for batch in batches:
            store.append(cell, batch)
        found.append(Store(store.root).load([cell]))
        assert store.finished(cell) == {"a", "b", "c"}
    pd.testing.assert_frame_equal(*found)
    assert list(zip(found[0]["sample_id"], found[0]["metric"], strict=True)) == [
        ("a", "string_match"), ("a", "f1"), ("b", "string_match"), ("c", "string_match"),
    ]  # fmt: skip
    assert tuple(found[0]["value"][:2]) in {(0.0, 0.5), (1.0, 0.7)}, "metrics of one sample come from one part"


def test_tables_do_not_depend_on_how_rows_were_cut_into_parts(tmp_path):
    rows = [row(f"s{number}", number / 7) for number in range(9)]
    found = []
    for number, cut in enumerate((1, 4)):
        store, (cell,) = opened(tmp_path / str(number), description())
        for start in range(0, 9, cut):
            store.append(cell, rows[start : start + cut])
        found.append(store.load([cell]))
    pd.testing.assert_frame_equal(*found)


def test_the_manifest_is_a_cache_only(opened_store):
    store, cell = opened_store
    store.append(cell, [row("a")])
    store.remember()
    (manifest,) = store.root.glob("manifest-*.json")
    store.append(cell, [row("b")])
    assert Store(store.root).finished(cell) == {"a", "b"}, "what the manifest lacks is read from the parts"
    for content in (b"{}", b"", manifest.read_bytes().replace(b'"a"', b'"x"')):
        manifest.write_bytes(content)
        assert Store(store.root).finished(cell) == {"a", "b"}, "a damaged manifest is not believed"
    manifest.unlink()
    assert Store(store.root).finished(cell) == {"a", "b"}
    files(store, cell)[0].unlink()
    store.remember()
    assert len(Store(store.root).finished(cell)) == 1, "what the manifest remembers of a part that has gone is nothing"


def test_parts_that_the_manifest_knows_are_not_opened_again(opened_store, monkeypatch):
    store, cell = opened_store
    store.append(cell, [row("a")])
    store.remember()
    monkeypatch.setattr(parts, "open_part", lambda file: pytest.fail(f"{file} was opened"))
    assert Store(store.root).finished(cell) == {"a"}


def test_damage_never_reaches_a_table(opened_store, tmp_path):
    store, cell = opened_store
    store.append(cell, [row("a")])
    (file,) = files(store, cell)
    flip_a_bit(file)
    for read in (lambda: Store(store.root).finished(cell), lambda: store.load([cell]), lambda: load_rows(tmp_path)):
        with pytest.raises(DamagedPartError, match="verify --repair"):
            read()


def test_a_damaged_description_is_named(opened_store, tmp_path):
    store, cell = opened_store
    store.append(cell, [row("a")])
    (store.root / cell / "cell.json").write_text('{"cell_id": ')
    with pytest.raises(DamagedCellError, match=r"cell\.json is damaged.*verify --repair"):
        load_rows(tmp_path)


@pytest.mark.parametrize("call", ["os.fsync", "pathlib.Path.replace"])
def test_a_failure_while_writing_leaves_no_part_and_stops_with_a_sentence(opened_store, monkeypatch, call):
    store, cell = opened_store
    store.append(cell, [row("a")])

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(call, fails)
    with pytest.raises(UserError, match=r"No space left on device.*Free space there.*run the same command again"):
        store.append(cell, [row("b")])
    monkeypatch.undo()
    assert store.finished(cell) == {"a"}
    assert list(store.load([cell])["sample_id"]) == ["a"]
    assert not list(store.root.rglob("*.tmp"))


def test_killed_writers_leave_whole_parts_only(opened_store):
    store, cell = opened_store
    draw = random.Random(0)
    for number in range(4):
        started = multiprocessing.get_context("spawn").Event()
        process = in_a_process(store.root, cell, [f"{number}-{n}" for n in range(10**6)], started)
        assert started.wait(60)
        time.sleep(draw.random() / 10)
        process.kill()
        process.join()
    finished = Store(store.root).finished(cell)
    assert {sample.partition("-")[0] for sample in finished} == {"0", "1", "2", "3"}
    assert set(store.load([cell])["sample_id"]) == finished
    for number in range(4):
        own = {int(sample.partition("-")[2]) for sample in finished if sample.startswith(f"{number}-")}
        assert own == set(range(len(own))), "everything before the last is there"


def test_workers_append_to_one_cell_at_the_same_time(opened_store):
    store, cell = opened_store
    workers = [in_a_process(store.root, cell, [f"{name}{n}" for n in range(20)]) for name in "xy"]
    for worker in workers:
        worker.join()
    assert store.finished(cell) == {f"{name}{n}" for name in "xy" for n in range(20)}
    assert len(store.load([cell])) == 40


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 512 KiB, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root and the right to mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_stops_clearly_keeps_what_was_finished_and_resume_works(small_disk):
    store, (cell,) = opened(small_disk, description())
    written = []

    def fill() -> None:
        for number in range(1000):
            store.append(cell, [row(f"s{number}", prediction=os.urandom(8000).hex())])
            written.append(f"s{number}")

    with pytest.raises(UserError, match=r"No space left on device.*Free space there"):
        fill()
    assert len(written) > 5
    store.remember()  # a manifest that cannot be written costs nothing but time
    fresh = Store(store.root)
    assert fresh.finished(cell) == set(written)
    assert set(fresh.load([cell])["sample_id"]) == set(written)
    assert not list(store.root.rglob("*.tmp"))
    with pytest.raises(UserError, match="No space left"):
        store.describe("another", {**description("other"), "cell_id": "another", "filler": os.urandom(60000).hex()})
    subprocess.run(["mount", "-o", "remount,size=2m", small_disk], check=True)
    appended_in_a_process(store.root, cell, [f"s{len(written)}"])
    assert fresh.finished(cell) == {*written, f"s{len(written)}"}
