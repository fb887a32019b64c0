"""The cells of the papers' experiments at a scale, and what a sweep of them takes on the testbed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from omegaconf import OmegaConf

from harness.config.experiments import CONF, Point, grid_points


@cache
def experiment_points(scale: str = "mini") -> Mapping[str, list[Point]]:
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


def sweep_seconds(points: Mapping[str, Sequence[Point]], samples: Mapping[str, int]) -> float:
    """Seconds of one process for these experiments in one sweep, each with its number of samples per cell.

    Cells that experiments share run once, with the greatest number of samples.
    """
    cells: dict[tuple[Any, ...], int] = {}
    for name, own in points.items():
        for point in own:
            for key, count in _cells_of(point, point.get("limit", samples[name])):
                cells[key] = max(cells.get(key, 0), count)
    cost = mini_estimates()["seconds"]
    return float(sum(count * cost[key[0]] for key, count in cells.items()))


def _cells_of(point: Point, samples: int) -> Iterator[tuple[tuple[Any, ...], int]]:
    """The cell of a point and its baselines, each with its samples; a key begins with the prompt regime."""
    prompt = str(point.get("prompt", "blocked"))
    where = (prompt, point["task"], point.get("block_size") if prompt in ("blocked", "simulated") else None)
    budget = (str(point.get("budget")), point.get("budget_of"))
    policy = tuple(sorted((key, str(value)) for key, value in point.items() if key.partition(".")[0] == "policy"))
    yield (*where, budget, policy), samples
    for name in point.get("references", ("dense", "random", "oracle")):
        if name == "dense":  # the same at every budget, and paired with all of them
            yield (*where, name), samples
        else:
            yield (*where, budget, name), min(samples, point.get("baseline_limit", samples))


@cache
def mini_estimates() -> Mapping[str, Any]:
    """``mini`` of conf/estimates.yaml: seconds of a sample by prompt regime, spreads of scores by task."""
    found: Any = OmegaConf.to_container(OmegaConf.load(CONF / "estimates.yaml"))
    return dict(found["mini"])
