"""The summary and the ledger as a reader meets them: policies down, budgets across, every number as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from harness.report.ledger import bytes_text
from harness.report.names import NLL, context_title, metric_title, ordered_budgets, ordered_policies
from harness.report.rows import CONTEXT
from harness.report.summary import PANEL, Line, difference_text, interval_text, value_text, verdict


@dataclass(frozen=True)
class Entry:
    """One place of a summary table. ``state``: ``ok``, ``invalid`` (struck out) or ``missing`` (not run)."""

    state: str
    value: str = ""
    interval: str = ""
    difference: str = ""
    verdict: str = ""  # against dense: better, worse, or empty
    rank: str = ""  # best, second, or empty
    n: str = ""  # only where it is not the table's own


@dataclass(frozen=True)
class Grid:
    """One table: a task and metric in one context."""

    context: str
    task: str
    metric: str
    lower_is_better: bool
    samples: str
    uneven: bool  # whether cells were measured on different numbers of samples
    compared: bool  # whether there is a dense cell to compare with
    budgets: list[str]
    dense: list[Entry]
    rows: list[tuple[str, list[Entry]]]
    panel: pd.DataFrame  # the lines of the summary behind it


def grids(summary: pd.DataFrame, ledger: pd.DataFrame, shown: tuple[str, ...]) -> Iterator[Grid]:
    """Every table of the summary, in its order; cells struck out keep their place."""
    struck = ledger[ledger["invalid_rows"] > 0]
    for key, panel in summary.groupby(list(PANEL), sort=False):
        context = dict(zip(PANEL, key, strict=True))
        mask = (struck[[*CONTEXT, "task"]] == pd.Series({name: context[name] for name in (*CONTEXT, "task")})).all(axis=1)
        yield _grid(panel, struck[mask], context, context_title(context, shown))


def _grid(panel: pd.DataFrame, struck: pd.DataFrame, context: Mapping[str, object], title: str) -> Grid:
    sparse, lost = panel[~panel["dense"]], struck[~struck["dense"]]
    budgets = ordered_budgets([*sparse["budget"], *lost["budget"]])
    labels = ordered_policies([*sparse["label"], *lost["label"]])
    usual = int(panel["n"].mode().iloc[-1])
    lines = {(line["label"], line["budget"]): _entry(line, usual) for _, line in sparse.iterrows()}
    lines |= {(line["label"], line["budget"]): Entry("invalid") for _, line in lost.iterrows()}
    metric = str(context["metric"])
    return Grid(
        context=title,
        task=str(context["task"]),
        metric=metric_title(metric),
        lower_is_better=metric == NLL,
        samples=samples_text(panel),
        uneven=panel["n"].nunique() > 1,
        compared=bool(panel["dense"].any()) and not sparse.empty,
        budgets=budgets,
        dense=[_entry(line, usual) for _, line in panel[panel["dense"]].iterrows()]
        + [Entry("invalid")] * int(struck["dense"].sum()),
        rows=[(label, [lines.get((label, budget), Entry("missing")) for budget in budgets]) for label in labels],
        panel=panel,
    )


def _entry(line: Line, usual: int) -> Entry:
    return Entry(
        state="ok",
        value=value_text(line),
        interval=interval_text(line),
        difference=difference_text(line),
        verdict=verdict(line),
        rank=str(line["rank"]),
        n="" if line["n"] == usual else f"n = {line['n']}",
    )


def samples_text(panel: pd.DataFrame) -> str:
    """``40 samples from 8 documents`` for the cells of a panel; ranges where cells differ."""
    samples, clusters = _range(panel["n"]), _range(panel["n_clusters"])
    if samples == clusters:
        return f"{samples} independent samples" if samples != "1" else "1 sample"
    return f"{samples} samples from {clusters} document{'s' if clusters != '1' else ''}"


def _range(numbers: pd.Series) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


@dataclass(frozen=True)
class LedgerLine:
    """One cell of the ledger as text."""

    label: str
    task: str
    budget: str
    cells: list[str]
    invalid: str


LEDGER_HEADINGS = (
    ("samples", ""),
    ("requested", "slots"),
    ("kept, largest", "slots"),
    ("peak", "slots"),
    ("K and V", "bytes"),
    ("policy state", "bytes"),
    ("evicted, mean", "tokens"),
    ("coverage, mean", "% of prompt"),
)


def ledgers(ledger: pd.DataFrame, shown: tuple[str, ...]) -> Iterator[tuple[str, list[LedgerLine]]]:
    """The ledger, one table per context."""
    for key, part in ledger.groupby(list(CONTEXT), sort=False):
        title = context_title(dict(zip(CONTEXT, key, strict=True)), shown)
        yield title, [_ledger_line(line) for _, line in part.iterrows()]


def _ledger_line(line: Line) -> LedgerLine:
    low, high = line["requested_min"], line["requested_max"]
    requested = "all" if line["dense"] else f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return LedgerLine(
        label=line["label"],
        task=line["task"],
        budget=line["budget"],
        cells=[
            f"{line['samples']:,}",
            requested,
            f"{line['kept_max']:,}",
            f"{line['peak']:,}",
            bytes_text(line["kv_bytes"]),
            bytes_text(line["state_bytes"]),
            f"{line['evicted']:,.1f}",
            f"{100 * line['coverage']:.1f}",
        ],
        invalid=f"{line['invalid_rows']:,}" if line["invalid_rows"] else "",
    )
