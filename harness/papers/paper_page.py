"""The pages of one paper, its report and the ledger of its claims: no network, readable in light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from harness.papers.below_random import RandomComparison, below_random
from harness.papers.claim_counts import ClaimCounts, count_claims, outcome_label, outcome_style
from harness.papers.claim_ledger import claims
from harness.papers.claim_measurements import Measurements
from harness.papers.claim_places import ClaimPlaces, place_claims
from harness.papers.claim_verdicts import Verdict, verdicts
from harness.papers.figures.figure_cells import KEY, figure_cells
from harness.papers.published import PAPER_TITLES, PAPERS, Scale, paper_items
from harness.papers.report_items import ReportData, ReportItem, our_items, report_items
from harness.papers.table_cells import experiment_key
from harness.papers.table_sheets import TableSheets
from harness.report.run_facts import RunSource, sources

OURS_TITLE = "What only we show"


@dataclass(frozen=True)
class PaperPage:
    """The content of both pages. ``commands``: the sweep, then the report. ``random``: None where nothing evicts."""

    paper: str
    scale: Scale
    commands: tuple[str, ...]
    entries: Sequence[ReportItem]
    verdicts: Sequence[Verdict]
    rows: pd.DataFrame  # those of the paper's items
    broken: tuple[str, ...] = ()  # policies with cells that broke an invariant and are left out
    random: RandomComparison | None = None

    @property
    def title(self) -> str:
        """``KeyDiff, replicated``."""
        return f"{PAPER_TITLES[self.paper]}, replicated" if self.paper in PAPER_TITLES else OURS_TITLE

    @property
    def banner(self) -> str:
        """The models behind the page, as a sentence."""
        if self.scale == "full":
            models = sorted(set(self.rows["model"])) if not self.rows.empty else []
            return f"Rows of {', '.join(models) or 'no model'}, at the paper's own setting (scale=full)."
        return (
            "This page speaks of the testbed (scale=mini): a model of 5 million parameters on tasks of its own. It "
            "shows how methods order there and what they keep of the full cache. It says nothing of the paper's models."
        )

    @cached_property
    def counts(self) -> ClaimCounts:
        """How many claims have which verdict."""
        return count_claims(self.verdicts)

    @property
    def shown(self) -> list[ReportItem]:
        """The items with a number, a figure or a formula of ours, in the paper's order."""
        return [entry for entry in self.entries if entry.has_content]

    @property
    def folded(self) -> list[ReportItem]:
        """The others: a line each, with the reason."""
        return [entry for entry in self.entries if not entry.has_content]

    @cached_property
    def places(self) -> ClaimPlaces:
        """At which item each claim stands."""
        return place_claims(self.verdicts, [entry.name for entry in (*self.shown, *self.folded)])

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
    def sources(self) -> list[RunSource]:
        """Every combination of commit, versions and machine behind the rows."""
        return sources(self.rows.fillna("")) if not self.rows.empty else []


def build_page(paper: str, data: ReportData) -> PaperPage:
    """Everything that a paper's page shows."""
    commands = (
        f"python -m harness +exp={paper}/all scale={data.scale}",
        f"python -m harness report paper={paper} scale={data.scale}",
    )
    broken = tuple(sorted(data.index.broken))
    if paper not in PAPERS:
        return PaperPage(paper, data.scale, commands, list(our_items(paper, data)), (), data.rows, broken)
    found = list(report_items(paper, data))
    beside = Measurements(data.results, data.rows, data.store, data.scale)
    decided = verdicts(claims(paper), data.index, data.scale, beside)
    rows = _paper_rows(paper, data)
    compared = below_random(data.index.cells, frozenset(rows["cell_id"].astype(str))) if len(rows) else None
    return PaperPage(paper, data.scale, commands, found, decided, rows, broken, compared)


def _paper_rows(paper: str, data: ReportData) -> pd.DataFrame:
    """The rows of the cells that the paper's experiments list, and of the dense cells of the same tasks."""
    listed = paper_items(paper)
    names = listed.loc[listed["needs"] != "drawing", "item"]
    keys = {key for name in names for key in figure_cells(paper, name, data.scale).keys}
    tasks = {key[KEY.index("task")] for key in keys}
    own = {
        str(cell.rows["cell_id"].iloc[0])
        for cell in data.index.cells
        if experiment_key(cell) in keys or (cell.policy == "dense" and cell.task in tasks)
    }
    return data.rows[data.rows["cell_id"].isin(own)] if own else data.rows.iloc[:0]


def render_page(page: PaperPage) -> str:
    """The report as text; the same for the same rows."""
    return _templates().get_template("paper.html").render(page=page)


def render_ledger(page: PaperPage) -> str:
    """The page of every claim with its numbers, as text."""
    return _templates().get_template("claim_ledger.html").render(page=page)


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([Path(__file__).parent, Path(__file__).parents[1] / "report"]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["sheet"] = TableSheets
    environment.filters["code"] = _with_code
    environment.filters["verdict_label"] = lambda verdict: outcome_label(verdict.outcome, verdict.lean)
    environment.filters["verdict_style"] = lambda verdict: outcome_style(verdict.outcome, verdict.lean)
    return environment


def _with_code(text: str) -> Markup:
    """Text as HTML, with `what stands between backticks` as code."""
    escaped = str(escape(text))
    parts = escaped.split("`")
    if len(parts) % 2 == 0:  # a backtick is alone
        return Markup(escaped)
    return Markup("".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts)))
