"""What each table and figure has cost at scale=mini, from the rows of a sweep, written into the heads of conf/exp/.

python -m scripts.item_costs [results_dir=results] [--papers keydiff caote] [--write]

The cost of an item is that of its cells and their baselines, in time of two processor cores. Cells of which fewer
samples are stored than the item asks for are taken in proportion, and the head says so.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.config.cell import Cell
from harness.config.compose import compose_config
from harness.config.experiments import CONF, option_names
from harness.config.jobs import grid_jobs
from harness.config.policy_config import preset
from harness.console import say
from harness.papers.published import PAPERS
from harness.runner.samples import Prompts
from harness.store.cell_folders import read_description
from harness.store.store import Store

CORES = 2
LABELS = ("task", "prompt", "block_size", "budget", "policy")  # whatever the version of the code
HARDWARE = re.compile(r"^# Hardware:.*\n(?:#  .*\n)*", re.MULTILINE)
COST = re.compile(r"^# Cost:.*\n(?:#  .*\n)*", re.MULTILINE)
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Spent:
    """The cost of one cell. ``seconds``: of processor cores. ``day``: of its last part."""

    samples: int
    seconds: float
    day: str


def spent(results_dir: Path) -> dict[Key, Spent]:
    """What the cells of a results folder have cost, by their labels."""
    store = Store(results_dir / "runs")
    ids = store.cells()
    found: dict[Key, list[tuple[int, float, str]]] = defaultdict(list)
    for cell_id, parts in store.survey(ids)[0].items():
        labels = read_description(store.root / cell_id)
        for part in parts:
            cost = (len(part.samples), part.spent["device_seconds"], str(part.spent["created"])[:10])
            found[tuple(labels[name] for name in LABELS)].append(cost)
    return {key: _added(costs) for key, costs in found.items()}


def _added(costs: Sequence[tuple[int, float, str]]) -> Spent:
    samples, seconds, days = zip(*costs, strict=True)
    return Spent(sum(samples), sum(seconds), max(days))


def wanted(configs: Iterable[Mapping[str, Any]], prompts: Prompts) -> dict[Key, int]:
    """The number of samples of these cells and of their baselines, by labels."""
    found: dict[Key, int] = {}
    for config in configs:
        few = config["baseline_limit"] or config["limit"]
        limits = {name: config["limit"] if name == "dense" else few for name in config["references"]}
        policies = [(config["policy"], config["limit"]), *((preset(name), limit) for name, limit in limits.items())]
        for policy, limit in policies:
            cell = Cell.parse({**config, "policy": policy, "limit": limit})
            labels = cell.labels()
            key = tuple(labels[name] for name in LABELS)
            found[key] = max(found.get(key, 0), len(prompts.samples_of(cell)))
    return found


def sentence(item: str, samples: Mapping[Key, int], measured: Mapping[Key, Spent]) -> str:
    """The cost as the head of an item says it, beginning with ``# Cost:``; empty where nothing of it was measured."""
    present = [(measured[key], count) for key, count in samples.items() if key in measured]
    if not present:
        return ""
    seconds = sum(each.seconds / each.samples * count for each, count in present) / CORES
    time = f"{seconds / 60:.1f} minutes" if seconds >= 6 else f"{seconds:.1f} seconds"
    day = max(each.day for each, _ in present)
    least, asked = min(((each.samples, count) for each, count in present), key=lambda pair: pair[0] / pair[1])
    how = f"measured {day}" if least >= asked else f"extrapolated from {least} of {asked} samples, {day}"
    if len(present) < len(samples):
        how += f", {len(present)} of {len(samples)} cells"
    return (
        f"# Cost:     {time} on two cores at scale=mini ({how});\n"
        f"#           python -m harness plan +exp={item} scale=full estimates the paper's own setting\n"
    )


def with_cost(head: str, cost: str) -> str:
    """The text of an experiment file with this cost in its head, below the hardware where no cost stood there."""
    if COST.search(head):
        return COST.sub(lambda _: cost, head, count=1)
    return HARDWARE.sub(lambda found: found[0] + cost, head, count=1)


@cache
def _composed(*overrides: str) -> DictConfig:
    return compose_config(overrides)


def _configurations(item: str) -> list[dict[str, Any]]:
    typed = [f"+exp={item}", "scale=mini"]
    return list(grid_jobs(_composed(*typed), typed, "mini", lambda each: _composed(*each)))


def main() -> None:
    """Print the cost of every item, and write it into its file where that is asked for."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("results_dir", nargs="?", default="results", metavar="results_dir=FOLDER")
    arguments.add_argument("--papers", nargs="+", choices=[*PAPERS, "ours"], default=list(PAPERS))
    arguments.add_argument("--write", action="store_true", help="write the costs into conf/exp/<paper>/*.yaml")
    options = arguments.parse_args()
    measured = spent(Path(options.results_dir.removeprefix("results_dir=")))
    prompts = Prompts()
    for item in option_names("exp"):
        if item.partition("/")[0] not in options.papers:
            continue
        grids_of_item = _composed(f"+exp={item}").grids
        if not any(grid["mini"] for grid in grids_of_item.values()):
            continue
        configs = _configurations(item)
        cost = sentence(item, wanted(configs, prompts), measured)
        say(f"{item}\n{cost or 'nothing of it is in these results'}")
        if cost and options.write:
            file = CONF / "exp" / f"{item}.yaml"
            file.write_text(with_cost(file.read_text(), cost))


if __name__ == "__main__":
    main()
