"""What all pages of a site are made from: checked rows, their summary and ledger, and the papers of each cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from harness.config.experiments import CONF, Point, grid_points
from harness.papers.published import PAPERS
from harness.report.labels import BudgetLabel, parse_budget, policy_labels
from harness.report.ledger_table import ledger_lines
from harness.report.looks import Look, is_baseline, looks
from harness.report.rows import checked_rows, invalid_rows, valid_rows
from harness.report.summary import summarise


@dataclass(frozen=True)
class SiteContents:
    """``rows``: samples joined with their cells (docs/design/rows.md), as `checked_rows` gives them."""

    rows: pd.DataFrame

    @staticmethod
    def of(rows: pd.DataFrame) -> SiteContents:
        """Raises ValueError, with a sentence, for rows that are empty, incomplete or counted twice."""
        return SiteContents(checked_rows(rows))

    @cached_property
    def labels(self) -> dict[str, str]:
        """By cell: the policy, with its settings where the name is ambiguous."""
        return policy_labels(self.rows)

    @cached_property
    def valid(self) -> pd.DataFrame:
        """The rows of cells without a broken invariant."""
        return valid_rows(self.rows)

    @cached_property
    def broken(self) -> pd.DataFrame:
        """The rows that broke an invariant."""
        return invalid_rows(self.rows)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One line per cell and metric (`harness.report.summary.summary_table`)."""
        return summarise(self.valid, self.labels)

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """One line per cell (`harness.report.ledger_table`)."""
        return ledger_lines(self.rows, self.labels)

    @cached_property
    def cells(self) -> dict[str, dict[str, Any]]:
        """By cell id: the columns of the ``cells`` table."""
        once = self.rows.drop_duplicates("cell_id")
        return {str(line["cell_id"]): {str(k): v for k, v in line.items()} for line in once.to_dict("records")}

    @cached_property
    def papers(self) -> dict[str, tuple[str, ...]]:
        """By cell id: the papers whose experiments list it."""
        return {name: papers_of(cell) for name, cell in self.cells.items()}

    @cached_property
    def style(self) -> Mapping[str, Look]:
        """By label: how a policy is drawn, here as in every report."""
        return looks(self.labels.values())


def regime_text(cell: Mapping[Any, Any]) -> str:
    """How the prompt was read: ``blocks of 32``, ``one shot``, ``token fed``; ``one shot, then the question``."""
    regime, _, split = str(cell["prompt"]).partition("/")
    read = f"blocks of {cell['block_size']}" if regime == "blocked" else regime.replace("_", " ")
    return f"{read}, then the question" if split else read


# The papers of a cell: those whose experiment files (``conf/exp/<paper>/``) list it.

# Policy, task, budget, prompt regime ("" where the regime follows from the policy).
ListedCell = tuple[str, str, BudgetLabel, str]


def papers_of(cell: Mapping[str, Any]) -> tuple[str, ...]:
    """The papers that list the cell of this row, by its ``policy``, ``task``, ``budget`` and ``prompt``.

    Dense and the baselines are compared with every cell of the same task and regime, so they belong to its papers.
    """
    policy, task, prompt = (str(cell[name]) for name in ("policy", "task", "prompt"))
    budget = parse_budget(str(cell["budget"]))
    return tuple(paper for paper in PAPERS if _is_listed(_listed_cells(paper), policy, task, budget, prompt))


def _is_listed(listed: frozenset[ListedCell], policy: str, task: str, budget: BudgetLabel, prompt: str) -> bool:
    if policy == "dense":
        return any(own_task == task for _, own_task, _, _ in listed)
    if is_baseline(policy):
        return any((own_task, own_budget) == (task, budget) for _, own_task, own_budget, _ in listed)
    return bool({(policy, task, budget, prompt), (policy, task, budget, "")} & listed)


@cache
def _listed_cells(paper: str) -> frozenset[ListedCell]:
    return frozenset(
        (
            str(point.get("policy.name", point.get("policy"))),
            str(point["task"]),
            parse_budget(str(point.get("budget", "full"))),
            str(point.get("prompt", "")),
        )
        for point in _grid_points(paper)
    )


def _grid_points(paper: str) -> Iterator[Point]:
    for file in sorted((CONF / "exp" / paper).glob("*.yaml")):
        grids: Any = OmegaConf.to_container(OmegaConf.load(file)).get("grids", {})  # type: ignore[union-attr]
        for item, by_scale in grids.items():
            for scale, listed in by_scale.items():
                if listed:
                    yield from grid_points({item: {scale: listed}}, scale)
