"""`gc` takes away what workers have left once nobody can need it, and nothing before."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import pandas as pd
import pytest
from workers.small_sweeps import forked, job_spec, locks_held, table, times_stored, wait_until, worked

from harness.atomic_files import ABANDONED
from harness.cli.store import main
from harness.store import cell_folders, parts
from harness.store.cell_folders import Lease
from harness.store.store import Store
from harness.store.work_files import JOB_SPEC_KEPT


def collected(results) -> int:
    return main(["gc", f"results_dir={results}"])


def at_work(results):
    return sorted((results / "runs" / ".work").glob("*"))


def aged(path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.fixture
def interrupted(model, tmp_path):
    """A sweep of which a worker was killed in its second batch."""
    what = job_spec(model, tmp_path, lease=2.0)
    worker = forked(what, slow=0.3)
    wait_until(lambda: list((tmp_path / "runs").glob("*/part-*")) and locks_held(tmp_path))
    worker.kill()
    worker.join()
    return what


def test_of_a_complete_sweep_only_rows_are_left(model, uninterrupted_table, tmp_path, capsys):
    what = job_spec(model, tmp_path)
    worked(what)
    (sweep,) = at_work(tmp_path)
    assert collected(tmp_path) == 0
    assert f"Removed {sweep} (batches of a complete sweep)" in capsys.readouterr().out
    assert at_work(tmp_path) == []
    pd.testing.assert_frame_equal(table(tmp_path), uninterrupted_table)
    assert worked(what).computed == 0


def test_whoever_asks_after_a_sweep_opens_no_part_again(model, tmp_path, monkeypatch):
    """Opening is what `status` spends its time on where no manifest knows the parts."""
    what = job_spec(model, tmp_path, samples=1)
    worked(what)
    monkeypatch.setattr(parts, "open_part", lambda file: pytest.fail(f"{file} was opened"))
    assert main(["status", f"results_dir={tmp_path}"]) == 0
    assert all(Store(tmp_path / "runs").finished(cell.id) for cell in what.cells)


def test_batches_stay_while_a_worker_holds_one_and_for_an_hour_of_silence(interrupted, uninterrupted_table, tmp_path):
    (sweep,) = at_work(tmp_path)
    collected(tmp_path)
    assert at_work(tmp_path) == [sweep], "its lease holds"
    time.sleep(2.1)
    collected(tmp_path)
    assert at_work(tmp_path) == [sweep], "whoever was there a moment ago may come back"
    assert not list((tmp_path / "runs").glob("*/lease-*")), "expired leases of cells go at once"
    aged(sweep, ABANDONED + 10)
    collected(tmp_path)
    assert at_work(tmp_path) == []
    worked(interrupted)
    pd.testing.assert_frame_equal(table(tmp_path), uninterrupted_table)
    assert (times_stored(tmp_path) == 1).all()


def test_a_sweep_that_misses_a_sample_again_is_not_complete(model, tmp_path):
    worked(job_spec(model, tmp_path, samples=1))
    next((tmp_path / "runs").glob("*/part-*")).unlink()
    kept = at_work(tmp_path)
    collected(tmp_path)
    assert at_work(tmp_path) == kept != []


def test_a_living_lease_of_a_cell_stays(model, tmp_path):
    store = Store(tmp_path / "runs")
    store.describe("cell", {"cell_id": "cell", "config": {}})
    living = Lease("w1", "here", 1, time.time(), seconds=60)
    for name, lease in (("a", living), ("b", replace(living, heartbeat=time.time() - 61))):
        cell_folders.write_lease(store.root / "cell" / f"lease-{name}.json", lease)
    (store.root / "cell" / "lease-c.json").write_text("being written")
    collected(tmp_path)
    assert [file.name for file in sorted((store.root / "cell").glob("lease-*"))] == ["lease-a.json", "lease-c.json"]


def test_a_job_spec_goes_when_its_cells_are_complete_or_after_a_month(model, tmp_path):
    unfinished = job_spec(model, tmp_path, samples=2).write()
    collected(tmp_path)
    assert unfinished.exists(), "its cells are not there"
    worked(job_spec(model, tmp_path, samples=1))
    worked(job_spec(model, tmp_path / "other", samples=1))
    finished = job_spec(model, tmp_path / "other", samples=1).write()
    collected(tmp_path)
    collected(tmp_path / "other")
    assert unfinished.exists(), "no sample of its cells is there: other data makes other cells"
    assert not finished.exists()
    aged(unfinished, JOB_SPEC_KEPT + 10)
    collected(tmp_path)
    assert not unfinished.exists()


def test_a_job_spec_whose_cells_want_more_samples_stays(model, tmp_path):
    what = job_spec(model, tmp_path, samples=2)
    worked(what)
    file = what.write()
    cell = tmp_path / "runs" / what.cells[0].id
    (cell / "wanted.json").write_text(json.dumps({"samples": 3}))
    collected(tmp_path)
    assert file.exists()
