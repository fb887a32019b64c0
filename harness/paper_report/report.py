"""Rows in, a folder for each paper out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from harness.figures.points import KEY, wanted
from harness.paper_report.entries import Stored, entries, ours
from harness.paper_report.freshness import is_fresh, made_from, mark
from harness.paper_report.lookup import key_of
from harness.paper_report.page import Page
from harness.paper_report.write import write
from harness.published import PAPERS, claims, items
from harness.store import load_rows
from harness.verdicts import Scale, verdicts
from harness.verdicts.shelf import Shelf

OURS = "ours"  # the page of what only we show


def reported(papers: Sequence[str], results: Path, scale: Scale, out: Path) -> Iterator[tuple[Path, bool]]:
    """Write ``<out>/<paper>/`` for each of these papers from the rows under ``results``; the pages' paths.

    With each, whether it was written: a report whose rows, diagnostics, costs, sources and libraries are what they were
    would come out the same, and is left as it is.
    """
    stamp = made_from(results, scale)

    @cache
    def stored() -> Stored:
        rows = load_rows(results)
        return Stored(results, rows, Shelf(rows), scale)

    for paper in papers:
        stale = not is_fresh(out / paper, stamp)
        if stale:
            write(page_of(paper, stored()), out / paper)
            mark(out / paper, stamp)
        yield out / paper / "index.html", stale


def page_of(paper: str, stored: Stored) -> Page:
    """Everything that a paper's page shows."""
    commands = (
        f"python -m harness +exp={paper}/all scale={stored.scale}",
        f"python -m harness.report paper={paper} scale={stored.scale}",
    )
    broken = tuple(sorted(stored.shelf.broken))
    if paper not in PAPERS:
        return Page(paper, stored.scale, commands, list(ours(paper, stored)), (), stored.rows, broken)
    found = list(entries(paper, stored))
    decided = verdicts(claims(paper), stored.shelf, stored.scale)
    return Page(paper, stored.scale, commands, found, decided, _rows_of(paper, stored), broken)


def _rows_of(paper: str, stored: Stored) -> pd.DataFrame:
    """The rows of the cells that the paper's experiments list, and of the dense ones beside them."""
    asked = items(paper)
    names = asked.loc[asked["needs"] != "drawing", "item"]
    keys = {key for name in names for key in wanted(paper, name, stored.scale).keys}
    tasks = {key[KEY.index("task")] for key in keys}
    own = {
        str(cell.rows["cell_id"].iloc[0])
        for cell in stored.shelf.cells
        if key_of(cell) in keys or (cell.policy == "dense" and cell.task in tasks)
    }
    return stored.rows[stored.rows["cell_id"].isin(own)] if own else stored.rows.iloc[:0]
