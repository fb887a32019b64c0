"""The cells of an item's experiment file (``conf/exp/<paper>/<item>.yaml``), by the labels of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, get_args

from omegaconf import OmegaConf

import tasks
from harness.config.budget import Budget
from harness.config.compose import checked_config, compose_config
from harness.config.experiments import CONF, Grids, grid_points
from harness.errors import UserError
from harness.papers.published import Scale, model_of

SCALES = get_args(Scale)
KEY = ("policy", "task", "budget", "share_of", "prompt", "block_size")


@dataclass(frozen=True)
class FigureCells:
    """The cells of one item at one scale, in the order of its grids."""

    scale: Scale
    models: tuple[str, ...]
    keys: tuple[tuple[Any, ...], ...]  # values of `KEY`

    def values(self, name: str) -> tuple[Any, ...]:
        """The values of one name of `KEY`, each once."""
        return self._values[name]

    @cached_property
    def _values(self) -> dict[str, tuple[Any, ...]]:
        return {name: tuple(dict.fromkeys(key[place] for key in self.keys)) for place, name in enumerate(KEY)}


def experiment_name(item: str) -> str:
    """The name of an item's file: ``figure_8a`` for ``Figure 8a``."""
    return item.lower().replace(" ", "_")


@cache
def figure_cells(paper: str, item: str, scale: Scale) -> FigureCells:
    """The cells of ``conf/exp/<paper>/<item>.yaml``; none where the file has no grid at this scale."""
    try:
        found = grid_points(_grids(paper, item), scale)
    except UserError:
        found = []
    models = dict.fromkeys(str(point.get("model", model_of(scale) or "testbed")) for point in found)
    return FigureCells(scale, tuple(models), tuple(_point_key(point) for point in found))


@cache
def _grids(paper: str, item: str) -> Grids:
    written: Any = OmegaConf.to_container(OmegaConf.load(CONF / "exp" / paper / f"{experiment_name(item)}.yaml"))
    grids: Grids = written["grids"]
    return grids


def _point_key(point: Mapping[str, Any]) -> tuple[Any, ...]:
    budget = Budget.parse(point["budget"], point.get("budget_of", "prompt"))
    prompt = point["prompt"]
    return (
        str(point.get("policy.name", point["policy"])),
        task_label(str(point["task"])),
        budget.label,
        budget.share_of if budget.share else "",
        prompt,
        point["block_size"] if prompt == "blocked" else 0,
    )


@cache
def task_label(name: str) -> str:
    """The label in rows of the task that is chosen by ``task=<name>``."""
    config = checked_config(compose_config([f"task={name}"]))
    return tasks.build(config["task"].pop("name"), **config["task"]).label


def plain_task(task: str) -> str:
    """A task's label without the remark that its rows are synthetic."""
    return str(task).partition(" ")[0]
