"""Where a number came from: commit, versions, hardware."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import torch

PACKAGES = ("kvreplica", "torch", "transformers", "tokenizers", "numpy")


@cache
def git_state() -> str:
    """Short commit hash of the checkout, with ``-dirty`` where files differ from it; empty outside of git."""
    root = Path(__file__).parent.parent
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
    """``name version`` of every package that decides numbers, and Python's."""
    found = [f"python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


@cache
def hardware() -> str:
    """Processor, cores and accelerator in words."""
    accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {accelerator}"


def record(device: str) -> dict[str, str]:
    """The provenance columns of the ``cells`` table."""
    return {
        "git": git_state(),
        "versions": versions(),
        "hardware": hardware(),
        "device": device,
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }
