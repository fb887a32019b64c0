"""What is recorded beside numbers: code, versions, machine, time and energy."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from harness.config import provenance
from harness.runner import process
from harness.runner.process import Usage


def test_a_record_says_code_versions_and_machine():
    record = provenance.cell_provenance("cpu")
    assert set(record) >= {"git", "versions", "hardware", "device", "created"}
    assert f"torch {torch.__version__}" in record["versions"]
    assert "cores" in record["hardware"]
    assert json.loads(json.dumps(record)) == record
    assert set(provenance.part_provenance("cpu")) == {"git", "host", "hardware", "device", "created"}


def test_what_was_spent_between_and_shares_of_it():
    cost = Usage(5.0, 7.0, 100.0) - Usage(1.0, 2.0, 40.0)
    assert cost == Usage(4.0, 5.0, 60.0)
    assert cost.share(0.25) == Usage(1.0, 1.25, 15.0)
    assert (Usage(5.0, 7.0, 100.0) - Usage(1.0, 2.0, None)).joules is None
    assert Usage(1.0, 1.0, None).share(0.5).joules is None


def test_a_processor_says_its_time_and_no_energy():
    before = process.usage_now(torch.device("cpu"))
    sum(range(10**6))
    cost = process.usage_now(torch.device("cpu")) - before
    assert cost.wall_seconds > 0
    assert cost.device_seconds > 0
    assert cost.joules is None


@pytest.fixture
def two_gpus(monkeypatch):
    """Two accelerators whose counters stand at 1500 and 2500 millijoules, as NVML would say it."""
    counters = {"GPU-a": 1500, "GPU-b": 2500}

    class NVMLError(Exception):
        pass

    nvml = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetTotalEnergyConsumption=counters.__getitem__,
    )
    monkeypatch.setattr("importlib.import_module", lambda name: nvml)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda n: SimpleNamespace(uuid="ab"[n]))
    process._counters.cache_clear()
    yield nvml
    process._counters.cache_clear()


def test_energy_is_added_over_the_visible_accelerators(two_gpus):
    found = process.usage_now(torch.device("cuda"))
    assert found.joules == 4.0
    assert found.device_seconds == 2 * found.wall_seconds


def test_an_accelerator_that_says_no_energy_gives_none(two_gpus):
    def refuses(_):
        raise two_gpus.NVMLError

    two_gpus.nvmlDeviceGetTotalEnergyConsumption = refuses
    assert process.usage_now(torch.device("cuda")).joules is None
