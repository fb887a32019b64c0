"""The process of a worker: what it has used, and the signals that stop it.

Use is wall time, device time and energy so far, and the memory that is held now. At SIGINT or SIGTERM a worker drops
the batch that it computes, but never leaves one half stored.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch

_STATM = Path("/proc/self/statm")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
LOOKS = 1.0  # seconds between looks at the parent


@dataclass(frozen=True)
class Usage:
    """``device_seconds``: time for which accelerators were held, added over all of them; without any, seconds
    of processor cores. ``joules``: of all visible accelerators, used by this process or by others; None where they
    have no energy counter.
    """

    wall_seconds: float
    device_seconds: float
    joules: float | None

    def __sub__(self, earlier: Usage) -> Usage:
        known = self.joules is not None and earlier.joules is not None
        return Usage(
            self.wall_seconds - earlier.wall_seconds,
            self.device_seconds - earlier.device_seconds,
            (self.joules or 0.0) - (earlier.joules or 0.0) if known else None,
        )

    def share(self, part: float) -> Usage:
        """A part, from 0 to 1, of what was used together."""
        joules = None if self.joules is None else self.joules * part
        return Usage(self.wall_seconds * part, self.device_seconds * part, joules)


def usage_now(device: torch.device) -> Usage:
    """Use so far, counted from an arbitrary start: the difference of two is what was used in between."""
    if device.type != "cuda":
        return Usage(time.perf_counter(), time.process_time(), None)
    torch.cuda.synchronize(device)
    wall = time.perf_counter()
    return Usage(wall, wall * torch.cuda.device_count(), _joules())


def _joules() -> float | None:
    """The energy counters of all visible accelerators together, by NVML (package nvidia-ml-py); None without."""
    handles = _counters()
    if handles is None:
        return None
    nvml, devices = handles
    try:
        return float(sum(nvml.nvmlDeviceGetTotalEnergyConsumption(device) for device in devices)) / 1000
    except nvml.NVMLError:  # older than Volta, or not permitted
        return None


@cache
def _counters() -> tuple[Any, list[Any]] | None:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        uuids = [torch.cuda.get_device_properties(n).uuid for n in range(torch.cuda.device_count())]
        return nvml, [nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}") for uuid in uuids]
    except nvml.NVMLError:
        return None


def used_bytes() -> int:
    """Bytes that torch has allocated on all GPUs where any is in use, else the resident bytes of this process.

    The largest so far where the system does not report the present size (no /proc).
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return sum(torch.cuda.memory_allocated(device) for device in range(torch.cuda.device_count()))
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


# Signals.


class _Deferred:
    """A signal that waits until a batch is stored."""

    depth = 0
    arrived = False


def _stop(number: int, frame: FrameType | None) -> None:
    if _Deferred.depth:
        _Deferred.arrived = True
    else:
        raise KeyboardInterrupt


@contextmanager
def stoppable() -> Iterator[None]:
    """Within, both signals raise KeyboardInterrupt. In other threads than the main one nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Within, signals wait; KeyboardInterrupt comes at the end."""
    _Deferred.depth += 1
    try:
        yield
    finally:
        _Deferred.depth -= 1
    if not _Deferred.depth and _Deferred.arrived:
        _Deferred.arrived = False
        raise KeyboardInterrupt


def stop_without(parent: int) -> None:
    """Send SIGTERM to this process once the process ``parent`` is its parent no longer, because it has ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOKS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="watches its parent", daemon=True).start()
