"""Where a number came from: commit, versions, hardware."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
from functools import cache
from pathlib import Path

import torch

PACKAGES = (
    "kvreplica",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "safetensors",
    "accelerate",
    "lm-eval",
    "pyarrow",
)


@cache
def git_state() -> str:
    """Short commit hash of the checkout, with ``-dirty`` where files differ from it; empty outside of git."""
    root = Path(__file__).parents[2]
    try:
        out = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=root, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return out.stdout.strip()


@cache
def versions() -> str:
    """``name version`` of every package that decides numbers, of Python, and of CUDA where torch was built with it."""
    found = [f"python {platform.python_version()}"]
    if torch.version.cuda:
        found.append(f"cuda {torch.version.cuda}")
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


@cache
def hardware() -> str:
    """Processor, cores, memory and accelerators in words."""
    count = torch.cuda.device_count()
    names = sorted({torch.cuda.get_device_name(number) for number in range(count)})
    accelerators = f"{count} × {', '.join(names)}" if count else "no GPU"
    return f"{_processor()}, {os.cpu_count()} cores, {_memory()}{accelerators}"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def _memory() -> str:
    meminfo = Path("/proc/meminfo")
    found = re.search(r"MemTotal:\s*(\d+) kB", meminfo.read_text()) if meminfo.exists() else None
    return f"{int(found[1]) / 2**20:.0f} GiB, " if found else ""


def cell_provenance(device: str) -> dict[str, str]:
    """The provenance columns of the ``cells`` table: of the run that opened the cell."""
    return {
        "git": git_state(),
        "versions": versions(),
        "hardware": hardware(),
        "device": device,
        "created": _now(),
    }


def part_provenance(device: str) -> dict[str, str]:
    """What may differ between the parts of one cell when runs on several machines have computed them."""
    return {"git": git_state(), "host": platform.node(), "hardware": hardware(), "device": device, "created": _now()}


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
