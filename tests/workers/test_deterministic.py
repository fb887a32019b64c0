"""deterministic=true: the same rows bit for bit, after an interruption too, and the width of each batch on record."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from workers.small_sweeps import job_spec, table, times_stored, worked

from harness.engine.engine import Engine
from harness.errors import UserError
from harness.store.store import Store


@pytest.fixture(autouse=True)
def as_before():
    yield
    torch.use_deterministic_algorithms(False)


def parts(results):
    store = Store(results / "runs")
    return [part for cell in store.cells() for part in store.parts(cell)]


def test_two_runs_are_the_same_bit_for_bit(model, tmp_path):
    for name in ("a", "b"):
        worked(job_spec(model, tmp_path / name, deterministic=True))
    assert torch.are_deterministic_algorithms_enabled()
    pd.testing.assert_frame_equal(table(tmp_path / "a"), table(tmp_path / "b"), check_exact=True)


def test_what_is_missing_of_a_batch_is_computed_at_the_width_of_the_whole(model, tmp_path):
    what = job_spec(model, tmp_path, deterministic=True)
    worked(what)
    before = table(tmp_path)
    lost = parts(tmp_path)[0]
    (tmp_path / "runs" / lost.cell_id / lost.name).unlink()
    assert worked(what).computed == len(lost.samples)
    pd.testing.assert_frame_equal(table(tmp_path), before, check_exact=True)
    assert (times_stored(tmp_path) == 1).all()
    assert {part.spent["batch_rows"] for part in parts(tmp_path)} == {4}
    assert all(part.spent["deterministic"] for part in parts(tmp_path))


def test_a_batch_that_does_not_fit_is_not_halved_behind_ones_back(model, tmp_path, monkeypatch):
    def never(self, *arguments):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Engine, "generate", never)
    with pytest.raises(UserError, match="set batch_rows to fewer rows"):
        worked(job_spec(model, tmp_path, deterministic=True))
