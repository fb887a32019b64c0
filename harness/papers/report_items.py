"""The tables and figures of a paper's report in their order: what is shown for each, or why nothing is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import pandas as pd

from harness.papers import efficiency_tables
from harness.papers.cell_index import CellIndex
from harness.papers.comparison_tables import both_readings, oracle_gap, prompt_regimes, realised_budgets
from harness.papers.figures.canvas import Drawing
from harness.papers.figures.figure_cells import experiment_name
from harness.papers.figures.figure_data import FigureDataOfItems
from harness.papers.figures.figure_index import OUR_FIGURES, figure_or_reason, our_figure_or_reason
from harness.papers.leaderboard import leaderboards
from harness.papers.measured_tables import MeasuredTable, NotMeasuredError
from harness.papers.paper_tables import PaperTable, PaperTables
from harness.papers.published import FOLDER, OURS, PAPERS, Scale, paper_items
from harness.store.store import Store

FORMULA_TABLES = {("keydiff", "Table 4"): "keydiff_table4_complexity.md"}  # tables of formulas, as they are printed


@dataclass(frozen=True)
class ReportItem:
    """One item. ``reason``: why we show nothing for it; empty where we do.

    ``formulas``: a printed table without numbers, as (headings, lines).
    """

    paper: str
    name: str  # "Table 1"; a title of our own where the paper has no such item
    shows: str
    needs: str  # as in `harness.papers.published.paper_items`; empty for what only we show
    table: PaperTable | None = None
    drawing: Drawing | None = None
    measured: Sequence[MeasuredTable] = ()
    formulas: tuple[tuple[str, ...], tuple[tuple[str, ...], ...]] | None = None
    reason: str = ""
    remarks: tuple[str, ...] = field(default=())

    @property
    def slug(self) -> str:
        """``table_1``: in file names and links."""
        return experiment_name(self.name)

    @property
    def has_rows(self) -> bool:
        """Whether there is a number or a figure of our rows or diagnostics."""
        return bool(self.drawing or (self.table and self.table.has_ours))

    @property
    def has_content(self) -> bool:
        """Whether there is a number, a figure or a formula to show; a printed table without ours is none."""
        return bool(self.has_rows or self.measured or self.formulas)


@dataclass(frozen=True)
class ReportData:
    """The rows and the results folder that a report is made from."""

    results: Path
    rows: pd.DataFrame
    index: CellIndex
    scale: Scale

    @cached_property
    def stored(self) -> FigureDataOfItems:
        """What tables, figures and claims show of an item, loaded once for all of them."""
        return FigureDataOfItems(self.rows, Store(self.results / "runs"), self.scale)


def report_items(paper: str, data: ReportData) -> Iterator[ReportItem]:
    """The items of ``items.csv`` in their order, then our own items for this paper."""
    tables = PaperTables(paper, data.index, data.stored)
    for line in paper_items(paper).to_dict("records"):
        yield _paper_item(paper, {str(k): str(v) for k, v in line.items()}, tables, data)
    yield from our_items(paper, data)


def our_items(paper: str, data: ReportData) -> Iterator[ReportItem]:
    """Items that no paper prints: after a paper's own items, and on the page ``paper=ours``."""
    for name in extra_items(paper):
        found, lacking = _tables_or_reason(paper, name, data)
        drawing = None
        if paper == OURS and name in OUR_FIGURES:
            drawing = our_figure_or_reason(name, data.stored).drawing
        yield ReportItem(paper, name, "", "", drawing=drawing, measured=found, reason=lacking)


