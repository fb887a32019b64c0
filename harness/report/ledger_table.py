"""The ledger: what each cell was allowed, and what it used, as a frame and as a page shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.report.labels import context_title, ordered_budgets, ordered_policies
from harness.report.looks import is_baseline
from harness.report.rows import CONTEXT
from harness.report.summary import Line


def ledger_lines(accepted: pd.DataFrame, labels: Mapping[str, str]) -> pd.DataFrame:
    """One line per cell of checked rows, invalid ones included; ``labels`` are by cell.

    Slots are per layer and KV head: ``requested_min`` and ``requested_max`` over samples (-1 for dense),
    ``kept_max`` the most that survived between chunks or steps, ``peak`` the most that attention saw at once.
    ``kv_bytes`` and ``state_bytes`` are the largest over samples, ``evicted`` (tokens per layer and KV head)
    and ``coverage`` (share of the prompt's tokens, 0 to 1) are means over samples, as is ``reread`` (tokens that the
    model is fed for the policy alone), which counts as 0 in rows that are older than its column.
    """
    # A sample has one row per metric, all with the same ledger.
    once = accepted.drop_duplicates(["cell_id", "sample_id"])
    once = once.assign(reread=once["tokens_reread"].fillna(0).astype(float) if "tokens_reread" in once else 0.0)
    broken = accepted[accepted["invalid"] != ""].groupby("cell_id").size()
    lines: list[dict[str, Any]] = []
    for cell, part in once.groupby("cell_id", sort=False):
        first = part.iloc[0]
        lines.append(
            {name: first[name] for name in ("cell_id", *CONTEXT, "task", "policy", "budget", "dense")}
            | {
                "label": labels[str(cell)],
                "samples": len(part),
                "requested_min": int(part["slots_requested"].min()),
                "requested_max": int(part["slots_requested"].max()),
                "kept_max": int(part["slots_kept_max"].max()),
                "peak": int(part["slots_peak"].max()),
                "kv_bytes": int(part["kv_bytes"].max()),
                "state_bytes": int(part["state_bytes"].max()),
                "reread": float(part["reread"].mean()),
                "evicted": float(part["tokens_evicted"].mean()),
                "coverage": float(part["coverage"].mean()),
                "invalid_rows": int(broken.get(cell, 0)),
            }
        )
    table = pd.DataFrame(lines)
    policies, budgets = ordered_policies(table["label"]), ordered_budgets(table["budget"])
    keys = table[list(CONTEXT)].assign(
        task=table["task"].map({name: i for i, name in enumerate(table["task"].unique())}),
        sparse=~table["dense"],
        budget=table["budget"].map(budgets.index),
        label=table["label"].map(policies.index),
    )
    order = keys.sort_values([*CONTEXT, "task", "sparse", "label", "budget"], kind="stable").index
    return table.loc[order].reset_index(drop=True)


def struck_places(ledger: pd.DataFrame, context: Mapping[str, object]) -> set[tuple[bool, str, str]]:
    """The cells of a context and task that broke an invariant, as (dense, label, budget)."""
    same = ledger["invalid_rows"] > 0
    for name in (*CONTEXT, "task"):
        same &= ledger[name] == context[name]
    places = ledger[same][["dense", "label", "budget"]].itertuples(index=False)
    return {(bool(dense), str(label), str(budget)) for dense, label, budget in places}


# The ledger as a page shows it.


def bytes_text(size: int) -> str:
    """Bytes in binary units: 1,536 is ``1.5 KiB``."""
    if size < 1024:
        return f"{size} B"
    amount, units = size / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.3g} {units[0]}" if amount < 1000 else f"{amount:.0f} {units[0]}"


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
