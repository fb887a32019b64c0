"""What stands for what at scale=mini (``results/published/mini.yaml``): one place for verdicts and for tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

import yaml

from harness.published.places import FOLDER

TESTBED = "testbed"


@cache
def _written() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "mini.yaml").read_text())
    return found


def task(label: str, measured: Collection[str]) -> str:
    """The label itself where it was measured, else the mini task that stands for it; empty where neither was."""
    stands = str(_written()["tasks"].get(label, ""))
    return label if label in measured else stands if stands in measured else ""


def tasks(labels: Iterable[str], measured: Collection[str]) -> list[str]:
    """The measured tasks that stand for these, each once: several of a paper's tasks may share one."""
    return list(dict.fromkeys(found for label in labels if (found := task(label, measured))))


def metrics(metric: str) -> tuple[str, ...]:
    """Metrics of mini tasks that stand for the papers' one, the preferred first."""
    return tuple(_written()["metrics"].get(metric, ()))


def budget(paper: str, asked: str) -> str:
    """The share that stands for the paper's budget; the budget itself where none does."""
    return str(_written()["budgets"].get(paper, {}).get(asked, asked))


def block_size(paper: str, asked: int) -> int:
    """Tokens of the block that stands for the paper's; its own where none does."""
    return int(_written()["block_sizes"].get(paper, {}).get(asked, asked))
