"""Where a comparison can show something: dense is above the task's floor, and not everything is tied at an end.

A method is measured by what it loses of dense. On a task where dense scores what an answer by chance gets there is
nothing to lose, and where every method has every answer right (or none) there is nothing to tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import yaml

from harness.analysis.statistics import mean_interval
from harness.papers.cell_index import CellRows
from harness.papers.published import FOLDER

CEILING = 1.0  # of every score in rows


@dataclass(frozen=True)
class DenseGate:
    """The score of dense on a task, [0, 1], with the lower bound of its 95 % interval, and the task's floor."""

    task: str
    score: float
    low: float
    floor: float

    @property
    def is_open(self) -> bool:
        """Whether dense is clearly above the floor."""
        return self.low > self.floor

    @property
    def sentence(self) -> str:
        """``dense .00, at the floor``; empty where the gate is open."""
        if self.is_open:
            return ""
        floor = f" of {short(self.floor)}" if self.floor else ""
        return f"dense {short(self.score)}, at the floor{floor}"


def dense_gate(dense: CellRows, scores: pd.Series, metric: str = "") -> DenseGate:
    """The gate of the task of this dense cell, by its headline metric: floors are known of that alone.

    A ``metric`` with a floor of its own (Self-BLEU) is judged by its own ``scores``, by sample.
    """
    if metric not in _floors():
        scores = dense.scores[dense.metric]
    weights = dense.samples["weight"].astype(float).loc[scores.index]
    found = mean_interval(scores.to_numpy(float), dense.clusters.loc[scores.index].to_numpy(str), weights.to_numpy())
    # One cluster has no interval: its mean alone has to do.
    low = found.low if np.isfinite(found.low) else found.mean
    return DenseGate(dense.task, found.mean, low, floor_of(dense.task, metric))


def tied_at_an_end(cells: Sequence[pd.Series]) -> str:
    """``all at 1.00`` or ``all at .00`` where every sample of every cell has that score; else an empty text."""
    values = np.concatenate([each.to_numpy(float) for each in cells]) if cells else np.empty(0)
    for end in (0.0, CEILING):
        if len(values) and bool(np.all(np.abs(values - end) < 1e-9)):
            return f"all at {short(end)}"
    return ""


def nothing_evicted(cells: Sequence[CellRows]) -> bool:
    """Whether the budget of each of these evicting cells held whatever it was given, in every sample."""
    return bool(cells) and all(cell.evicted_nothing for cell in cells)


def floor_of(task: str, metric: str = "") -> float:
    """The score on a task of an answer by chance or without the text; that of the longest label that begins its own.

    A metric that has a floor of its own (Self-BLEU looks at no reference) has it on every task.
    """
    if metric in _floors():
        return float(_floors()[metric])
    known = [label for label in _floors() if task == label or task.startswith((f"{label}/", f"{label} ("))]
    return float(_floors()[max(known, key=len)]) if known else 0.0


def short(score: float) -> str:
    """``.43``, ``1.00``: a score in [0, 1] in two digits."""
    text = f"{score:.2f}"
    return text.removeprefix("0") if text.startswith("0.") else text


@cache
def _floors() -> dict[str, Any]:
    file = FOLDER / "floors.yaml"
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found
