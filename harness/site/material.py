"""What all pages of a site are made of: rows that are checked, summarised and labelled once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from harness.report.colours import Look, looks
from harness.report.ledger import ledger_lines
from harness.report.names import policy_labels
from harness.report.rows import checked, invalid_rows, valid_rows
from harness.report.summary import summarise
from harness.site.papers import papers_of


@dataclass(frozen=True)
class Material:
    """``rows``: samples joined with their cells (docs/design/rows.md), as `harness.report.checked` gives them."""

    rows: pd.DataFrame

    @staticmethod
    def of(rows: pd.DataFrame) -> Material:
        """Raises ValueError, with a sentence, for rows that are empty, incomplete or counted twice."""
        return Material(checked(rows))

    @cached_property
    def labels(self) -> dict[str, str]:
        """By cell: the policy, with its settings where the name is ambiguous."""
        return policy_labels(self.rows)

    @cached_property
    def valid(self) -> pd.DataFrame:
        """The rows of cells that kept every promise."""
        return valid_rows(self.rows)

    @cached_property
    def broken(self) -> pd.DataFrame:
        """The rows that broke one."""
        return invalid_rows(self.rows)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One line per cell and metric (`harness.report.summary_table`)."""
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


def regime(cell: Mapping[Any, Any]) -> str:
    """How the prompt was read: ``blocks of 32``, ``one shot``, ``token fed``."""
    if cell["prompt"] == "blocked":
        return f"blocks of {cell['block_size']}"
    return str(cell["prompt"]).replace("_", " ")
