"""Times that can be compared: every contender once per round, rounds repeated, medians and ratios from the same run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call, its kernels included."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def rounds(
    contenders: Mapping[str, Callable[[], object]], repeats: int, device: torch.device
) -> dict[str, list[float]]:
    """Seconds of each contender in each round; one round more is run first and thrown away."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(repeats + 1):
        for name, work in contenders.items():
            spent = seconds(work, device)
            if number:
                taken[name].append(spent)
    return taken


def median(times: list[float]) -> float:
    """The middle one."""
    return statistics.median(times)


def ratio(first: list[float], second: list[float]) -> float:
    """Median over rounds of first / second: what drifts with the machine cancels within a round."""
    return statistics.median(a / b for a, b in zip(first, second, strict=True))
