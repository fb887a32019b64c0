"""The disk fills up while three workers compute: all stop with a sentence, nothing is corrupt, and resume completes."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import time

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

from harness.errors import UserError
from harness.runner.locks import BatchLocks
from harness.store import maintenance
from harness.store.store import Store

EVERYTHING = len(POLICIES) * SAMPLES


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MiB, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root and the right to mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def complaints():
    """A pipe that workers write their last words to, and all of these once the workers have ended."""
    reading, writing = os.pipe()

    def read() -> str:
        os.close(writing)
        with os.fdopen(reading) as stream:
            return stream.read()

    return writing, read


def kept_full(disk, workers):
    """Somebody else's file takes all room that is left or becomes free, until the workers have ended."""
    other = disk / "somebody-elses"
    with other.open("wb", buffering=0) as stream:
        while any(worker.is_alive() for worker in workers):
            try:
                stream.write(bytes(4096))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                time.sleep(0.001)
    return other


def little_room_from_the_second_batch_on(number: int) -> None:
    """For a worker: none of its files may grow beyond 1000 bytes, which is enough for locks and not for a part."""
    if number > 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))


def assert_stopped_in_the_middle(results, workers, said):
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 2
    assert said.count("Results cannot be written to") == len(workers)
    assert said.count("then run the same command again: what was finished is kept") == len(workers)
    assert "Traceback" not in said
    assert locks_held(results) == []
    assert not list((results / "runs").rglob("*.tmp"))
    assert list(maintenance.find_damage(Store(results / "runs"))) == []
    stored = times_stored(results)
    assert 0 < len(stored) < EVERYTHING
    assert (stored == 1).all()


def assert_resumed(results, what, uninterrupted):
    before = len(times_stored(results))
    assert worked(what).computed == EVERYTHING - before
    assert (times_stored(results) == 1).all()
    pd.testing.assert_frame_equal(table(results), uninterrupted)


def test_a_disk_that_fills_up_under_three_workers(model, uninterrupted_table, small_disk, complaints):
    what = job_spec(model, small_disk)
    stderr, said = complaints
    workers = [forked(what, slow=0.5, stderr=stderr) for _ in range(3)]
    wait_until(lambda: list(small_disk.glob("runs/*/part-*")), 60)
    other = kept_full(small_disk, workers)
    words = said()
    assert_stopped_in_the_middle(small_disk, workers, words)
    assert words.count("(No space left on device). Free space there") == 3
    other.unlink()
    assert_resumed(small_disk, what, uninterrupted_table)


def test_workers_whose_files_may_not_grow_any_more(model, uninterrupted_table, tmp_path, complaints):
    """As on a full disk, for everybody who may not mount one: the system refuses to write parts."""
    what = job_spec(model, tmp_path)
    stderr, said = complaints
    workers = [forked(what, stderr=stderr, begins=little_room_from_the_second_batch_on) for _ in range(3)]
    for worker in workers:
        worker.join(60)
    assert_stopped_in_the_middle(tmp_path, workers, said())
    assert_resumed(tmp_path, what, uninterrupted_table)


def test_a_lock_for_which_there_is_no_room_is_not_there(tmp_path, monkeypatch):
    """Otherwise all workers would wait for it until it expires."""
    locks = BatchLocks(tmp_path, 30.0, "a")
    held = locks.take("0-0")

    def full(handle, mode):
        os.close(handle)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("harness.runner.locks.os.fdopen", full)
        with pytest.raises(UserError, match="Free space there"):
            held.renew()
        with pytest.raises(UserError, match="Free space there"):
            locks.take("0-1")
    assert held.held()
    assert BatchLocks(tmp_path, 30.0, "b").take("0-1") is not None
