"""Budgets of the papers on synthetic rows: slots become the share that they are of the published prompts.

A paper's 4k slots hold 43 % of a LongBench prompt of 9,500 tokens, and the whole of a synthetic row of 369: taken as
they are written they would evict nothing there. ``scale=mini`` runs such rows and sets ``budget_slots=scaled``. The
tasks of the testbed itself have no other length than their own, so their budgets stay as they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeAlias

from omegaconf import OmegaConf

from harness.config.budget import Budget
from harness.config.experiments import CONF

BudgetSlots: TypeAlias = Literal["as_written", "scaled"]


@cache
def published_estimates() -> Mapping[str, Mapping[str, Any]]:
    """``conf/estimates.yaml``: lengths of tasks, shapes and paces of models."""
    found: dict[str, dict[str, Any]] = OmegaConf.to_container(OmegaConf.load(CONF / "estimates.yaml"))  # type: ignore[assignment]
    return found


def published_length(task: str) -> tuple[int, int] | None:
    """Samples and mean prompt tokens of a task by its label, or of its folder; None where nothing is known."""
    known = published_estimates()["lengths"]
    for name in (task, task.partition("/")[0], task.partition("/")[0].removesuffix("_e")):
        if name in known:
            samples, tokens = known[name]
            return samples, tokens
    return None


def scaled_budget(budget: Budget, setting: BudgetSlots, task: str, synthetic: bool) -> Budget:
    """The budget of a cell on this task. ``setting``: of ``budget_slots``. ``synthetic``: whether its rows are.

    The share is rounded to whole percent, below 10 % to tenths.
    """
    published = published_length(task)
    if setting == "as_written" or budget.slots is None or not synthetic or published is None:
        return budget
    share = budget.slots / published[1]
    return Budget(share=min(1.0, max(0.001, round(share, 2 if share >= 0.1 else 3))))
