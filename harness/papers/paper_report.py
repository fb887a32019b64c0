"""Whether a report would come out as it stands: a fingerprint of all that it is made from, kept beside it."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pandas as pd

from harness.atomic_files import write_atomically
from harness.config.identity import hash_data
from harness.config.source_code import ROOT
from harness.papers.cell_lookup import key_of
from harness.papers.claim_ledger import claims
from harness.papers.figures.figure_data import KEY, figure_cells
from harness.papers.paper_page import PAPER_TITLES, Page, ReportItem, Stored, ours, render, report_items
from harness.papers.published import PAPERS, items
from harness.papers.row_index import RowIndex
from harness.papers.table_formats import comma_separated, latex, markdown, wide
from harness.papers.verdicts import Scale, Verdict, verdicts
from harness.store.loading import load_rows, rows_fingerprint

OURS = ("harness", "tasks", "policies", "conf", "results/published")  # folders of the project
LIBRARIES = ("jinja2", "matplotlib", "numpy", "pandas", "pyarrow")
BESIDE_ROWS = ("diagnostics", "efficiency")  # folders of results that reports show too
STAMP = ".made_from"


def made_from(results: Path, scale: str) -> str:
    """16 hex digits over rows, diagnostics, costs, the project's own files and the libraries that write and draw."""
    return hash_data(
        {
            "scale": scale,
            "rows": rows_fingerprint(results),
            "beside": {name: _content(results / name) for name in BESIDE_ROWS},
            "project": {name: _content(ROOT / name) for name in OURS},
            "libraries": {name: version(name) for name in LIBRARIES},
        }
    )


def is_fresh(report: Path, stamp: str) -> bool:
    """Whether the report in this folder was made from the same."""
    file = report / STAMP
    return (report / "index.html").is_file() and file.is_file() and file.read_text() == stamp


def mark(report: Path, stamp: str) -> None:
    """Remember what the report in this folder was made from; written last, so that half a report is never fresh."""
    write_atomically(report / STAMP, stamp.encode())


def _content(folder: Path) -> str:
    """Of every file below, under its path, but for what Python caches."""
    digest = hashlib.sha256()
    for file in sorted(file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts):
        digest.update(f"{file.relative_to(folder)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


# The folder of a paper's report: the page, and every table and figure as files of their own.


def write(page: Page, folder: Path) -> Path:
    """Write ``folder`` and return the page's path. Files of an earlier report that this one lacks are removed."""
    files: dict[str, bytes] = {"index.html": render(page).encode()}
    for entry in page.entries:
        files |= _of_entry(entry, page)
    if page.verdicts:
        files["verdicts.csv"] = _verdicts(page).encode()
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(folder / name, content)
    for left in sorted(folder.glob("*_*.*")):
        if left.name not in files and left.suffix in (".md", ".tex", ".csv", ".svg", ".png"):
            left.unlink()
    return folder / "index.html"


def _of_entry(entry: ReportItem, page: Page) -> Mapping[str, bytes]:
    out: dict[str, bytes] = {}
    title = f"{PAPER_TITLES.get(entry.paper, entry.paper)} {entry.name}"
    if entry.table is not None:
        notes = (page.banner, *entry.table.stand_in_sentence)
        out[f"{entry.slug}.md"] = markdown(entry.table, f"{title}: {entry.shows}", notes).encode()
        out[f"{entry.slug}.tex"] = latex(entry.table, f"{title}: {entry.shows}", notes).encode()
        out[f"{entry.slug}.csv"] = wide(entry.table).encode()
        out[f"{entry.slug}_places.csv"] = comma_separated(entry.table).encode()
    if entry.drawing is not None:
        out[f"{entry.slug}.svg"] = entry.drawing.svg.encode()
        out[f"{entry.slug}.png"] = entry.drawing.png
    for table in entry.measured:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerows([table.columns, *table.lines])
        out[f"{entry.slug}_{table.name}.csv"] = buffer.getvalue().encode()
    return out


def _verdicts(page: Page) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(
        (
            "claim",
            "text",
            "outcome",
            "estimate",
            "low",
            "high",
            "p_holm",
            "samples",
            "needed",
            "items",
            "printed",
            "reason",
        )
    )
    for each in page.verdicts:
        writer.writerow(_verdict(each))
    return buffer.getvalue()


def _verdict(each: Verdict) -> tuple[object, ...]:
    claim = each.claim
    # Processors add up in different orders: the last digits are theirs, and the same rows must give the same file.
    numbers = (format(number, ".6g") for number in (each.estimate, *each.interval, each.p))
    return (
        claim.id, claim.text, each.outcome, *numbers, each.n, each.needed_samples or "",
        "; ".join(claim.items), claim.evidence, each.reason,
    )  # fmt: skip


# Rows in, a folder for each paper out.


OURS_PAGE = "ours"  # the page of what only we show


def reported(papers: Sequence[str], results: Path, scale: Scale, out: Path) -> Iterator[tuple[Path, bool]]:
    """Write ``<out>/<paper>/`` for each of these papers from the rows under ``results``; the pages' paths.

    With each, whether it was written: a report whose rows, diagnostics, costs, sources and libraries are what they were
    would come out the same, and is left as it is.
    """
    stamp = made_from(results, scale)

    @cache
    def stored() -> Stored:
        rows = load_rows(results)
        return Stored(results, rows, RowIndex(rows), scale)

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
        f"python -m harness report paper={paper} scale={stored.scale}",
    )
    broken = tuple(sorted(stored.shelf.broken))
    if paper not in PAPERS:
        return Page(paper, stored.scale, commands, list(ours(paper, stored)), (), stored.rows, broken)
    found = list(report_items(paper, stored))
    decided = verdicts(claims(paper), stored.shelf, stored.scale)
    return Page(paper, stored.scale, commands, found, decided, _rows_of(paper, stored), broken)


def _rows_of(paper: str, stored: Stored) -> pd.DataFrame:
    """The rows of the cells that the paper's experiments list, and of the dense ones beside them."""
    asked = items(paper)
    names = asked.loc[asked["needs"] != "drawing", "item"]
    keys = {key for name in names for key in figure_cells(paper, name, stored.scale).keys}
    tasks = {key[KEY.index("task")] for key in keys}
    own = {
        str(cell.rows["cell_id"].iloc[0])
        for cell in stored.shelf.cells
        if key_of(cell) in keys or (cell.policy == "dense" and cell.task in tasks)
    }
    return stored.rows[stored.rows["cell_id"].isin(own)] if own else stored.rows.iloc[:0]
