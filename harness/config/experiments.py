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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict

from harness.errors import UserError

CONF = Path(__file__).parents[2] / "conf"
CONFIG_GROUPS = ("model", "policy", "task")  # each chooses a file of conf/; settings within them go with that file
# Their lists are crossed; a list under any other setting is one value (task.lengths).
AXES = (*CONFIG_GROUPS, "budget", "block_size", "prompt", "prompt_split")
LISTS = {"policies": "policy", "tasks": "task", "models": "model", "exps": "exp"}
Grids = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]  # by item and scale
Point = dict[str, Any]  # one configuration of a grid: settings as they are typed, without sweeps
Compose = Callable[[Sequence[str]], DictConfig]


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


def grid_jobs(base: DictConfig, overrides: Sequence[str], scale: str, compose: Compose) -> Iterator[DictConfig]:
    """The configurations of an experiment. ``overrides``: what was typed with it; it wins over the grids.

    Each file of ``conf/`` is composed once for all points that choose it: a paper has thousands of points.
    """
    grids: Any = OmegaConf.to_container(base.grids)
    others = [override for override in overrides if override.partition("=")[0].lstrip("+") != "exp"]
    typed = {override.partition("=")[0].lstrip("+~").partition("@")[0] for override in overrides}
    chosen = [
        {key: value for key, value in point.items() if not {key, key.partition(".")[0]} & typed}
        for point in (grid_points if "limit" in typed else limited_points)(grids, scale)
    ]
    yield from _point_jobs(
        base, list({repr(sorted(point.items())): point for point in chosen}.values()), others, compose
    )


def sweep_jobs(jobs: Sequence[Sequence[str]], compose: Compose) -> Iterator[DictConfig]:
    """The configurations of a sweep (``-m``), of which each job is a list of overrides.

    Jobs that differ in files of ``conf/`` and in plain settings are composed together, as the points of a grid are.
    """
    shared = [override for override in jobs[0] if all(override in job for job in jobs)]
    points = [_swept_point([override for override in job if override not in shared]) for job in jobs]
    known = [point for point in points if point is not None]
    varied = {group for point in known for group in point}
    base = compose(shared) if len(known) == len(jobs) and not any(_settings_within(g, shared) for g in varied) else None
    if base is not None and "grids" not in base:
        yield from _point_jobs(base, known, shared, compose)
        return
    for job in jobs:
        config = compose(job)
        if "grids" in config:
            yield from grid_jobs(config, job, config.hydra.runtime.choices.scale, compose)
        else:
            yield config


def _swept_point(overrides: Iterable[str]) -> Point | None:
    """The overrides that are a job's own as a point; None where one neither chooses a file of ours nor is plain."""
    point: Point = {}
    for override in overrides:
        key, _, value = override.partition("=")
        if key in CONFIG_GROUPS and value in option_names(key):
            point[key] = value
        elif key in _plain_settings():
            point[key] = OverridesParser.create().parse_override(override).value()
        else:
            return None
    return point


@cache
def _plain_settings() -> frozenset[str]:
    """Of conf/config.yaml, those that are no group and have no settings of their own."""
    written: Any = OmegaConf.to_container(OmegaConf.load(CONF / "config.yaml"))
    return frozenset(key for key, value in written.items() if key != "defaults" and not isinstance(value, dict))


def _point_jobs(
    base: DictConfig, points: Sequence[Point], others: Sequence[str], compose: Compose
) -> Iterator[DictConfig]:
    """The base with the files and values of each point."""
    by_group = [_overrides(point) for point in points]
    nodes = group_nodes((own for each in by_group for own in each.values()), others, compose)
    replaced = set.intersection(*map(set, by_group))  # groups that every point replaces are not copied each time
    plain = OmegaConf.masked_copy(base, [key for key in base if key not in ("grids", "hydra", *replaced)])
    for point, own in zip(points, by_group, strict=True):
        config = plain.copy()
        with open_dict(config):
            for group, choice in own.items():
                config[group] = nodes[choice]
            for key, value in point.items():
                if key.partition(".")[0] not in CONFIG_GROUPS:
                    config[key] = value
        yield config


def group_nodes(
    wanted: Iterable[tuple[str, ...]], others: Sequence[str], compose: Compose
) -> dict[tuple[str, ...], DictConfig]:
    """The configurations of groups, each by its overrides: ``("policy=sink", "++policy.protect.sinks=2")``.

    Chosen files come from one composition, since most of its time goes into the files that are always included: each is
    put at a place of its own, ``chosen.n0`` and so on. What it refers to (``${seed}``) is named from the root, and the
    same from there. Overrides that only set values (``++model.dtype=auto``) need a composition for each way to do so.
    ``others``: what is typed beside them; settings within a group are for each of its files, and win.
    """
    each = list(dict.fromkeys(wanted))
    places = {own: f"n{number}" for number, own in enumerate(each) if not own[0].startswith("++")}
    moved = [
        _at_place(override, f"chosen.{place}")
        for own, place in places.items()
        for override in (*own, *_settings_within(_parts(own[0])[0], others))
    ]
    files = compose([*others, *moved]).chosen if places else {}
    below: Any = OmegaConf.load(CONF / "config.yaml")  # the values of a group that its files leave out
    nodes: dict[tuple[str, ...], DictConfig] = {}
    for own in each:
        group, _, _ = _parts(own[0])
        if own in places:
            nodes[own] = OmegaConf.merge(below.get(group, {}), files[places[own]])
        else:
            nodes[own] = compose([*others, *own])[group]
    return nodes


def with_each_file(group: str, compose: Compose) -> dict[str, DictConfig]:
    """The configuration with each file of a group, by name: what ``<group>=<name>`` gives."""
    base, names = compose([]), option_names(group)
    others = OmegaConf.masked_copy(base, [key for key in base if key != group])
    nodes = group_nodes([(f"{group}={name}",) for name in names], [], compose)
    return {name: OmegaConf.merge(others, {group: nodes[f"{group}={name}",]}) for name in names}


def _settings_within(group: str, overrides: Iterable[str]) -> list[str]:
    """Those that set a value within a group, or take one out."""
    return [override for override in overrides if _parts(override)[0] == group and _parts(override)[1]]


def _at_place(override: str, place: str) -> str:
    """An override of a group, or of a setting within it, for a file of that group at another place."""
    group, setting, value = _parts(override)
    if not setting:
        return f"+{group}@{place}={value}"
    return f"~{place}.{setting}" if override.startswith("~") else f"++{place}.{setting}={value}"


def _parts(override: str) -> tuple[str, str, str]:
    """Group, setting (empty where a file is chosen) and value."""
    name, _, value = override.partition("=")
    group, _, setting = name.lstrip("+~").partition(".")
    return group, setting, value


def _overrides(point: Point) -> dict[str, tuple[str, ...]]:
    """By group, the overrides of a point that choose a file of it, which come first, and set values in it."""
    found: dict[str, tuple[str, ...]] = {}
    for group in CONFIG_GROUPS:
        choice = [f"{group}={point[group]}"] if group in point else []
        values = [f"++{key}={value}" for key, value in point.items() if key.startswith(f"{group}.")]
        if own := (*choice, *values):
            found[group] = own
    return found


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
