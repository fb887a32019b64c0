"""What claims are tested on beside scores of samples: stored diagnostics, costs, counts of operations.

Each quantity has columns (methods, or names of its own) and units that are independent of each other (prompts, rounds).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.papers import claim_costs, claim_diagnostics, claim_operations
from harness.papers.cell_index import NoCellError
from harness.papers.claim_ledger import Comparison
from harness.papers.figures.canvas import NotDrawnError as NothingStoredError
from harness.papers.figures.figure_cells import experiment_name
from harness.papers.figures.figure_data import FigureDataOfItems

EVERY_QUANTITY = (*claim_diagnostics.QUANTITIES, *claim_costs.QUANTITIES, *claim_operations.QUANTITIES)


@dataclass(frozen=True)
class Observations:
    """One value per unit in each column. ``unit``: what the units are called, in the plural ("prompts", "rounds").

    ``exact``: the values are computed and not measured; then a single unit decides.
    ``notes``: what was taken for the paper's own setting, as "a for b".
    """

    columns: Mapping[str, pd.Series]
    unit: str
    exact: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measurements:
    """The stored quantities of a ``results`` folder: costs in it, and the diagnostics of items."""

    results: Path
    stored: FigureDataOfItems

    def observations(self, paper: str, comparison: Comparison) -> Observations:
        """The columns of the comparison's quantity, and a constant one for each number that it names ("0.8").

        Raises `NoCellError`, the end of the sentence "there are no rows of ...", where nothing is stored.
        """
        names = [each.method for each in comparison.methods()]
        numbers = [name for name in names if _is_number(name)]
        found = self._found(paper, comparison, [name for name in names if name not in numbers])
        units = next(iter(found.columns.values())).index
        constants = {name: pd.Series(float(name), index=units) for name in numbers}
        return Observations({**found.columns, **constants}, found.unit, found.exact, found.notes)

    def _found(self, paper: str, comparison: Comparison, names: list[str]) -> Observations:
        quantity = comparison.quantity
        if quantity in claim_operations.QUANTITIES:
            return Observations(claim_operations.exact_columns(quantity, self.results), "formulas", exact=True)
        if quantity in claim_costs.QUANTITIES:
            costs = claim_costs.StoredCosts.load(paper, self.results, self.stored.scale, comparison.budgets)
            return Observations(claim_costs.QUANTITIES[quantity](costs, names), "rounds")
        return Observations(self._diagnosed(claim_diagnostics.QUANTITIES[quantity], names), "prompts")

    def _diagnosed(
        self, quantity: claim_diagnostics.DiagnosticQuantity, names: Iterable[str]
    ) -> Mapping[str, pd.Series]:
        diagnostic, item = quantity.needs.names[0], experiment_name(quantity.item)
        measures = f"python -m harness figures paper={quantity.paper} item={item} scale={self.stored.scale} measures it"
        lacking = NoCellError(f"the diagnostic {diagnostic}: {measures}")
        data = self.stored.of(quantity.paper, quantity.item)
        try:
            columns = quantity.measured(data, names)
        except (NothingStoredError, KeyError):  # KeyError: an older run without one of the columns
            raise lacking from None
        if not any(len(each) for each in columns.values()):
            raise lacking
        return columns


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
