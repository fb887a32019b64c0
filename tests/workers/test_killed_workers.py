"""Whatever happens to workers, the table is the one that an undisturbed worker stores, no sample twice."""

from __future__ import annotations

import os
import random
import signal

import pandas as pd
import pytest
from workers.small_sweeps import (
    POLICIES,
    SAMPLES,
    forked,
    job_spec,
    locks_held,
    table,
    times_stored,
    wait_until,
    worked,
)

from harness.runner.run_settings import Shard
from harness.store import cell_folders


def at_work(results, workers):
    """Those of the workers that hold a batch."""
    found = [cell_folders.read_lease(file) for file in locks_held(results)]
    pids = {lease.pid for lease in found if lease is not None}
    return [worker for worker in workers if worker.pid in pids]


def assert_complete(results, uninterrupted):
    pd.testing.assert_frame_equal(table(results), uninterrupted)
    stored = times_stored(results)
    assert len(stored) == len(POLICIES) * SAMPLES
    assert (stored == 1).all()


def test_three_workers_of_which_four_are_killed_leave_the_same_table(model, uninterrupted_table, tmp_path):
    draw = random.Random(1)
    what = job_spec(model, tmp_path)
    workers = [forked(what, slow=0.5) for _ in range(3)]
    for _ in range(4):
        wait_until(lambda: at_work(tmp_path, workers))
        victim = draw.choice(at_work(tmp_path, workers) or workers)
        victim.kill()
        victim.join()
        assert victim.exitcode == -signal.SIGKILL
        workers[workers.index(victim)] = forked(what, slow=0.5)
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert_complete(tmp_path, uninterrupted_table)
    assert locks_held(tmp_path) == []


def test_a_worker_frozen_past_its_lease_stores_nothing_when_it_wakes(model, uninterrupted_table, tmp_path):
    what = job_spec(model, tmp_path, lease=1.0)
    frozen = forked(what, slow=0.6)
    wait_until(lambda: locks_held(tmp_path))
    os.kill(frozen.pid, signal.SIGSTOP)
    finished = worked(what)
    assert finished.computed == len(POLICIES) * SAMPLES
    os.kill(frozen.pid, signal.SIGCONT)
    frozen.join(60)
    assert frozen.exitcode == 0
    assert_complete(tmp_path, uninterrupted_table)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_asked_to_stop_gives_its_batch_back(model, uninterrupted_table, tmp_path, number):
    what = job_spec(model, tmp_path)
    worker = forked(what, slow=0.5)
    wait_until(lambda: locks_held(tmp_path))
    os.kill(worker.pid, number)
    worker.join(60)
    assert worker.exitcode == 130
    assert locks_held(tmp_path) == []
    worked(what)
    assert_complete(tmp_path, uninterrupted_table)


def test_shards_cover_everything_once(model, uninterrupted_table, tmp_path):
    """Even where they share no folder while they run."""
    whole = job_spec(model, tmp_path)
    for number in (1, 2, 3):
        before = times_stored(tmp_path) if number > 1 else []
        done = worked(job_spec(model, tmp_path, shard=Shard(number, 3)))
        assert done.computed == len(POLICIES) * SAMPLES // 3
        assert len(times_stored(tmp_path)) == len(before) + done.computed
    assert worked(whole).computed == 0
    assert_complete(tmp_path, uninterrupted_table)
