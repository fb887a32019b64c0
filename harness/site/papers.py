"""Which papers a cell belongs to: those whose experiment files (``conf/exp/<paper>/``) list it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from omegaconf import OmegaConf

from harness.listing import CONF
from harness.published import PAPERS
from harness.report.colours import is_reference
from harness.report.names import Budget, parse_budget
from harness.settings.grids import Point, points

Place = tuple[str, str, Budget, str]  # policy, task, budget, regime; "" for a regime that follows from the policy


def papers_of(cell: Mapping[str, Any]) -> tuple[str, ...]:
    """The papers that list the cell of this row, by its ``policy``, ``task``, ``budget`` and ``prompt``.

    Dense and the reference lines stand beside every cell of the same task and regime, so they belong to its papers.
    """
    policy, task, prompt = (str(cell[name]) for name in ("policy", "task", "prompt"))
    budget = parse_budget(str(cell["budget"]))
    return tuple(paper for paper in PAPERS if _lists(_places(paper), policy, task, budget, prompt))


def _lists(places: frozenset[Place], policy: str, task: str, budget: Budget, prompt: str) -> bool:
    if policy == "dense":
        return any(own_task == task for _, own_task, _, _ in places)
    if is_reference(policy):
        return any((own_task, own_budget) == (task, budget) for _, own_task, own_budget, _ in places)
    return bool({(policy, task, budget, prompt), (policy, task, budget, "")} & places)


@cache
def _places(paper: str) -> frozenset[Place]:
    return frozenset(
        (
            str(point.get("policy.name", point.get("policy"))),
            str(point["task"]),
            parse_budget(str(point.get("budget", "full"))),
            str(point.get("prompt", "")),
        )
        for point in _points(paper)
    )


def _points(paper: str) -> Iterator[Point]:
    for file in sorted((CONF / "exp" / paper).glob("*.yaml")):
        grids: Any = OmegaConf.to_container(OmegaConf.load(file)).get("grids", {})  # type: ignore[union-attr]
        for item, by_scale in grids.items():
            for scale, listed in by_scale.items():
                if listed:
                    yield from points({item: {scale: listed}}, scale)
