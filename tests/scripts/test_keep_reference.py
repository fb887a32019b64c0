"""A new reference result of one model leaves what was kept of another, or on other tasks, as it is."""

from __future__ import annotations

import pandas as pd
import pytest

from harness import load_rows
from harness.papers.efficiency_rows import FOLDER as COSTS
from harness.store.loading import pack
from harness.store.store import Store
from scripts.keep_reference import DIAGNOSTICS, keep_costs, keep_diagnostics, keep_rows, shrink


def cells(folder, values, task="niah"):
    """One cell of each model with one row, under ``folder``."""
    store = Store(folder)
    for model, value in values.items():
        labels = {"model": model, "task": task, "prompt": "blocked"}
        store.describe(f"{model}-{value}", {"cell_id": f"{model}-{value}", "config": {}, **labels})
        row = {"sample_id": "s0", "metric": "nll", "value": value}
        store.append(f"{model}-{value}", [row], {"created": "2026-11-21T10:00:00+00:00"})


@pytest.fixture
def folders(tmp_path):
    """A result of ``small``; a reference that has other cells of ``small``, one of another task, and of ``large``."""
    results, kept = tmp_path / "results", tmp_path / "kept"
    cells(results / "runs", {"small": 2.0})
    cells(results / DIAGNOSTICS, {"small": 2.0})
    cells(tmp_path / "earlier" / "runs", {"small": 1.0, "large": 1.0})
    cells(tmp_path / "earlier" / "runs", {"small": 3.0}, task="ruler/vt")
    pack(load_rows(tmp_path / "earlier"), kept)
    cells(kept / DIAGNOSTICS, {"small": 1.0, "large": 1.0})
    for folder, costs in ((results, {"new": "small"}), (kept, {"old": "small", "other": "large"})):
        (folder / COSTS).mkdir()
        for name, model in costs.items():
            pd.DataFrame({"model": [model]}).to_parquet(folder / COSTS / f"{name}.parquet")
    return results, kept


def test_rows_of_the_model_and_task_are_replaced_and_the_others_stay(folders):
    assert keep_rows(*folders) == {"small"}
    assert set(load_rows(folders[1])["cell_id"]) == {"small-2.0", "small-3.0", "large-1.0"}


def test_so_are_its_diagnostics_and_its_costs(folders):
    keep_diagnostics(*folders, {"small"})
    keep_costs(*folders, {"small"})
    assert {cell.name for cell in (folders[1] / DIAGNOSTICS).iterdir()} == {"small-2.0", "large-1.0"}
    assert {file.stem for file in (folders[1] / COSTS).iterdir()} == {"new", "other"}


def test_numbers_of_diagnostics_are_rounded_to_seven_digits_and_the_rest_is_as_it_was(tmp_path):
    file = tmp_path / "row-0.parquet"
    told = pd.DataFrame({"sample_id": ["a", "b"], "layer": [0, 2**40], "loss": [1 / 3, float("nan")]})
    told.to_parquet(file)
    shrink(file)
    found = pd.read_parquet(file)
    assert found["loss"].dtype == "float32"
    pd.testing.assert_frame_equal(found.drop(columns="loss"), told.drop(columns="loss"))
    pd.testing.assert_series_equal(found["loss"], told["loss"], check_dtype=False, rtol=1e-7)


def test_a_folder_that_has_nothing_yet_gets_all_of_it(folders, tmp_path):
    models = keep_rows(folders[0], tmp_path / "first")
    keep_diagnostics(folders[0], tmp_path / "first", models)
    keep_costs(folders[0], tmp_path / "first", models)
    assert set(load_rows(tmp_path / "first")["model"]) == {"small"}
    assert (tmp_path / "first" / DIAGNOSTICS / "small-2.0").is_dir()
    assert (tmp_path / "first" / COSTS / "new.parquet").is_file()
