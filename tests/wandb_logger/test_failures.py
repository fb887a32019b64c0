"""Whatever happens to W&B, the sweep goes on, its end comes soon, and what was logged is kept."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from composed import composed
from omegaconf import OmegaConf
from wandb_logger.offline_run import OfflineRun

from harness.config.cell import Cell
from harness.config.experiments import CONF
from harness.integrations.loggers import GuardedLogger
from harness.integrations.wandb_contents import groups
from harness.integrations.wandb_logger import WandbLogger
from harness.runner.plan import Job
from tasks.base import Sample

wandb = pytest.importorskip("wandb")

SETTINGS = {"mode": "offline", "project": "p", "entity": None, "group": "g", "tags": [], "wait": 60}
NO_ROWS = pd.DataFrame({"cell_id": []})


def cell(*overrides: str) -> Cell:
    return Cell.parse(OmegaConf.to_container(composed("budget=48", *overrides), resolve=True))


def runs(folder) -> dict[str, OfflineRun]:
    return {run.name: run for run in map(OfflineRun, (folder / "wandb").glob("offline-run-*"))}


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture(params=["nobody listens", "nobody answers"])
def address(request):
    """Of a server that is not there, or that takes connections and never says a word."""
    if request.param == "nobody listens":
        yield f"http://127.0.0.1:{closed_port()}"
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """Of a person without a key; wandb reads it anew."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_DATA_DIR", "WANDB_ERROR_REPORTING"):  # the logger sets them
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    wandb.teardown()
    yield monkeypatch
    wandb.teardown()


@pytest.mark.parametrize("key", ["a" * 40, ""])
def test_online_without_a_server_becomes_offline_and_keeps_everything(address, key, tmp_path, environment, capfd):
    environment.setenv("WANDB_BASE_URL", address)
    environment.setenv("WANDB_API_KEY", key)
    logger = WandbLogger({**SETTINGS, "mode": "online"}, tmp_path, "report")
    cells = [cell("block_size=32"), cell("block_size=16")]
    logger.started(cells)
    logger.progress([Job(cells[0], Sample("0", ""), ())])
    logger.finished(NO_ROWS)
    said = capfd.readouterr().err
    assert said.count("W&B cannot be reached") == 1
    assert f"wandb sync {tmp_path}/wandb/offline-run-" in said
    wandb.teardown()  # as at the end of a process: until then the last pieces may be on their way to the disk
    found = runs(tmp_path)
    assert set(found) == {"testbed · niah · blocked 32", "testbed · niah · blocked 16"}
    assert [step["progress/samples"] for step in found["testbed · niah · blocked 32"].history] == [1]
    assert [run.exit_code for run in found.values()] == [0, 0]


def logged(folder: Path) -> None:
    """A sweep of one cell on its way; nobody ends its run."""
    one = cell("block_size=32")
    logger = WandbLogger(SETTINGS, folder, "report")
    logger.started([one])
    for _ in range(1000):
        logger.progress([Job(one, Sample("0", ""), ())])
    time.sleep(1)  # until wandb's service has written what it was given


def readable(folder: Path, exit_code: int | None) -> None:
    """What a killed sweep logged in its last seconds may be missing, and nothing before."""
    (run,) = runs(folder).values()
    assert run.exit_code == exit_code
    assert run.config["shared"]["block_size"] == 32
    numbers = [step["progress/samples"] for step in run.history]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 500


def killed(folder: Path) -> None:
    logged(folder)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_sweep_that_is_killed_leaves_an_offline_run_that_can_be_read(tmp_path, environment):
    sweep = multiprocessing.get_context("fork").Process(target=killed, args=(tmp_path,))
    sweep.start()
    sweep.join()
    assert sweep.exitcode == -signal.SIGKILL
    readable(tmp_path, exit_code=None)


def test_the_run_of_a_sweep_that_is_interrupted_ends_as_failed(tmp_path, environment):
    environment.setenv("PYTHONPATH", f"{CONF.parent}:{CONF.parent / 'tests'}")
    script = "import sys, wandb_logger.test_failures as t; t.logged(t.Path(sys.argv[1])); raise KeyboardInterrupt"
    sweep = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True)
    assert b"KeyboardInterrupt" in sweep.stderr
    readable(tmp_path, exit_code=255)


class StuckRun:
    """A run whose server has fallen silent."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.settings = SimpleNamespace(mode="online")
        self.url = "http://127.0.0.1/run"

    def finish(self, exit_code: int) -> None:
        self.over.wait()


def test_a_server_that_falls_silent_holds_up_the_end_for_no_longer_than_asked(tmp_path, capfd):
    logger = WandbLogger({**SETTINGS, "mode": "online", "wait": 0.2}, tmp_path, "report")
    logger.groups, logger.runs = groups([cell("block_size=32"), cell("block_size=16")]), [StuckRun(), StuckRun()]
    began = time.monotonic()
    logger.finished(NO_ROWS)
    assert time.monotonic() - began < 2
    said = capfd.readouterr().err
    assert "did not take everything within 0.2 s" in said
    assert "logger.mode=offline" in said
    for run in logger.runs:
        run.over.set()


class RefusingRun(StuckRun):
    """A run that ends with an exception."""

    def finish(self, exit_code: int) -> None:
        raise ValueError("no such luck")


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("offline", "The logger stopped (ValueError: no such luck); the sweep goes on."),
        ("online", "W&B did not take everything: no such luck."),
    ],
)
def test_what_wandb_refuses_is_one_sentence(mode, sentence, tmp_path, capfd):
    logger = WandbLogger({**SETTINGS, "mode": mode}, tmp_path, "report")
    logger.groups, logger.runs = groups([cell()]), [RefusingRun()]
    GuardedLogger(logger).finished(NO_ROWS)
    assert sentence in capfd.readouterr().err
