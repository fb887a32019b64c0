"""The cells of the papers' experiments at a scale, and what a sweep of them takes on that scale's model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from omegaconf import OmegaConf

from harness.analysis.statistics import Floats
from harness.config.experiments import CONF, Point, grid_points, regime_of
from harness.papers.published import Scale

ALL = 10**9  # samples of a cell that has no limit
Places = npt.NDArray[np.int64]
CellKey = tuple[Any, ...]  # its prompt regime, and what else tells it from others


@cache
def experiment_points(scale: Scale = "mini") -> Mapping[str, list[Point]]:
    """By experiment (``keydiff/table_1``) its points; experiments without cells at this scale are left out."""
    found: dict[str, list[Point]] = {}
    for file in sorted(CONF.glob("exp/*/*.yaml")):
        if file.stem != "all":
            grids: Any = OmegaConf.to_container(OmegaConf.load(file).grids)
            found |= {item: grid_points({item: own}, scale) for item, own in grids.items() if own.get(scale)}
    return found


def experiment_of(paper: str, item: str) -> str:
    """The experiment that measures an item: "Table 1" of keydiff is ``keydiff/table_1``."""
    return f"{paper}/{item.lower().replace(' ', '_')}"


@dataclass(frozen=True)
class SweepCells:
    """Some cells of a sweep: their places, and the most samples that points ask of each (baselines have a limit)."""

    places: Places
    most: Places


@dataclass(frozen=True)
class SweepCost:
    """Seconds of one process for experiments in one sweep. Cells that experiments share run once.

    ``points``: by experiment. ``at``: the place of each cell; its seconds a sample are those of its regime and task.
    """

    points: Mapping[str, Sequence[Point]]
    scale: Scale = "mini"
    at: dict[CellKey, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for own in self.points.values():
            for point in own:
                for key, _ in _cells_of(point):
                    self.at.setdefault(key, len(self.at))

    @cached_property
    def each_seconds(self) -> Floats:
        """(cells,): of one sample."""
        return np.array([seconds_of_sample(str(key[0]), str(key[1]), self.scale) for key in self.at], dtype=np.float64)

    def cells(self, chosen: Mapping[str, Sequence[Point]]) -> SweepCells:
        """The cells of some points with their baselines."""
        most: dict[int, int] = {}
        for own in chosen.values():
            for point in own:
                for key, limit in _cells_of(point):
                    most[self.at[key]] = max(most.get(self.at[key], 0), limit)
        return SweepCells(np.array(list(most), dtype=np.int64), np.array(list(most.values()), dtype=np.int64))

    def samples_of_grids(self, fewest: Mapping[str, int]) -> Places:
        """(cells,): the fewest of their prompt regimes, or what grids limit them to where that is less."""
        everything = self.cells(self.points)
        at_least = np.array([fewest[str(key[0])] for key in self.at], dtype=np.int64)
        return self.raised(everything, np.zeros(len(self.at), dtype=np.int64), at_least[everything.places])

    def raised(self, cells: SweepCells, at: Places, samples: int | Places) -> Places:
        """(cells,): where some of them get so many samples at least (all as many, or each its own number)."""
        found = at.copy()
        found[cells.places] = np.maximum(found[cells.places], np.minimum(samples, cells.most))
        return found

    def extra_seconds(self, cells: SweepCells, at: Places, numbers: Places) -> Floats:
        """(numbers,): what it adds to raise some cells to each of these numbers of samples."""
        added = np.minimum(numbers[:, None], cells.most) - at[cells.places]
        return np.asarray(np.maximum(added, 0) @ self.each_seconds[cells.places])

    def seconds(self, at: Places) -> float:
        """Of all cells."""
        return float(at @ self.each_seconds)


def _cells_of(point: Point) -> Iterator[tuple[CellKey, int]]:
    """The cell of a point and its baselines, each with the most samples that it may have."""
    most = point.get("limit", ALL)
    prompt = regime_of(point)
    where = (prompt, point["task"], point.get("block_size") if prompt in ("blocked", "simulated") else None)
    budget = (str(point.get("budget")), point.get("budget_of"))
    policy = tuple(sorted((key, str(value)) for key, value in point.items() if key.partition(".")[0] == "policy"))
    yield (*where, budget, policy), most
    for name in point.get("references", ("dense", "random", "oracle")):
        if name == "dense":  # the same at every budget, and paired with all of them
            yield (*where, name), most
        else:
            yield (*where, budget, name), min(most, point.get("baseline_limit", most))


@cache
def seconds_of_sample(prompt: str, task: str, scale: Scale) -> float:
    """Of one process, a sample of a task (``longbench_mini/code``, ``niah/short``) in a prompt regime."""
    known = sample_estimates(scale)["seconds"][prompt]
    return float(known[label_of(task, known) or "other"])


def label_of(task: str, labels: Iterable[str]) -> str:
    """The label that begins a task's name: ``niah`` of ``niah/short``, ``ruler/vt`` of ``ruler/vt_1k``.

    The longest of several; empty for none.
    """
    return max((each for each in labels if re.match(rf"{re.escape(each)}([/_]|$)", task)), key=len, default="")


@cache
def sample_estimates(scale: Scale) -> Mapping[str, Any]:
    """Of conf/estimates.yaml: seconds of a sample by prompt regime and task, spreads of scores by task."""
    found: Any = OmegaConf.to_container(OmegaConf.load(CONF / "estimates.yaml"))
    return dict(found[scale])
