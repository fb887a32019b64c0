"""Batches do not depend on who plans them, when, in which order of cells, nor on the memory of his device."""

from __future__ import annotations

from workers.small_sweeps import cells, order, worked

from harness.runner.plan import plan
from harness.runner.run_settings import RunSettings
from harness.runner.samples import Prompts
from harness.runner.work_queue import WorkQueue
from harness.store.store import Store


def planned(model, results, reverse=False, samples=12):
    there = cells(model, samples)
    return plan(there[0].model, there[::-1] if reverse else there, Store(results / "runs"), Prompts())


def units(work, results, rows):
    """As a worker makes them whose memory takes so many rows."""
    agenda = WorkQueue(results / "runs", work, RunSettings())
    return {
        unit.name: {(job.cell.id, job.sample.id) for job in unit.jobs}
        for unit in agenda.units(lambda jobs: work.of(jobs).batches(2**40, rows))
    }


def test_the_first_worker_decides_and_all_others_agree(model, tmp_path):
    first = units(planned(model, tmp_path), tmp_path, rows=4)
    assert len(first) == 6
    assert units(planned(model, tmp_path, reverse=True), tmp_path, rows=16) == first


def test_every_job_is_in_one_unit_even_where_the_agenda_does_not_know_it(model, tmp_path):
    work = planned(model, tmp_path)
    everything = {(job.cell.id, job.sample.id) for job in work.jobs}
    units(work.of(work.jobs[:10]), tmp_path, rows=4)
    found = units(work, tmp_path, rows=4)
    assert sum(map(len, found.values())) == len(everything)
    assert set().union(*found.values()) == everything


def test_a_damaged_agenda_costs_nothing_but_a_new_one(model, tmp_path):
    work = planned(model, tmp_path)
    units(work, tmp_path, rows=4)
    (file,) = (tmp_path / "runs" / ".work").glob("*/agenda-0.json.gz")
    file.write_bytes(file.read_bytes()[:-20])
    found = units(work, tmp_path, rows=4)
    assert sum(map(len, found.values())) == len(work.jobs)
    assert units(work, tmp_path, rows=9) == found


def test_a_larger_sweep_computes_only_what_the_smaller_one_has_not(model, tmp_path):
    assert worked(order(model, tmp_path, samples=2)).computed == 4
    done = worked(order(model, tmp_path, samples=2))
    assert (done.computed, done.present) == (0, 4)
