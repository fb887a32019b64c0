"""The folder of a paper's report: its pages, and every table and figure as files of their own."""

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
from harness.papers.cell_index import CellIndex
from harness.papers.claim_verdicts import Verdict
from harness.papers.paper_page import (
    PaperPage,
    ScaleResults,
    build_page,
    render_ledger,
    render_page,
    rows_of_paper,
)
from harness.papers.published import OF_OUR_MODELS, PAPER_TITLES, PAPERS, Scale, model_of
from harness.papers.report_items import ReportData, ReportItem
from harness.papers.table_formats import (
    csv_of_measured,
    csv_of_numbers,
    csv_of_table,
    latex,
    markdown,
    markdown_of_measured,
)
from harness.store.loading import load_rows, rows_fingerprint

VERDICT_COLUMNS = (
    "claim", "scale", "model", "text", "outcome", "lean", "estimate", "low", "high", "p_holm", "samples", "needed",
    "same_as", "items", "printed", "sentence", "reason",
)  # fmt: skip


def write_reports(papers: Sequence[str], results: Path, scale: Scale | None, out: Path) -> Iterator[tuple[Path, bool]]:
    """Write ``<out>/<paper>/`` for each of these papers from the rows under ``results``.

    Without a ``scale`` every one of our models that has rows of the paper stands beside the others.

    Yields each page's path, and whether it was written: a report whose rows, diagnostics, efficiency rows, sources and
    libraries have not changed would come out the same, and is left as it is.
    """
    fingerprint = report_fingerprint(results, scale or "our models")

    def data(scale: Scale) -> ReportData:  # for each paper anew: what it loads of diagnostics goes with it
        rows, index = loaded()
        return ReportData(results, rows, index, scale)

    @cache
    def loaded() -> tuple[pd.DataFrame, CellIndex]:
        rows = load_rows(results)
        return rows, CellIndex(rows)

    for paper in papers:
        stale = not is_fresh(out / paper, fingerprint)
        if stale:
            shown = [data(scale)] if scale else _measured(paper, [data(each) for each in OF_OUR_MODELS])
            write_report_folder(build_page(paper, shown), out / paper)
            store_fingerprint(out / paper, fingerprint)
        yield out / paper / "index.html", stale


def write_report_folder(page: PaperPage, folder: Path) -> Path:
    """Write ``folder`` and return the page's path. Files of an earlier report that this one lacks are removed."""
    files: dict[str, bytes] = {"index.html": render_page(page).encode()}
    for part in page.parts:
        for entry in part.entries:
            files |= {f"{part.scale}/{name}": content for name, content in _item_files(entry, part).items()}
    if page.claims:
        files["claims.html"] = render_ledger(page).encode()
        files["verdicts.csv"] = _verdicts_csv(page).encode()
    for scale in ("", *(part.scale for part in page.parts)):
        (folder / scale).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(folder / name, content)
    for left in sorted(folder.rglob("*_*.*")):
        if left.relative_to(folder).as_posix() not in files and left.suffix in (".md", ".tex", ".csv", ".svg", ".png"):
            left.unlink()
    return folder / "index.html"


def _measured(paper: str, found: Sequence[ReportData]) -> Sequence[ReportData]:
    """Those with rows of the paper's methods, or the last one where none has any. Our own page is of all rows."""
    if paper not in PAPERS:
        return found[-1:]
    return [data for data in found if _has_methods(rows_of_paper(paper, data), model_of(data.scale))] or found[-1:]


def _has_methods(rows: pd.DataFrame, model: str) -> bool:
    """Whether there is a row of this model that is not dense: a dense cell may stand for other papers' tasks."""
    return not rows.empty and bool(((rows["model"] == model) & (rows["policy"] != "dense")).any())


def _item_files(entry: ReportItem, page: ScaleResults) -> Mapping[str, bytes]:
    out: dict[str, bytes] = {}
    title = f"{PAPER_TITLES.get(entry.paper, entry.paper)} {entry.name}"
    if entry.table is not None:
        notes = (page.banner, *entry.table.proxy_sentence)
        out[f"{entry.slug}.md"] = markdown(entry.table, f"{title}: {entry.shows}", notes).encode()
        out[f"{entry.slug}.tex"] = latex(entry.table, f"{title}: {entry.shows}", notes).encode()
        out[f"{entry.slug}.csv"] = csv_of_table(entry.table).encode()
        out[f"{entry.slug}_places.csv"] = csv_of_numbers(entry.table).encode()
    if entry.drawing is not None:
        out[f"{entry.slug}.svg"] = entry.drawing.svg.encode()
        out[f"{entry.slug}.png"] = entry.drawing.png
    for table in entry.measured:
        out[f"{entry.slug}_{table.name}.csv"] = csv_of_measured(table).encode()
        out[f"{entry.slug}_{table.name}.md"] = markdown_of_measured(table).encode()
    return out


def _verdicts_csv(page: PaperPage) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(VERDICT_COLUMNS)
    for part in page.parts:
        for each in part.verdicts:
            writer.writerow(_verdict_line(each, part))
    return buffer.getvalue()


def _verdict_line(each: Verdict, part: ScaleResults) -> tuple[object, ...]:
    claim = each.claim
    # Processors add up in different orders: the last digits are theirs, and the same rows must give the same file.
    numbers = (format(number, ".6g") for number in (each.estimate, *each.interval, each.p))
    return (
        claim.id, part.scale, part.model, claim.text, each.outcome, each.lean, *numbers, each.n,
        each.needed_samples or "", each.same_as,
        "; ".join(claim.items), claim.evidence, each.sentence, each.reason,
    )  # fmt: skip


# Whether a report is up to date: a fingerprint of everything it is made from is stored in its folder.


PROJECT_FOLDERS = ("harness", "tasks", "policies", "conf", "results/published")  # folders of the project
LIBRARIES = ("jinja2", "matplotlib", "numpy", "pandas", "pyarrow")
RESULT_FOLDERS = ("diagnostics", "efficiency")  # folders of results that reports show too
FINGERPRINT_FILE = ".made_from"


def report_fingerprint(results: Path, scale: str) -> str:
    """16 hex digits over rows, diagnostics, efficiency rows, the project's files and the libraries that draw."""
    return hash_data(
        {
            "scale": scale,
            "rows": rows_fingerprint(results),
            "beside": {name: _folder_hash(results / name) for name in RESULT_FOLDERS},
            "project": {name: _folder_hash(ROOT / name) for name in PROJECT_FOLDERS},
            "libraries": {name: version(name) for name in LIBRARIES},
        }
    )


def is_fresh(report: Path, fingerprint: str) -> bool:
    """Whether the report in this folder has this fingerprint."""
    file = report / FINGERPRINT_FILE
    return (report / "index.html").is_file() and file.is_file() and file.read_text() == fingerprint


def store_fingerprint(report: Path, fingerprint: str) -> None:
    """Store the fingerprint with the report; written last, so that half a report is never fresh."""
    write_atomically(report / FINGERPRINT_FILE, fingerprint.encode())


def _folder_hash(folder: Path) -> str:
    """A hash of every file below, with its path; Python's caches are left out."""
    digest = hashlib.sha256()
    for file in sorted(file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts):
        digest.update(f"{file.relative_to(folder)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
