"""Which cells share one W&B run: those whose scores may be compared, so one model, task and prompt regime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.cells import Cell
from harness.report.rows import CONTEXT

KEY = (*CONTEXT, "task")  # columns of rows and labels of cells that are equal within a run


@dataclass(frozen=True)
class Group:
    """The cells of one run. ``labels``: what all of them share, by the names in `KEY`."""

    labels: Mapping[str, Any]
    cells: Sequence[Cell]

    @property
    def name(self) -> str:
        """``testbed · niah · blocked 32``; dtype and seed are in the configuration."""
        labels = self.labels
        block = f" {labels['block_size']}" if labels["block_size"] else ""
        return f"{labels['model']} · {labels['task']} · {labels['prompt']}{block}"

    def config(self) -> dict[str, Any]:
        """The resolved configurations: what all cells share, and by cell what they do not."""
        asked = {cell.id: {name: cell.asked[name] for name in cell.asked if name != "hydra"} for cell in self.cells}
        first, *rest = asked.values()
        shared = {name: value for name, value in first.items() if all(one.get(name) == value for one in rest)}
        return {
            "group": dict(self.labels),
            "shared": shared,
            "cells": {
                cell_id: {name: value for name, value in one.items() if name not in shared}
                for cell_id, one in asked.items()
            },
        }

    def rows_of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows of this run's cells."""
        return rows[rows["cell_id"].isin([cell.id for cell in self.cells])]


def groups(cells: Iterable[Cell]) -> list[Group]:
    """The runs of a sweep, in the order in which their first cells were asked for; equal cells count once."""
    found: dict[tuple[Any, ...], dict[str, Cell]] = {}
    for cell in cells:
        labels = cell.labels()
        found.setdefault(tuple(labels[name] for name in KEY), {})[cell.id] = cell
    return [Group(dict(zip(KEY, key, strict=True)), tuple(members.values())) for key, members in found.items()]
