"""What ``conf/`` offers: the options of each group as a list, and experiments as grids of configurations.

An experiment ``conf/exp/<paper>/<item>.yaml`` lists its cells for each scale as grids:

    grids:
      keydiff/table_2:
        full: [{model: llama3.2-3b, task: longbench_21, policy: [keydiff, keydiff/median], budget: keydiff}]
        mini: [{task: mini_suite, policy: [keydiff, keydiff/median], budget: keydiff_shares}]

A grid is the product of its lists. The grids of an item add up; ``<paper>/all`` merges the items of a paper by name. A
value that names a set of ``conf/sets.yaml`` for its setting stands for the members of that set. At the scales that
``conf/samples/`` has, points take their seed from it, and their number of samples where their grid has no
``limit``; elsewhere they run all samples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from harness.errors import UserError

CONF = Path(__file__).parents[2] / "conf"
CONFIG_GROUPS = ("model", "policy", "task")  # each chooses a file of conf/; settings within them go with that file
# Their lists are crossed; a list under any other setting is one value (task.lengths).
AXES = (*CONFIG_GROUPS, "budget", "block_size", "prompt", "prompt_split")
LISTS = {"policies": "policy", "tasks": "task", "models": "model", "exps": "exp"}
Grids = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]  # by item and scale
Point = dict[str, Any]  # one configuration of a grid: settings as they are typed, without sweeps


def option_names(group: str) -> list[str]:
    """Every option of a configuration group, as it is typed after ``=``."""
    folder = CONF / group
    return sorted(file.relative_to(folder).with_suffix("").as_posix() for file in folder.rglob("*.yaml"))


def listing(what: str) -> str:
    """One line per option: its name, and the first comment of its file. Raises `UserError` for an unknown list."""
    if what not in LISTS:
        from policies import nearest  # it loads torch, which shell completion must not wait for

        raise UserError(f"There is no list of '{what}'. {nearest(what, LISTS)}")
    options = option_names(LISTS[what])
    width = max(map(len, options))
    return "\n".join(f"{name:<{width}}  {_first_comment(LISTS[what], name)}" for name in options)


def _first_comment(group: str, name: str) -> str:
    lines = (CONF / group / f"{name}.yaml").read_text().splitlines()
    comments = (line.lstrip("# ") for line in lines if line.startswith("#") and not line.startswith("# @"))
    return next(comments, "")


@cache
def default_settings() -> DictConfig:
    """``conf/config.yaml`` as it is written: to be read, never changed."""
    found = OmegaConf.load(CONF / "config.yaml")
    assert isinstance(found, DictConfig)
    return found


@cache
def named_sets() -> Mapping[str, Mapping[str, list[Any]]]:
    """By setting, the named lists of ``conf/sets.yaml``."""
    found: dict[str, dict[str, list[Any]]] = OmegaConf.to_container(OmegaConf.load(CONF / "sets.yaml"))  # type: ignore[assignment]
    return found


@dataclass(frozen=True)
class SampleRule:
    """So many samples of a cell at least, with these tasks, policies and budgets, named as in grids (empty for any)."""

    samples: int
    tasks: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()

    def holds_for(self, point: Point) -> bool:
        """Whether it is about this point."""
        policy = point.get("policy.name", point["policy"])
        asked = (self.tasks, point["task"]), (self.policies, policy), (self.budgets, point.get("budget"))
        return all(not names or str(own) in names for names, own in asked)


@dataclass(frozen=True)
class PlannedSamples:
    """The samples of one scale in ``conf/samples/``: their seed, the fewest by prompt regime, rules by item."""

    scale: str
    seed: int
    fewest: Mapping[str, int]
    rules: Mapping[str, tuple[SampleRule, ...]]

    def of(self, item: str, point: Point) -> int:
        """Samples of the cell of a point. Raises `UserError` for an item that the file does not have."""
        if item not in self.rules:
            raise UserError(
                f"Experiment {item} has no number of samples at scale={self.scale}: write limit into its grids, or let "
                f"'python -m scripts.plan_samples --scale {self.scale}' write it into conf/samples/{self.scale}.yaml."
            )
        fewest = self.fewest[regime_of(point)]
        return max([fewest, *(rule.samples for rule in self.rules[item] if rule.holds_for(point))])


def regime_of(point: Point) -> str:
    """The prompt regime of a point: that of conf/config.yaml where its grid leaves it open."""
    return str(point.get("prompt", "blocked"))


@cache
def planned_samples() -> Mapping[str, PlannedSamples]:
    """``conf/samples/<scale>.yaml`` by scale."""
    written: dict[str, Any] = {
        file.stem: OmegaConf.to_container(OmegaConf.load(file)) for file in (CONF / "samples").glob("*.yaml")
    }
    return {
        scale: PlannedSamples(
            scale,
            own["seed"],
            own["fewest"],
            {item: tuple(map(_sample_rule, rules)) for item, rules in own["items"].items()},
        )
        for scale, own in written.items()
    }


def _sample_rule(written: Mapping[str, Any]) -> SampleRule:
    return SampleRule(
        written["samples"], *(tuple(map(str, written.get(key, ()))) for key in ("tasks", "policies", "budgets"))
    )


def grid_points(grids: Grids, scale: str) -> list[Point]:
    """Every point of all items at this scale, each once. Raises `UserError` where no item has any.

    ``limit`` stands in a point only if its grid says it; `limited_points` are those that are run.
    """
    return _unique(point for _, point in _item_points(grids, scale))


def limited_points(grids: Grids, scale: str) -> list[Point]:
    """The points of `grid_points` with their numbers of samples. Raises `UserError` also where an item has none."""
    planned = planned_samples().get(scale)
    return _unique(
        point if planned is None or "limit" in point else {**point, "limit": planned.of(item, point)}
        for item, point in _item_points(grids, scale)
    )


def _item_points(grids: Grids, scale: str) -> list[tuple[str, Point]]:
    """The points of each item, with its name and the seed of the scale's planned samples."""
    for item, by_scale in grids.items():
        if scale not in by_scale:
            raise UserError(f"Experiment {item} has no grids for scale={scale}: choose one of {', '.join(by_scale)}.")
    seed = {"seed": planned_samples()[scale].seed} if scale in planned_samples() else {}
    found = [
        (item, {**seed, **point}) for item, own in grids.items() for grid in own[scale] for point in _crossed(grid)
    ]
    if not found:
        raise UserError(
            f"{', '.join(grids)} at scale={scale} has no cells to run: the head of its file in conf/exp/ says what "
            "measures it."
        )
    return found


def _unique(points: Iterable[Point]) -> list[Point]:
    """Each once, with the most samples that are asked for; without ``limit``, which is all, where one has none."""
    found: dict[str, Point] = {}
    for point in points:
        key = repr(sorted((name, value) for name, value in point.items() if name != "limit"))
        known = found.get(key)
        if known is None or ("limit" in known and point.get("limit", math.inf) > known["limit"]):
            found[key] = point
    return list(found.values())


def _crossed(grid: Mapping[str, Any]) -> Iterator[Point]:
    """The points of one grid."""
    axes = [_members(key, value) for key, value in grid.items()]
    for values in itertools.product(*axes):
        yield dict(zip(grid, values, strict=True))


def _members(setting: str, value: Any) -> list[Any]:
    """The values of one axis, sets written out."""
    named = named_sets().get(setting, {})
    listed = value if isinstance(value, list) and setting in AXES else [value]
    return [member for each in listed for member in (named.get(each, [each]) if isinstance(each, str) else [each])]
