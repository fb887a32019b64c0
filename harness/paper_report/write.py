"""The folder of a paper's report: the page, and every table and figure as files of their own."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from harness.paper_report.entries import PAPER_TITLES, Entry
from harness.paper_report.formats import comma_separated, latex, markdown, wide
from harness.paper_report.page import Page, render
from harness.store import write_atomically
from harness.verdicts import Verdict


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


def _of_entry(entry: Entry, page: Page) -> Mapping[str, bytes]:
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
