"""The ledger: what each cell was allowed, and what it used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.report.labels import ordered_budgets, ordered_policies
from harness.report.rows import CONTEXT


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


def bytes_text(size: int) -> str:
    """Bytes in binary units: 1,536 is ``1.5 KiB``."""
    if size < 1024:
        return f"{size} B"
    amount, units = size / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.3g} {units[0]}" if amount < 1000 else f"{amount:.0f} {units[0]}"
