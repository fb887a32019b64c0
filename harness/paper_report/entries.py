"""Every table and figure of a paper in its order: what is shown in its place, and the reason where nothing is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from harness import figures, measured
from harness.figures.points import experiment
from harness.measured.efficiency import NotMeasuredError
from harness.paper_report.tables import PaperTable, Tables
from harness.published import items
from harness.published.places import FOLDER
from harness.store import Store
from harness.verdicts import Scale
from harness.verdicts.shelf import Shelf

PAPER_TITLES = {"keydiff": "KeyDiff", "caote": "CAOTE", "buzz": "BUZZ", "hashevict": "HashEvict", "kvec": "K-VEC"}
COMPLEXITIES = {("keydiff", "Table 4"): "keydiff_table4_complexity.md"}  # tables of formulas, as they are printed


@dataclass(frozen=True)
class Entry:
    """One item. ``reason``: why there is nothing of ours; empty where there is.

    ``formulas``: a printed table without numbers, as (headings, lines).
    """

    paper: str
    name: str  # "Table 1"; a title of our own where the paper has no such item
    shows: str
    needs: str  # as in `harness.published.items`; empty for what only we show
    table: PaperTable | None = None
    drawing: figures.Drawing | None = None
    measured: Sequence[measured.Table] = ()
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
    shelf: Shelf
    scale: Scale

    @property
    def store(self) -> Store:
        """The store that the rows are from; diagnostics lie beside it."""
        return Store(self.results / "runs")


def entries(paper: str, stored: Stored) -> Iterator[Entry]:
    """The items of ``items.csv`` in their order, then what only we show for this paper."""
    tables = Tables(paper, stored.rows, stored.shelf, stored.store, stored.scale)
    for line in items(paper).to_dict("records"):
        yield _entry(paper, {str(k): str(v) for k, v in line.items()}, tables, stored)
    yield from ours(paper, stored)


def _entry(paper: str, line: Mapping[str, str], tables: Tables, stored: Stored) -> Entry:
    name = line["item"]
    known = (paper, name, line["shows"], line["needs"])
    if line["needs"] == "drawing":
        return Entry(*known, reason="An illustration: there is nothing in it to measure.")
    beside, lacking = _beside(paper, name, stored)
    if name.startswith("Figure"):
        place = figures.place(paper, name, stored.rows, stored.store)
        table = tables.table(name)
        reason = "" if place.drawing else place.reason
        return Entry(*known, table=table, drawing=place.drawing, measured=beside, reason=reason)
    table = tables.table(name)
    formulas = _formulas(COMPLEXITIES[paper, name]) if (paper, name) in COMPLEXITIES else None
    reason = ""
    if table is not None and not table.has_ours and not beside:
        reason = " ".join(dict.fromkeys(filter(None, (*table.reasons[:2], lacking))))
    elif not beside:
        reason = lacking or ("" if table else f"Nothing of ours: it needs {line['data_needed']}.")
    return Entry(*known, table=table, measured=beside, formulas=formulas, reason=reason, remarks=_remarks(paper, name))


def ours(paper: str, stored: Stored) -> Iterator[Entry]:
    """What only we show: beside a paper's own items, and on the page ``paper=ours``."""
    for name in measured.extras(paper):
        found, lacking = _beside(paper, name, stored)
        yield Entry(paper, name, "", "", measured=found, reason=lacking)


def _beside(paper: str, name: str, stored: Stored) -> tuple[Sequence[measured.Table], str]:
    """What is measured beside scores, or the sentence that says why it is not there."""
    try:
        return measured.tables(paper, name, stored.rows, stored.results), ""
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
