"""Every table and figure of a paper in its order: what is shown in its place, and the reason where nothing is."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import jinja2
import pandas as pd

from harness.papers.efficiency import MeasuredTable, NotMeasuredError
from harness.papers.extra_tables import extras, tables
from harness.papers.figures.canvas import Drawing
from harness.papers.figures.figure_data import experiment
from harness.papers.figures.figure_index import place as figure_slot
from harness.papers.paper_tables import PaperTable, Tables
from harness.papers.published import FOLDER, items
from harness.papers.row_index import RowIndex
from harness.papers.table_formats import sheet
from harness.papers.verdicts import Outcome, Scale, Verdict
from harness.report.ledger_table import RunSource, sources
from harness.store.store import Store

PAPER_TITLES = {"keydiff": "KeyDiff", "caote": "CAOTE", "buzz": "BUZZ", "hashevict": "HashEvict", "kvec": "K-VEC"}
COMPLEXITIES = {("keydiff", "Table 4"): "keydiff_table4_complexity.md"}  # tables of formulas, as they are printed


@dataclass(frozen=True)
class ReportItem:
    """One item. ``reason``: why there is nothing of ours; empty where there is.

    ``formulas``: a printed table without numbers, as (headings, lines).
    """

    paper: str
    name: str  # "Table 1"; a title of our own where the paper has no such item
    shows: str
    needs: str  # as in `harness.papers.published.items`; empty for what only we show
    table: PaperTable | None = None
    drawing: Drawing | None = None
    measured: Sequence[MeasuredTable] = ()
    formulas: tuple[tuple[str, ...], tuple[tuple[str, ...], ...]] | None = None
    reason: str = ""
    remarks: tuple[str, ...] = field(default=())

    @property
    def slug(self) -> str:
        """``table_1``: in file names and links."""
        return experiment(self.name)


@dataclass(frozen=True)
class Stored:
    """What a report is made of."""

    results: Path
    rows: pd.DataFrame
    shelf: RowIndex
    scale: Scale

    @property
    def store(self) -> Store:
        """The store that the rows are from; diagnostics lie beside it."""
        return Store(self.results / "runs")


def report_items(paper: str, stored: Stored) -> Iterator[ReportItem]:
    """The items of ``items.csv`` in their order, then what only we show for this paper."""
    tables = Tables(paper, stored.rows, stored.shelf, stored.store, stored.scale)
    for line in items(paper).to_dict("records"):
        yield _entry(paper, {str(k): str(v) for k, v in line.items()}, tables, stored)
    yield from ours(paper, stored)


def _entry(paper: str, line: Mapping[str, str], tables: Tables, stored: Stored) -> ReportItem:
    name = line["item"]
    known = (paper, name, line["shows"], line["needs"])
    if line["needs"] == "drawing":
        return ReportItem(*known, reason="An illustration: there is nothing in it to measure.")
    beside, lacking = _beside(paper, name, stored)
    if name.startswith("Figure"):
        place = figure_slot(paper, name, stored.rows, stored.store)
        table = tables.table(name)
        reason = "" if place.drawing else place.reason
        return ReportItem(*known, table=table, drawing=place.drawing, measured=beside, reason=reason)
    table = tables.table(name)
    formulas = _formulas(COMPLEXITIES[paper, name]) if (paper, name) in COMPLEXITIES else None
    reason = ""
    if table is not None and not table.has_ours and not beside:
        reason = " ".join(dict.fromkeys(filter(None, (*table.reasons[:2], lacking))))
    elif not beside:
        reason = lacking or ("" if table else f"Nothing of ours: it needs {line['data_needed']}.")
    return ReportItem(
        *known, table=table, measured=beside, formulas=formulas, reason=reason, remarks=_remarks(paper, name)
    )


def ours(paper: str, stored: Stored) -> Iterator[ReportItem]:
    """What only we show: beside a paper's own items, and on the page ``paper=ours``."""
    for name in extras(paper):
        found, lacking = _beside(paper, name, stored)
        yield ReportItem(paper, name, "", "", measured=found, reason=lacking)


def _beside(paper: str, name: str, stored: Stored) -> tuple[Sequence[MeasuredTable], str]:
    """What is measured beside scores, or the sentence that says why it is not there."""
    try:
        return tables(paper, name, stored.rows, stored.results), ""
    except NotMeasuredError as nothing:
        return (), str(nothing)


def _remarks(paper: str, name: str) -> tuple[str, ...]:
    """What the head of the experiment file remarks."""
    file = Path(__file__).parents[2] / "conf" / "exp" / paper / f"{experiment(name)}.yaml"
    found: list[str] = []
    inside = False
    for text in file.read_text().splitlines() if file.exists() else []:
        if text.startswith("# Remark:"):
            inside = True
            found.append(text.removeprefix("# Remark:").strip())
        elif inside and text.startswith("#           "):
            found[-1] += " " + text.lstrip("# ")
        else:
            inside = False
    return tuple(found)


def _formulas(file: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    lines = [line for line in (FOLDER / file).read_text().splitlines() if line.startswith("|")]
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    return cells[0], tuple(cells[2:])


# The page of one paper: one HTML file, no network, readable in light and dark.


OUR_PAGE = "What only we show"


@dataclass(frozen=True)
class Page:
    """What a page says. ``commands``: what was typed, the sweep before the report."""

    paper: str
    scale: Scale
    commands: tuple[str, ...]
    entries: Sequence[ReportItem]
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
    def sources(self) -> list[RunSource]:
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
