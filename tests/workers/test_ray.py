"""A real Ray cluster on loopback: a head and two nodes, one of which is killed in mid-sweep; the sweep completes."""

from __future__ import annotations

import threading
import time

import pandas as pd
import pytest
from workers.ray_cluster import PATIENCE, Cluster, Node
from workers.small_sweeps import POLICIES, SAMPLES, job_spec, locks_held, table, times_stored

from harness.runner.launchers import launch
from harness.runner.progress import Progress
from harness.runner.samples import Prompts
from harness.store import cell_folders

pytest.importorskip("ray")
EVERYTHING = len(POLICIES) * SAMPLES


@pytest.fixture
def cluster():
    started = Cluster(nodes=2)
    yield started
    started.end()


def at_work(results, cluster: Cluster) -> list[Node]:
    """The nodes of which a worker holds a batch."""
    held = [lease for file in locks_held(results) if (lease := cell_folders.read_lease(file)) is not None]
    return [node for node in cluster.nodes if any(node.runs(lease.pid) for lease in held)]


def test_a_node_is_lost_in_mid_sweep_and_the_sweep_completes(model, uninterrupted_table, tmp_path, cluster):
    stored_until_then = []

    def lose_a_node():
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for node in at_work(tmp_path, cluster)[:1]:
                node.lose()
                stored_until_then.append(len(times_stored(tmp_path)))
                return
            time.sleep(0.01)

    killer = threading.Thread(target=lose_a_node, daemon=True)
    killer.start()
    settings = {"name": "ray", "workers": 2, "address": cluster.address, "gpus": 0, "cpus": 1, "retries": 3}
    done = launch(job_spec(model, tmp_path, lease=10.0), settings, Prompts(), Progress(shown=False))
    killer.join()
    assert sum(node.process.poll() is None for node in cluster.nodes) == 1
    assert [stored < EVERYTHING for stored in stored_until_then] == [True], "a node was lost in mid-sweep"
    assert done.computed == EVERYTHING
    assert (times_stored(tmp_path) == 1).all()
    pd.testing.assert_frame_equal(table(tmp_path), uninterrupted_table)
