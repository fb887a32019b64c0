"""The three table pages of a site: the leaderboard, the ledger and the claims."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import pandas as pd

from harness.papers.cell_index import CellIndex
from harness.papers.claim_ledger import claims as claims_of
from harness.papers.claim_verdicts import Outcome, Verdict, verdicts
from harness.papers.published import PAPERS, Scale, model_of, scales_with_rows
from harness.report.labels import NLL, context_title, metric_title, ordered_budgets, ordered_policies
from harness.report.ledger_table import READ_AGAIN, bytes_text, requested_text
from harness.report.looks import BASELINES
from harness.report.rows import CONTEXT
from harness.report.summary import difference_text, interval_text, value_text, verdict
from harness.site.contents import SiteContents, regime_text
from harness.site.sortable_tables import (
    SortableTable,
    TableCell,
    TableColumn,
    TableLine,
    filters_of,
    number_cell,
    without_common,
)

# The leaderboard: every cell and metric with its score, its difference to dense, and its rank.


RIVALS = (*CONTEXT, "task", "metric", "budget")  # cells are ranked among those that differ in their policy alone
LEADERBOARD_COLUMNS = (
    TableColumn("policy"),
    TableColumn("budget"),
    TableColumn("task"),
    TableColumn("score", "mean, 95 % interval", number=True),
    TableColumn("place", "same task and budget", number=True),
    TableColumn("to dense", "paired, 95 % interval", number=True),
    TableColumn("kept", "slots, mean", number=True),
    TableColumn("samples", number=True),
    TableColumn("prompt"),
    TableColumn("model"),
    TableColumn("papers"),
)
FILTER_TITLES = {"paper": "paper", "task": "task", "budget": "budget", "regime": "prompt regime", "model": "model"}


def leaderboard_page(contents: SiteContents) -> SortableTable:
    """One line per cell and metric, within each task and budget the best first; dense and baselines are not ranked."""
    placed = with_ranks(contents.summary)
    cells = contents.cells
    budgets = _budgets_beside(placed)
    differing = [name for name in ("dtype", "seed") if placed[name].nunique() > 1]
    lines = [
        _leaderboard_line(each, contents, cells[str(each["cell_id"])], budgets[_rivalry(each)], differing)
        for each in _leaderboard_order(placed).to_dict("records")
    ]
    orders = {"budget": ordered_budgets(placed["budget"]), "task": sorted(set(placed["task"]))}
    table = SortableTable("leaderboard", "lines", LEADERBOARD_COLUMNS, lines, filters_of(lines, FILTER_TITLES, orders))
    return without_common(table, ("prompt", "model", "papers"))


def with_ranks(summary: pd.DataFrame) -> pd.DataFrame:
    """The summary with ``place`` (the rank) and ``rivals`` (how many are ranked).

    1 is the best; equal values share the better rank.

    Rivals are the cells of the same model, regime, block size, dtype, seed, task, metric and budget. Dense and the
    baselines have no rank (0), and neither has a cell without rivals.
    """
    placed = summary.assign(place=0, rivals=0)
    runs = ~summary["dense"].astype(bool) & ~summary["reference"].astype(bool)
    for _, part in summary[runs].groupby(list(RIVALS), sort=False):
        if len(part) > 1:
            ranks = part["value"].round(12).rank(method="min", ascending=bool((part["metric"] == NLL).all()))
            placed.loc[part.index, "place"] = ranks.astype(int)
            placed.loc[part.index, "rivals"] = len(part)
    return placed


def _leaderboard_order(placed: pd.DataFrame) -> pd.DataFrame:
    """Within a task and budget: dense, the ranked by rank, then the others."""
    budgets, policies = ordered_budgets(placed["budget"]), ordered_policies(placed["label"])
    keys = placed[[*CONTEXT, "task", "metric"]].assign(
        sparse=~placed["dense"].astype(bool),
        budget=placed["budget"].map(budgets.index),
        unplaced=placed["place"] == 0,
        place=placed["place"],
        policy=placed["label"].map(policies.index),
    )
    return placed.loc[keys.sort_values(list(keys.columns), kind="stable").index]


def _rivalry(line: Mapping[Any, Any]) -> tuple[Any, ...]:
    """Equal for lines that may be compared, whatever their budgets."""
    return tuple(line[name] for name in RIVALS if name != "budget")


def _budgets_beside(placed: pd.DataFrame) -> dict[tuple[Any, ...], list[str]]:
    """All budgets of the lines that may be compared: a dense line stands beside each of them."""
    found: dict[tuple[Any, ...], dict[str, None]] = {}
    for line in placed.to_dict("records"):
        found.setdefault(_rivalry(line), {})[str(line["budget"])] = None
    return {name: list(budgets) for name, budgets in found.items()}


def _leaderboard_line(
    line: dict[Any, Any],
    contents: SiteContents,
    cell: dict[str, Any],
    budgets: list[str],
    differing: Sequence[str],
) -> TableLine:
    """``budgets``: those whose filter shows a dense line too; ``differing``: columns of the context to name."""
    name, metric = str(line["cell_id"]), str(line["metric"])
    papers = contents.papers[name]
    difference, _, away = difference_text(line).partition(" ")
    entries = [
        TableCell(str(line["label"]), link=f"cells/{name}.html"),
        TableCell(str(line["budget"]), _budget_order(str(line["budget"]), float(line["slots_requested"]))),
        TableCell(str(line["task"]), small="" if metric == str(line["task"]) else metric_title(metric)),
        number_cell(line["value"], value_text(line), interval_text(line)),
        _rank_cell(line),
        number_cell(line["difference"], difference or "–", away, tone=verdict(line)),
        number_cell(line["slots_kept"], f"{line['slots_kept']:,.0f}"),
        number_cell(line["n"], f"{line['n']:,}"),
        TableCell(regime_text(cell)),
        TableCell(str(cell["model"]), small=context_title(line, differing)),
        TableCell(", ".join(papers) or "–"),
    ]
    keys = {
        "paper": papers,
        "task": [str(line["task"])],
        "budget": budgets if line["dense"] else [str(line["budget"])],
        "regime": [regime_text(cell)],
        "model": [str(cell["model"])],
    }
    return TableLine(entries, keys, "reference" if line["dense"] or str(line["policy"]) in BASELINES else "")


def _budget_order(text: str, slots: float) -> str:
    return repr(float("inf") if slots < 0 else slots) if text != "full" else "1e18"


def _rank_cell(line: dict[Any, Any]) -> TableCell:
    if not line["place"]:
        return TableCell("–", "")
    best = "best" if line["place"] == 1 else ""
    return number_cell(float(line["place"]), str(line["place"]), f"of {line['rivals']}", best)


# The ledger: what each cell was allowed, and what it kept.


LEDGER_COLUMNS = (
    TableColumn("policy"),
    TableColumn("budget"),
    TableColumn("task"),
    TableColumn("prompt"),
    TableColumn("requested", "slots", number=True),
    TableColumn("kept", "slots, largest", number=True),
    TableColumn("peak", "slots, largest", number=True),
    TableColumn("K and V", "bytes", number=True),
    TableColumn("policy state", "bytes", number=True),
    TableColumn("read again", "tokens, mean", number=True),
    TableColumn("evicted", "tokens, mean", number=True),
    TableColumn("coverage", "% of prompt, mean", number=True),
    TableColumn("samples", number=True),
    TableColumn("invalid", "rows", number=True),
)


def ledger_page(contents: SiteContents) -> SortableTable:
    """One line per cell, invalid ones included."""
    lines = [_ledger_line(each, contents) for each in contents.ledger.to_dict("records")]
    budgets, tasks = ordered_budgets(contents.ledger["budget"]), sorted(set(contents.ledger["task"]))
    titles = {**FILTER_TITLES, "invalid": "promises"}
    table = SortableTable(
        "ledger", "cells", LEDGER_COLUMNS, lines, filters_of(lines, titles, {"budget": budgets, "task": tasks})
    )
    return without_common(table, ("prompt", "read again", "invalid"))


def _ledger_line(line: dict[Any, Any], contents: SiteContents) -> TableLine:
    name = str(line["cell_id"])
    entries = [
        TableCell(str(line["label"]), link=f"cells/{name}.html"),
        number_cell(1e18 if line["dense"] else line["requested_max"], str(line["budget"])),
        TableCell(str(line["task"])),
        TableCell(regime_text(line)),
        number_cell(None if line["dense"] else line["requested_max"], requested_text(line)),
        number_cell(line["kept_max"], f"{line['kept_max']:,}"),
        number_cell(line["peak"], f"{line['peak']:,}"),
        number_cell(line["kv_bytes"], bytes_text(line["kv_bytes"])),
        number_cell(line["state_bytes"], bytes_text(line["state_bytes"])),
        number_cell(line["reread"], READ_AGAIN.text(line)),
        number_cell(line["evicted"], f"{line['evicted']:,.1f}"),
        number_cell(line["coverage"], f"{100 * line['coverage']:.1f}"),
        number_cell(line["samples"], f"{line['samples']:,}"),
        number_cell(line["invalid_rows"], f"{line['invalid_rows']:,}", tone="worse" if line["invalid_rows"] else ""),
    ]
    keys = {
        "paper": contents.papers[name],
        "task": [str(line["task"])],
        "budget": [str(line["budget"])],
        "regime": [regime_text(line)],
        "model": [str(line["model"])],
        "invalid": ["broken" if line["invalid_rows"] else "kept"],
    }
    return TableLine(entries, keys, "reference" if line["dense"] or str(line["policy"]) in BASELINES else "")


# The claims: what the papers say, and the verdict of the rows at hand.


CLAIM_COLUMNS = (
    TableColumn("claim"),
    TableColumn("what the paper says"),
    TableColumn("verdict"),
    TableColumn("weakest case", "95 % interval", number=True),
    TableColumn("samples", "paired", number=True),
    TableColumn("would decide it", "samples", number=True),
    TableColumn("what was found"),
)
TONES = {"reproduced": "better", "not reproduced": "worse", "inconclusive": "open", "not comparable": "apart"}
VerdictsByPaper = Mapping[str, Sequence[Verdict]]


def all_verdicts(rows: pd.DataFrame, scale: Scale | None) -> Mapping[str, VerdictsByPaper]:
    """By model, which is empty for the papers' own: the verdict on every claim of every paper.

    Without a scale those of our models that have rows, or of the testbed where none has.
    """
    index = CellIndex(rows)
    scales = [scale] if scale else scales_with_rows(index.models)
    return {model_of(each): {paper: verdicts(claims_of(paper), index, each) for paper in PAPERS} for each in scales}


def verdict_counts(outcomes: Mapping[str, VerdictsByPaper]) -> dict[str, dict[str, dict[str, int]]]:
    """By paper and model: how many claims have which verdict, in the order of `Outcome`."""
    counts = {
        paper: {model: Counter(each.outcome for each in of_model[paper]) for model, of_model in outcomes.items()}
        for paper in PAPERS
    }
    return {
        paper: {model: {outcome: count[outcome] for outcome in get_args(Outcome)} for model, count in of_paper.items()}
        for paper, of_paper in counts.items()
    }


def claims_page(outcomes: Mapping[str, VerdictsByPaper]) -> SortableTable:
    """One line per claim and model, those of one claim below each other."""
    lines = [
        _claim_line(each, model)
        for paper in PAPERS
        for of_claim in zip(*(of_model[paper] for of_model in outcomes.values()), strict=True)
        for model, each in zip(outcomes, of_claim, strict=True)
    ]
    titles = {"paper": "paper", "model": "model", "verdict": "verdict", "kind": "kind of claim"}
    return SortableTable(
        "claims", "claims", CLAIM_COLUMNS, lines, filters_of(lines, titles, {"verdict": get_args(Outcome)})
    )


def _claim_line(each: Verdict, model: str) -> TableLine:
    claim = each.claim
    entries = [
        TableCell(claim.id, small=claim.paper),
        TableCell(claim.text, small=claim.source),
        TableCell(
            each.outcome, str(list(get_args(Outcome)).index(each.outcome)), small=model, tone=TONES[each.outcome]
        ),
        number_cell(each.estimate, *_estimate_texts(each)),
        number_cell(each.n or None, f"{each.n:,}" if each.n else "–"),
        number_cell(each.needed_samples, f"{each.needed_samples:,}" if each.needed_samples else "–"),
        TableCell(each.reason),
    ]
    return TableLine(
        entries, {"paper": [claim.paper], "model": [model], "verdict": [each.outcome], "kind": [claim.kind]}
    )


def _estimate_texts(each: Verdict) -> tuple[str, str]:
    if math.isnan(each.estimate):
        return "–", ""
    low, high = each.interval
    return tuple(text.replace("-", "−") for text in (f"{each.estimate:+.3g}", f"[{low:+.3g}, {high:+.3g}]"))  # type: ignore[return-value]
