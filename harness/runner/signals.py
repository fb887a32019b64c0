"""SIGINT and SIGTERM: a worker drops the batch it computes, but never leaves one half stored."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
