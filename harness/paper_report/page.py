"""The page of one paper: one HTML file, no network, readable in light and dark."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import jinja2
import pandas as pd

from harness.paper_report.entries import PAPER_TITLES, Entry
from harness.paper_report.sheet import sheet
from harness.report.facts import Source, sources
from harness.verdicts import Outcome, Scale, Verdict

OUR_PAGE = "What only we show"


@dataclass(frozen=True)
class Page:
    """What a page says. ``commands``: what was typed, the sweep before the report."""

    paper: str
    scale: Scale
    commands: tuple[str, ...]
    entries: Sequence[Entry]
    verdicts: Sequence[Verdict]
    rows: pd.DataFrame  # those of the paper's items
    broken: tuple[str, ...] = ()  # policies with cells that broke an invariant, which are in no number

    @property
    def title(self) -> str:
        """``KeyDiff, replicated``."""
        return f"{PAPER_TITLES[self.paper]}, replicated" if self.paper in PAPER_TITLES else OUR_PAGE

    @property
    def banner(self) -> str:
        """Whom the page speaks of."""
        if self.scale == "full":
            models = sorted(set(self.rows["model"])) if not self.rows.empty else []
            return f"Rows of {', '.join(models) or 'no model'}, at the paper's own setting (scale=full)."
        return (
            "This page speaks of the testbed (scale=mini): a model of 5 million parameters on tasks of its own. It "
            "shows that the path works and how methods order there. It says nothing of the paper's models, and the "
            "differences to its numbers measure no replication."
        )

    @property
    def counted(self) -> list[tuple[str, int]]:
        """How many claims met which fate."""
        found = Counter(each.outcome for each in self.verdicts)
        return [(outcome, found[outcome]) for outcome in get_args(Outcome)]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What was measured, in a few words."""
        cells = self.rows.drop_duplicates("cell_id") if not self.rows.empty else self.rows
        if cells.empty:
            return [("rows", "none: run the sweep first")]
        counts = self.rows.drop_duplicates(["cell_id", "sample_id"]).groupby("cell_id").size()
        each = str(counts.min()) if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
        days = sorted({str(day)[:10] for day in cells["created"]} - {""})
        return [
            ("model", ", ".join(sorted(set(cells["model"])))),
            ("dtype", ", ".join(sorted(set(cells["dtype"].astype(str)))) + " (the paper names none)"),
            ("cells", f"{len(cells):,}"),
            ("samples", f"{each} a cell, {int(counts.sum()):,} in all"),
            ("date", days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"),
        ]

    @property
    def sources(self) -> list[Source]:
        """Every combination of commit, versions and machine behind the rows."""
        return sources(self.rows.fillna("")) if not self.rows.empty else []


def render(page: Page) -> str:
    """The page as text; the same for the same rows."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([Path(__file__).parent, Path(__file__).parents[1] / "report"]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["sheet"] = sheet
    environment.filters["inline_png"] = lambda png: "data:image/png;base64," + base64.b64encode(png).decode()
    return environment.get_template("paper.html").render(page=page)
