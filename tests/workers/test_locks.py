"""Locks: one holder at a time, a dead one gives way, and one that was given up learns it before it stores."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from harness.runner.locks import BatchLocks
from harness.store import cell_folders


def locks(folder, worker, seconds=30.0):
    return BatchLocks(folder / "work", seconds, worker)


def silent(lock, seconds=100.0):
    """As if the worker's last heartbeat were long ago, on another machine."""
    file = lock.locks.file(lock.batch, lock.epoch)
    lease = cell_folders.read_lease(file)
    cell_folders.write_lease(file, replace(lease, heartbeat=lease.heartbeat - seconds, host="elsewhere"))


def test_a_batch_has_one_holder_and_is_free_again_after_it(tmp_path):
    with locks(tmp_path, "a").take("0-0") as held:
        assert held.held()
        assert locks(tmp_path, "b").take("0-0") is None
        assert locks(tmp_path, "b").take("0-1") is not None
    assert locks(tmp_path, "b").take("0-0") is not None


def test_of_many_that_try_at_once_one_holds_the_batch(tmp_path):
    for number in range(20):
        with ThreadPoolExecutor(8) as pool:
            taken = list(pool.map(lambda name, n=number: locks(tmp_path, name).take(f"0-{n}"), "abcdefgh"))
        assert sum(lock is not None and lock.held() for lock in taken) == 1


def test_a_silent_worker_gives_way_and_cannot_store_any_more(tmp_path):
    frozen = locks(tmp_path, "a").take("0-0")
    silent(frozen)
    taken_over = locks(tmp_path, "b").take("0-0")
    assert taken_over.held()
    assert not frozen.held()
    assert not frozen.renew()
    assert taken_over.renew()


def test_it_cannot_store_even_after_the_other_has_finished(tmp_path):
    frozen = locks(tmp_path, "a").take("0-0")
    silent(frozen)
    with locks(tmp_path, "b").take("0-0"):
        pass
    assert not frozen.renew()
    assert locks(tmp_path, "c").take("0-0").held()
    assert not frozen.renew()


def test_a_worker_whose_process_has_gone_gives_way_at_once(tmp_path):
    dead = multiprocessing.get_context("fork").Process(target=os._exit, args=(0,))
    dead.start()
    dead.join()
    lock = locks(tmp_path, "a").take("0-0")
    file = lock.locks.file("0-0", 1)
    cell_folders.write_lease(file, replace(cell_folders.read_lease(file), pid=dead.pid))
    assert locks(tmp_path, "b").take("0-0") is not None


def test_a_heartbeat_keeps_the_batch_and_shows_on_its_cells(tmp_path):
    cell = tmp_path / "cell"
    cell.mkdir()
    with locks(tmp_path, "a", seconds=0.6).take("0-0", [cell]) as held:
        began = held.locks.lease().heartbeat
        time.sleep(1.0)
        assert held.held()
        (shown,) = cell_folders.leases_of_cell(cell)
        assert shown.alive()
        assert shown.heartbeat > began
        assert locks(tmp_path, "b").take("0-0") is None
    assert not cell_folders.leases_of_cell(cell)


def test_a_lock_that_was_cut_off_while_it_was_written_expires(tmp_path):
    there = locks(tmp_path, "a", seconds=5.0)
    there.folder.mkdir()
    broken = there.file("0-0", 1)
    broken.write_bytes(b'{"worker"')
    assert there.take("0-0") is None
    os.utime(broken, (time.time() - 10, time.time() - 10))
    assert there.take("0-0").epoch == 2
