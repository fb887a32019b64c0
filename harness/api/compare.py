"""``compare``: paired differences between policies, with intervals and corrected p-values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.analysis.paired_tests import paired_p
from harness.analysis.statistics import holm, paired_difference
from harness.config.type_check import check_value
from harness.errors import UserError
from harness.report.labels import NLL, ordered_budgets, policy_labels
from harness.report.rows import CONTEXT, checked_rows, valid_rows

PANEL = (*CONTEXT, "task", "metric")
COLUMNS = (*PANEL, "budget", "policy", "against", "difference", "low", "high", "n", "n_clusters", "p", "p_holm")


def compare(
    rows: pd.DataFrame, policy: str | Sequence[str] | None = None, against: str = "dense", metric: str | None = None
) -> pd.DataFrame:
    """Differences of ``policy`` (a name, several, or None for all others) to ``against``, paired by sample.

    Policies are compared within one model, task, metric, prompt regime, block size, dtype, seed and budget; a dense
    ``against`` stands beside every budget. A name that stands for several settings gives a line for each, under the
    labels of `harness.report`. Rows of cells that broke a promise are left out. One line per comparison:

    ``difference``, ``low``, ``high``: mean score of ``policy`` minus that of ``against`` with its 95 % interval
    over documents (`harness.analysis.statistics.paired_difference`); for the metric ``nll`` a ratio of
    perplexities, where 1 is no difference. ``n`` samples that both have, in ``n_clusters`` independent groups. ``p``:
    two-sided, by sign flips over the groups, or Student's t where few of them differ
    (`harness.analysis.paired_tests.paired_p`); ``p_holm``: corrected for all lines of this table (Holm
    1979).

    Raises `UserError` for names that are not among the rows, and where nothing can be paired.
    """
    check_value(str | Sequence[str] | None, policy, "policy")
    check_value(str, against, "against")
    check_value(str | None, metric, "metric")
    accepted = checked_rows(rows)
    labels = policy_labels(accepted)
    valid = valid_rows(accepted)
    valid = valid.assign(label=valid["cell_id"].map(labels))
    if metric is not None:
        _refuse_unknown("metric", [metric], valid["metric"])
        valid = valid[valid["metric"] == metric]
    chosen = [policy] if isinstance(policy, str) else list(policy or [])
    names = {*valid["policy"], *valid["label"]}
    _refuse_unknown("policy", [*chosen, against], names)
    lines = list(_lines(valid, chosen, against))
    if not lines:
        raise UserError(
            f"No cell of {', '.join(chosen) or 'another policy'} shares samples with one of {against} at the same "
            "model, task, prompt regime and budget: run both on the same task."
        )
    table = pd.DataFrame(lines, columns=[name for name in COLUMNS if name != "p_holm"])
    table["p_holm"] = holm(table["p"])
    return table


def _lines(valid: pd.DataFrame, chosen: Sequence[str], against: str) -> Iterator[dict[str, Any]]:
    for panel, part in valid.groupby(list(PANEL), sort=False):
        others = part[_named(part, [against])]
        mine = part[_named(part, chosen)] if chosen else part.drop(others.index)
        for budget in ordered_budgets(mine["budget"]):
            rival = others[others["dense"] | (others["budget"] == budget)]
            _refuse_several(against, rival)
            for label, own in mine[mine["budget"] == budget].groupby("label", sort=False):
                line = _compared(own.set_index("sample_id"), rival.set_index("sample_id"))
                if line:
                    yield {**dict(zip(PANEL, panel, strict=True)), "budget": budget, "policy": label} | line


def _compared(own: pd.DataFrame, rival: pd.DataFrame) -> dict[str, Any]:
    """One line's numbers; empty where no sample is common, or both are the same cell."""
    common = own.index.intersection(rival.index)
    if common.empty or own["cell_id"].iloc[0] == rival["cell_id"].iloc[0]:
        return {}
    a, b = own.loc[common], rival.loc[common]
    values, reference, weights = (part.to_numpy(float) for part in (a["value"], b["value"], a["weight"]))
    clusters = a["cluster"].to_numpy()
    found = paired_difference(values, reference, clusters, weights)
    shares = pd.Series((values - reference) * weights / weights.sum()).groupby(clusters).sum()
    above, below = paired_p(shares.to_numpy())
    numbers = np.array([found.mean, found.low, found.high])
    is_nll = a["metric"].iloc[0] == NLL
    mean, low, high = map(float, np.exp(numbers) if is_nll else numbers)
    return {
        "against": str(rival["label"].iloc[0]),
        "difference": mean,
        "low": low,
        "high": high,
        "n": found.n,
        "n_clusters": found.n_clusters,
        "p": min(1.0, 2 * float(min(above[0], below[0]))) if found.n_clusters > 1 else math.nan,
    }


def _named(part: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    return part["policy"].isin(names) | part["label"].isin(names)


def _refuse_several(name: str, cells: pd.DataFrame) -> None:
    """Raise `UserError` where a name stands for several cells at once."""
    if cells["cell_id"].nunique() > 1:
        labels = " or ".join(f"'{label}'" for label in sorted(set(cells["label"])))
        raise UserError(f"'{name}' stands for several cells with different settings: say which, {labels}.")


def _refuse_unknown(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    from policies import nearest  # what reads results loads torch only for this sentence

    for name in names:
        if name not in set(known):
            raise UserError(f"There is no {what} '{name}' among these rows. {nearest(name, set(known))}")
