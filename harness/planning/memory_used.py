"""How much memory this process holds now."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import torch

_STATM = Path("/proc/self/statm")


def used_bytes() -> int:
    """Bytes that torch has allocated on all GPUs where any is in use, else the resident bytes of this process.

    Where the system does not tell the present size (no /proc), the largest so far.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return sum(torch.cuda.memory_allocated(device) for device in range(torch.cuda.device_count()))
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024