def _paper_item(paper: str, line: Mapping[str, str], tables: PaperTables, data: ReportData) -> ReportItem:
    name = line["item"]
    known = (paper, name, line["shows"], line["needs"])
    if line["needs"] == "drawing":
        return ReportItem(*known, reason="An illustration: there is nothing in it to measure.")
    measured, lacking = _tables_or_reason(paper, name, data)
    if name.startswith("Figure"):
        figure = figure_or_reason(paper, name, data.stored)
        table = tables.table(name)
        reason = "" if figure.drawing else figure.reason
        return ReportItem(*known, table=table, drawing=figure.drawing, measured=measured, reason=reason)
    table = tables.table(name)
    formulas = _formulas(FORMULA_TABLES[paper, name]) if (paper, name) in FORMULA_TABLES else None
    reason = ""
    if table is not None and not table.has_ours and not measured:
        reason = " ".join(dict.fromkeys(filter(None, (*table.reasons[:2], lacking))))
    elif not measured:
        reason = lacking or ("" if table else f"Nothing of ours: it needs {line['data_needed']}.")
    return ReportItem(
        *known, table=table, measured=measured, formulas=formulas, reason=reason, remarks=_remarks(paper, name)
    )


def _tables_or_reason(paper: str, name: str, data: ReportData) -> tuple[Sequence[MeasuredTable], str]:
    """The tables of our own measurements for an item, and the reason where they cannot be made."""
    try:
        return measured_tables_of(paper, name, data.rows, data.results, data.scale), ""
    except NotMeasuredError as nothing:
        return (), str(nothing)


def _remarks(paper: str, name: str) -> tuple[str, ...]:
    """The remarks in the comments at the head of the experiment file."""
    file = Path(__file__).parents[2] / "conf" / "exp" / paper / f"{experiment_name(name)}.yaml"
    found: list[str] = []
    in_remark = False
    for text in file.read_text().splitlines() if file.exists() else []:
        if text.startswith("# Remark:"):
            in_remark = True
            found.append(text.removeprefix("# Remark:").strip())
        elif in_remark and text.startswith("#           "):
            found[-1] += " " + text.lstrip("# ")
        else:
            in_remark = False
    return tuple(found)


def _formulas(file: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    lines = [line for line in (FOLDER / file).read_text().splitlines() if line.startswith("|")]
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    return cells[0], tuple(cells[2:])


# The tables of our own measurements that belong to an item.


SPEED_ITEM = "Speed and memory"  # of a paper's methods on our machine, beyond what it prints
_EFFICIENCY_TABLES: Mapping[tuple[str, str], Callable[[Path, str], MeasuredTable]] = {
    ("keydiff", "Table 4"): efficiency_tables.keydiff_table_4,
    ("caote", "Table 6"): efficiency_tables.caote_table_6,
    ("caote", "Table 7"): efficiency_tables.caote_table_7,
    ("hashevict", "Table 1"): efficiency_tables.hashevict_table_1,
    ("kvec", "Table 8"): efficiency_tables.kvec_table_8,
    ("kvec", "Table 9"): efficiency_tables.kvec_table_9,
    **{(paper, SPEED_ITEM): partial(efficiency_tables.throughput_table, paper) for paper in PAPERS},
}
_OUR_TABLES: Mapping[str, Callable[[pd.DataFrame, Path], Sequence[MeasuredTable]]] = {
    "Leaderboard": leaderboards,
    "Oracle gap": lambda rows, _: [oracle_gap(rows)],
    "Realised budget": lambda rows, _: [realised_budgets(rows)],
    "Prompt regimes": lambda rows, _: [prompt_regimes(rows)],
    "Both readings": lambda rows, _: [both_readings(rows)],
}


def extra_items(paper: str) -> tuple[str, ...]:
    """Items beyond those that the paper prints; for ``ours`` all of them."""
    return tuple(_OUR_TABLES) if paper == OURS else (SPEED_ITEM,)


def measured_tables_of(
    paper: str, item: str, rows: pd.DataFrame, results: Path, scale: str = ""
) -> list[MeasuredTable]:
    """The tables of one item; empty where we measure nothing of our own for it.

    ``rows``: of `harness.store.loading.load_rows`. ``results``: the folder with ``efficiency/``, of which runs at this
    ``scale`` come first. Raises
    `harness.papers.measured_tables.NotMeasuredError` where nothing is stored to make them of.
    """
    if paper == OURS:
        return list(_OUR_TABLES[item](rows, results))
    made = _EFFICIENCY_TABLES.get((paper, item))
    return [made(results, scale)] if made else []
