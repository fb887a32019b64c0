"""The summary and the ledger as a page shows them: policies down, budgets across, every number as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.report.labels import NLL, budget_unit, context_title, metric_title, ordered_budgets, ordered_policies
from harness.report.ledger_table import bytes_text, struck_places
from harness.report.looks import is_baseline
from harness.report.rows import CONTEXT
from harness.report.summary import PANEL, Line, difference_text, interval_text, value_text, verdict


@dataclass(frozen=True)
class SummaryCell:
    """One cell of a summary table. ``state``: ``ok``, ``invalid`` (struck out) or ``missing`` (not run)."""

    state: str
    value: str = ""
    interval: str = ""
    difference: str = ""
    verdict: str = ""  # against dense: better, worse, or empty
    rank: str = ""  # best, second, or empty
    n: str = ""  # only where it is not the table's own
    cell: str = ""  # the id of its cell, whose samples the page lists


@dataclass(frozen=True)
class SummaryGrid:
    """One table: a task and metric in one context."""

    context: str
    task: str
    metric: str
    lower_is_better: bool
    samples: str
    uneven: bool  # whether cells were measured on different numbers of samples
    compared: bool  # whether there is a dense cell to compare with
    struck: bool  # whether a cell is struck out
    budgets: list[str]
    unit: str  # of the budgets
    dense: list[SummaryCell]
    rows: list[tuple[str, list[SummaryCell]]]
    panel: pd.DataFrame  # the lines of the summary behind it


def summary_grids(summary: pd.DataFrame, ledger: pd.DataFrame, shown: tuple[str, ...]) -> Iterator[SummaryGrid]:
    """Every table of the summary, in its order; cells that are struck out stay in it."""
    for key, panel in summary.groupby(list(PANEL), sort=False):
        context = dict(zip(PANEL, key, strict=True))
        yield _summary_grid(panel, struck_places(ledger, context), context, context_title(context, shown))


def _summary_grid(
    panel: pd.DataFrame, struck: set[tuple[bool, str, str]], context: Mapping[str, object], title: str
) -> SummaryGrid:
    sparse = panel[~panel["dense"]]
    usual = int(panel["n"].mode().iloc[-1])
    cells = {(line["label"], line["budget"]): _summary_cell(line, usual) for line in sparse.to_dict("records")}
    cells |= {(label, budget): SummaryCell("invalid") for dense, label, budget in struck if not dense}
    dense = [_summary_cell(line, usual) for line in panel[panel["dense"]].to_dict("records")]
    budgets = ordered_budgets(budget for _, budget in cells)
    metric = str(context["metric"])
    return SummaryGrid(
        context=title,
        task=str(context["task"]),
        metric=metric_title(metric),
        lower_is_better=metric == NLL,
        samples=samples_text(panel),
        uneven=panel["n"].nunique() > 1,
        compared=bool(dense) and not sparse.empty,
        struck=bool(struck),
        budgets=budgets,
        unit=budget_unit(budgets),
        dense=dense + [SummaryCell("invalid") for is_dense, _, _ in struck if is_dense],
        rows=[
            (label, [cells.get((label, budget), SummaryCell("missing")) for budget in budgets])
            for label in ordered_policies(label for label, _ in cells)
        ],
        panel=panel,
    )


def _summary_cell(line: Line, usual: int) -> SummaryCell:
    return SummaryCell(
        state="ok",
        value=value_text(line),
        interval=interval_text(line),
        difference=difference_text(line),
        verdict=verdict(line),
        rank=str(line["rank"]),
        n="" if line["n"] == usual else f"n = {line['n']}",
        cell=str(line["cell_id"]),
    )


def samples_text(panel: pd.DataFrame) -> str:
    """``40 samples from 8 documents`` for the cells of a panel; ranges where cells differ."""
    samples, clusters = _range_text(panel["n"]), _range_text(panel["n_clusters"])
    if samples == clusters:
        return f"{samples} independent samples" if samples != "1" else "1 sample"
    return f"{samples} samples from {clusters} document{'s' if clusters != '1' else ''}"


def _range_text(numbers: pd.Series) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


@dataclass(frozen=True)
class LedgerColumn:
    """A column of the ledger: what a line of `ledger_lines` says in it."""

    title: str
    unit: str
    text: Callable[[Line], str]


def requested_text(line: Line) -> str:
    """``128``, ``120 to 128`` where samples differ, ``all`` for dense."""
    low, high = line["requested_min"], line["requested_max"]
    return "all" if line["dense"] else f"{low:,}" if low == high else f"{low:,} to {high:,}"


READ_AGAIN = LedgerColumn("read again", "tokens, mean", lambda line: f"{line['reread']:,.0f}")
LEDGER_COLUMNS = (
    LedgerColumn("samples", "", lambda line: f"{line['samples']:,}"),
    LedgerColumn("requested", "slots", requested_text),
    LedgerColumn("kept", "slots, largest", lambda line: f"{line['kept_max']:,}"),
    LedgerColumn("peak", "slots, largest", lambda line: f"{line['peak']:,}"),
    LedgerColumn("K and V", "bytes", lambda line: bytes_text(line["kv_bytes"])),
    LedgerColumn("policy state", "bytes", lambda line: bytes_text(line["state_bytes"])),
    READ_AGAIN,
    LedgerColumn("evicted", "tokens, mean", lambda line: f"{line['evicted']:,.1f}"),
    LedgerColumn("coverage", "% of prompt, mean", lambda line: f"{100 * line['coverage']:.1f}"),
    LedgerColumn("invalid", "rows", lambda line: f"{line['invalid_rows']:,}"),
)


def ledger_columns(ledger: pd.DataFrame) -> list[LedgerColumn]:
    """The columns that say something of these cells: beside the oracle hardly any policy reads tokens again."""
    again = (ledger["reread"] > 0) & ~ledger["policy"].map(is_baseline)
    return [column for column in LEDGER_COLUMNS if column is not READ_AGAIN or again.any()]


@dataclass(frozen=True)
class LedgerLine:
    """One cell of the ledger as text, the budget and then in the order of its columns."""

    cells: list[str]
    invalid: bool


@dataclass(frozen=True)
class LedgerGrid:
    """The ledger of one task in one context, policy by policy."""

    context: str
    task: str
    policies: list[tuple[str, list[LedgerLine]]]


def ledger_grids(ledger: pd.DataFrame, shown: tuple[str, ...]) -> Iterator[LedgerGrid]:
    """The ledger, one table per task and context."""
    columns = ledger_columns(ledger)
    for key, part in ledger.groupby([*CONTEXT, "task"], sort=False):
        yield LedgerGrid(
            context=context_title(dict(zip(CONTEXT, key, strict=False)), shown),
            task=str(key[-1]),
            policies=[
                (str(label), [_ledger_line(line, columns) for line in cells.to_dict("records")])
                for label, cells in part.groupby("label", sort=False)
            ],
        )


def _ledger_line(line: Line, columns: Sequence[LedgerColumn]) -> LedgerLine:
    return LedgerLine([line["budget"], *(column.text(line) for column in columns)], line["invalid_rows"] > 0)
