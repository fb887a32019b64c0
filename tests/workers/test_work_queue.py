"""Batches do not depend on which worker makes them, when, in which order of cells, nor on the memory of its device."""

from __future__ import annotations

from workers.small_sweeps import cells, job_spec, worked

from harness.runner.model_work import ModelWork
from harness.runner.plan import make_batches, plan
from harness.runner.run_settings import RunSettings
from harness.runner.samples import Prompts
from harness.runner.work_queue import WorkQueue
from harness.store.store import Store


def planned(model, results, reverse=False, samples=12):
    there = cells(model, samples)
    return plan(there[0].model, there[::-1] if reverse else there, Store(results / "runs"), Prompts())


def items(plan, results, rows):
    """As a worker makes them whose memory takes so many rows."""
    work = ModelWork.of(plan, Prompts(), RunSettings())

    def batches(jobs):
        for batch in make_batches([job.load for job in jobs], work.footprint, 2**40, rows):
            yield [jobs[place] for place in batch]

    return {item.name: {job.key for job in item.jobs} for item in WorkQueue(results / "runs", work).items(batches)}


def test_the_first_worker_decides_and_all_others_agree(model, tmp_path):
    first = items(planned(model, tmp_path), tmp_path, rows=4)
    assert len(first) == 6
    assert items(planned(model, tmp_path, reverse=True), tmp_path, rows=16) == first


def test_every_job_is_in_one_batch_even_where_the_first_queue_file_does_not_list_it(model, tmp_path):
    work = planned(model, tmp_path)
    everything = {(job.cell.id, job.sample.id) for job in work.jobs}
    items(work.with_jobs(work.jobs[:10]), tmp_path, rows=4)
    found = items(work, tmp_path, rows=4)
    assert sum(map(len, found.values())) == len(everything)
    assert set().union(*found.values()) == everything


def test_a_damaged_queue_file_costs_nothing_but_a_new_one(model, tmp_path):
    work = planned(model, tmp_path)
    items(work, tmp_path, rows=4)
    (file,) = (tmp_path / "runs" / ".work").glob("*/queue-0.json.gz")
    file.write_bytes(file.read_bytes()[:-20])
    found = items(work, tmp_path, rows=4)
    assert sum(map(len, found.values())) == len(work.jobs)
    assert items(work, tmp_path, rows=9) == found


def test_a_larger_sweep_computes_only_what_the_smaller_one_has_not(model, tmp_path):
    assert worked(job_spec(model, tmp_path, samples=2)).computed == 4
    done = worked(job_spec(model, tmp_path, samples=2))
    assert (done.computed, done.present) == (0, 4)
