"""What claims are tested on beside scores of samples: stored diagnostics, costs, formulas.

Each quantity has columns (methods, layers, sizes) and units that are independent of each other (prompts, rounds).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd


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
