"""Claims: one holder at a time, a dead one gives way, and one that was given up learns it before it stores."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from harness.runner.locks import BatchLocks
from harness.store import cell_folders


def claims(folder, worker, seconds=30.0):
    return BatchLocks(folder / "work", seconds, worker)


def silent(claim, seconds=100.0):
    """As if the worker's last heartbeat were long ago, on another machine."""
    file = claim.claims.file(claim.unit, claim.epoch)
    lease = cell_folders.read_lease(file)
    cell_folders.write_lease(file, replace(lease, heartbeat=lease.heartbeat - seconds, host="elsewhere"))


def test_a_unit_has_one_holder_and_is_free_again_after_it(tmp_path):
    with claims(tmp_path, "a").take("0-0") as held:
        assert held.held()
        assert claims(tmp_path, "b").take("0-0") is None
        assert claims(tmp_path, "b").take("0-1") is not None
    assert claims(tmp_path, "b").take("0-0") is not None


def test_of_many_that_try_at_once_one_holds_the_unit(tmp_path):
    for unit in range(20):
        with ThreadPoolExecutor(8) as pool:
            taken = list(pool.map(lambda name, u=unit: claims(tmp_path, name).take(f"0-{u}"), "abcdefgh"))
        assert sum(claim is not None and claim.held() for claim in taken) == 1


def test_a_silent_worker_gives_way_and_cannot_store_any_more(tmp_path):
    frozen = claims(tmp_path, "a").take("0-0")
    silent(frozen)
    taken_over = claims(tmp_path, "b").take("0-0")
    assert taken_over.held()
    assert not frozen.held()
    assert not frozen.renew()
    assert taken_over.renew()


def test_it_cannot_store_even_after_the_other_has_finished(tmp_path):
    frozen = claims(tmp_path, "a").take("0-0")
    silent(frozen)
    with claims(tmp_path, "b").take("0-0"):
        pass
    assert not frozen.renew()
    assert claims(tmp_path, "c").take("0-0").held()
    assert not frozen.renew()


def test_a_worker_whose_process_has_gone_gives_way_at_once(tmp_path):
    dead = multiprocessing.get_context("fork").Process(target=os._exit, args=(0,))
    dead.start()
    dead.join()
    claim = claims(tmp_path, "a").take("0-0")
    file = claim.claims.file("0-0", 1)
    cell_folders.write_lease(file, replace(cell_folders.read_lease(file), pid=dead.pid))
    assert claims(tmp_path, "b").take("0-0") is not None


def test_a_heartbeat_keeps_the_unit_and_shows_on_its_cells(tmp_path):
    cell = tmp_path / "cell"
    cell.mkdir()
    with claims(tmp_path, "a", seconds=0.6).take("0-0", [cell]) as held:
        began = held.claims.lease().heartbeat
        time.sleep(1.0)
        assert held.held()
        (shown,) = cell_folders.leases_of_cell(cell)
        assert shown.alive()
        assert shown.heartbeat > began
        assert claims(tmp_path, "b").take("0-0") is None
    assert not cell_folders.leases_of_cell(cell)


def test_a_claim_that_was_cut_off_while_it_was_written_expires(tmp_path):
    there = claims(tmp_path, "a", seconds=5.0)
    there.folder.mkdir()
    broken = there.file("0-0", 1)
    broken.write_bytes(b'{"worker"')
    assert there.take("0-0") is None
    os.utime(broken, (time.time() - 10, time.time() - 10))
    assert there.take("0-0").epoch == 2
