"""The configurations of many jobs, composed together: the points of an experiment's grids, and the jobs of a sweep.

Most of the time of a composition goes into the files that are always included, and a paper has thousands of points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict

from harness.config.compose import JobConfig, resolved
from harness.config.experiments import (
    CONFIG_GROUPS,
    Point,
    default_settings,
    grid_points,
    limited_points,
    option_names,
)

Compose = Callable[[Sequence[str]], DictConfig]


def grid_jobs(base: DictConfig, overrides: Sequence[str], scale: str, compose: Compose) -> Iterator[JobConfig]:
    """The jobs of an experiment. ``overrides``: what was typed with it; it wins over the grids."""
    grids: Any = OmegaConf.to_container(base.grids)
    others = [override for override in overrides if override.partition("=")[0].lstrip("+") != "exp"]
    typed = {override.partition("=")[0].lstrip("+~").partition("@")[0] for override in overrides}
    chosen = [
        {key: value for key, value in point.items() if not {key, key.partition(".")[0]} & typed}
        for point in (grid_points if "limit" in typed else limited_points)(grids, scale)
    ]
    distinct = {repr(sorted(point.items())): point for point in chosen}
    yield from _point_jobs(base, list(distinct.values()), others, compose)


def sweep_jobs(jobs: Sequence[Sequence[str]], compose: Compose) -> Iterator[JobConfig]:
    """The jobs of a sweep (``-m``), each from a list of overrides.

    Jobs that differ in files of ``conf/`` and in plain settings are composed together, as the points of a grid are.
    """
    shared = [override for override in jobs[0] if all(override in job for job in jobs)]
    points = [_swept_point(override for override in job if override not in shared) for job in jobs]
    known = [point for point in points if point is not None]
    # What is set beside them within a group that they choose, or over a value of theirs, is Hydra's to judge.
    apart = not {name for point in known for name in point} & {_parts(override)[0] for override in shared}
    base = compose(shared) if len(known) == len(jobs) and apart else None
    if base is not None and "grids" not in base:
        yield from _point_jobs(base, known, shared, compose)
        return
    for job in jobs:
        config = base if base is not None and len(jobs) == 1 else compose(job)
        if "grids" in config:
            yield from grid_jobs(config, job, config.hydra.runtime.choices.scale, compose)
        else:
            yield resolved(job_settings(config))


def job_settings(config: DictConfig) -> DictConfig:
    """Those of a job: without the grids of an experiment and Hydra's own."""
    return OmegaConf.masked_copy(config, [key for key in config if key not in ("grids", "hydra")])


def _swept_point(overrides: Iterable[str]) -> Point | None:
    """The overrides that are a job's own as a point; None where one neither chooses a file of ours nor is plain."""
    point: Point = {}
    for override in overrides:
        key, _, value = override.partition("=")
        if key in CONFIG_GROUPS and value in option_names(key):
            point[key] = value
        elif key in _plain_settings():
            point[key] = _value_of(override)
        else:
            return None
    return point


@cache
def _value_of(override: str) -> Any:
    """As Hydra reads it; a sweep has few values and many jobs."""
    return OverridesParser.create().parse_override(override).value()


@cache
def _plain_settings() -> frozenset[str]:
    """Of conf/config.yaml, those that are no group and have no settings of their own."""
    written: Any = OmegaConf.to_container(default_settings())
    return frozenset(key for key, value in written.items() if key != "defaults" and not isinstance(value, dict))


def _point_jobs(
    base: DictConfig, points: Sequence[Point], others: Sequence[str], compose: Compose
) -> Iterator[JobConfig]:
    """The base with the files and values of each point."""
    by_group = [_overrides(point) for point in points]
    nodes = group_nodes((own for each in by_group for own in each.values()), others, compose)
    settings = job_settings(base)
    copies: dict[frozenset[str], tuple[DictConfig, dict[str, Any]]] = {}  # by what a point replaces, and what is there
    for point, own in zip(points, by_group, strict=True):
        values = {key: value for key, value in point.items() if key.partition(".")[0] not in CONFIG_GROUPS}
        values |= {group: nodes[choice] for group, choice in own.items()}
        if (replaced := frozenset(values)) not in copies:
            copies[replaced] = settings.copy(), {}
        config, there = copies[replaced]
        with open_dict(config):
            for key, value in values.items():
                if there.get(key) is not value:  # a group is copied whole when it is set
                    config[key] = there[key] = value
        yield resolved(config)


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
    below = default_settings()  # the values of a group that its files leave out
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
