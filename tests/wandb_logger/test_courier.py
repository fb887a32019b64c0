"""The sweep waits for nobody: whatever the process that talks with W&B does, letters cost nothing and the end comes."""

from __future__ import annotations

import socket
import stat

import pytest

from harness.integrations.wandb_logger import WAITING_LETTERS, Courier

SETTINGS = {"mode": "offline", "project": "p", "entity": None, "group": "g", "tags": [], "wait": 60}
OPEN = {"what": "open", "run": "0", "name": "a run", "config": {"a": 1}}


@pytest.fixture
def python(monkeypatch, tmp_path):
    """Replace the process by a shell script."""

    def become(script: str) -> None:
        file = tmp_path / "python"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr("sys.executable", str(file))

    return become


def courier(folder, **changes) -> Courier:
    return Courier({**SETTINGS, "folder": str(folder), **changes})


def test_a_process_that_reads_nothing_is_stopped_and_letters_beyond_the_queue_are_dropped(python, tmp_path, capfd):
    python("exec sleep 600")
    mute = courier(tmp_path, wait=0.2)
    for _ in range(3 * WAITING_LETTERS):
        mute.send({"what": "log", "text": "x" * 100})
    mute.close()
    assert mute.process.poll() is not None
    assert "did not end within 0.2 s" in capfd.readouterr().err


def test_a_process_that_ends_at_once_stops_nothing(python, tmp_path):
    python("exit 3")
    gone = courier(tmp_path)
    gone.process.wait()
    for _ in range(100):
        gone.send(OPEN)
    gone.close()
    assert gone.process.returncode == 3


def test_what_the_process_says_is_said_once(python, tmp_path, capfd):
    python("echo trouble; echo trouble; exec cat > /dev/null")
    talking = courier(tmp_path)
    talking.close()
    assert capfd.readouterr().err == "trouble\n"


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


@pytest.mark.parametrize("key", ["a" * 40, ""])
def test_online_without_a_server_becomes_offline_and_keeps_everything(address, key, tmp_path, monkeypatch, capfd):
    pytest.importorskip("wandb")
    from wandb_logger.offline_run import OfflineRun

    monkeypatch.setenv("WANDB_BASE_URL", address)
    monkeypatch.setenv("WANDB_API_KEY", key)
    monkeypatch.setenv("HOME", str(tmp_path))  # no key of the person's own
    sent = courier(tmp_path, mode="online")
    sent.send(OPEN)
    sent.send({**OPEN, "run": "1", "name": "another"})
    sent.send({"what": "log", "run": "0", "values": {"x": 7}})
    sent.close()
    said = capfd.readouterr().err
    assert said.count("W&B cannot be reached") == 1
    assert f"wandb sync {tmp_path}/wandb/offline-run-" in said
    runs = {run.name: run for run in map(OfflineRun, (tmp_path / "wandb").glob("offline-run-*"))}
    assert set(runs) == {"a run", "another"}
    assert [step["x"] for step in runs["a run"].history] == [7]


def test_runs_of_a_sweep_that_dies_end_as_failed(tmp_path):
    pytest.importorskip("wandb")
    from wandb_logger.offline_run import OfflineRun

    dying = courier(tmp_path)
    dying.send(OPEN)
    dying.letters.put(None)  # the pipe closes without a last letter, as when a process is killed
    dying.process.wait()
    (run,) = map(OfflineRun, (tmp_path / "wandb").glob("offline-run-*"))
    assert run.exit_code == 1


def test_a_letter_that_wandb_refuses_ends_logging_with_a_sentence(tmp_path, capfd):
    pytest.importorskip("wandb")
    refused = courier(tmp_path)
    refused.send(OPEN)
    refused.send({"what": "lines", "run": "0", "name": "n", "xs": [1], "ys": 3, "keys": 4})
    refused.close()
    assert "W&B stopped (" in capfd.readouterr().err
