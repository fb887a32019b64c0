"""A real Ray cluster on loopback: a head and two nodes, one of which is killed in mid-sweep; the sweep completes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest
from workers.small_sweeps import POLICIES, SAMPLES, order, table, times_stored, units_held, wait_until

from harness.launchers.launch import launch
from harness.prompts import Prompts
from harness.terminal import Progress

pytest.importorskip("ray")
RAY = Path(sys.executable).parent / "ray"
ENVIRONMENT = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(Path(__file__).parents[2])}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def cluster(tmp_path_factory):
    """Address of a head without a place for workers, and its two nodes."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    small = ["--object-store-memory=80000000", "--block"]
    head = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false"]
    node = [f"--address={address}", "--num-cpus=1"]
    file = tmp_path_factory.mktemp("ray") / "log.txt"
    log = file.open("wb")

    def started(*words):
        command = [str(RAY), "start", *words, *small]
        return subprocess.Popen(command, env=ENVIRONMENT, stdout=log, stderr=log, start_new_session=True)

    running = [started(*head)]

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(answers, 60)
        running += [started(*node), started(*node)]
        wait_until(lambda: file.read_text().count("Ray runtime started") == 3, 90)
        yield address, running[1:]
    finally:
        for process in running:
            end(process)
        log.close()


def end(node: subprocess.Popen) -> None:
    """Kill a node and every process of it, as if its machine were lost."""
    if node.poll() is None:
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()


def node_of(pid: int, nodes) -> subprocess.Popen | None:
    """The node under which a worker's process runs."""
    groups = {process.pid: process for process in nodes}
    return groups.get(os.getsid(pid))


def test_a_node_is_lost_in_mid_sweep_and_the_sweep_completes(model, uninterrupted_table, tmp_path, cluster):
    address, nodes = cluster
    lost = []

    def lose_a_node():
        wait_until(lambda: units_held(tmp_path), 120)
        pid = json.loads(units_held(tmp_path)[0].read_bytes())["pid"]
        lost.append(node_of(pid, nodes) or nodes[0])
        end(lost[0])

    killer = threading.Thread(target=lose_a_node, daemon=True)
    killer.start()
    settings = {"name": "ray", "workers": 2, "address": address, "gpus": 0, "cpus": 1, "retries": 3}
    what = order(model, tmp_path, lease=3.0)
    done = launch(what, settings, Prompts(), Progress(shown=False))
    killer.join()
    assert lost
    assert done.computed == len(POLICIES) * SAMPLES
    assert (times_stored(tmp_path) == 1).all()
    pd.testing.assert_frame_equal(table(tmp_path), uninterrupted_table)
