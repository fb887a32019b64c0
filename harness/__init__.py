"""Measures KV-cache eviction. For Python: ``from harness import run, load_rows, compare, generate``."""

from __future__ import annotations

import ctypes
import importlib
import os
from typing import TYPE_CHECKING, Any

# Threads of OpenMP that wait for the next operation spin, by default for milliseconds. Two processes on the same cores
# then take each other's time: a third of their speed was left (docs/performance.md). Read when torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # of glibc's <malloc.h>, in bytes


def _keep_freed_memory() -> None:
    """Let the C library keep what tensors free. glibc gives it back to the system, which then clears every page of the
    next tensor: an operation on a megabyte takes up to eight times as long (docs/performance.md)."""
    choose = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None  # glibc has it, others not
    if choose is not None and not any(name.startswith("MALLOC_") for name in os.environ):
        for setting, size in ((_MMAP_THRESHOLD, 2**28), (_TRIM_THRESHOLD, 2**30), (_TOP_PAD, 2**26)):
            choose(setting, size)


_keep_freed_memory()

if TYPE_CHECKING:
    from harness.api.compare import compare
    from harness.api.generate import Generation, generate
    from harness.api.run import run
    from harness.store.loading import load_rows

__all__ = ["Generation", "compare", "generate", "load_rows", "run"]

_HOMES = {
    "Generation": "harness.api.generate",
    "compare": "harness.api.compare",
    "generate": "harness.api.generate",
    "load_rows": "harness.store.loading",
    "run": "harness.api.run",
}


def __getattr__(name: str) -> Any:
    """Each name is imported when it is first used: ``import harness`` loads neither torch nor pandas."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'harness' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
