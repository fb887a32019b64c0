"""The summary: one line per cell and metric, with its interval and its paired difference to the dense cell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from harness.analysis.statistics import Interval, mean_interval, paired_difference, perplexity_interval
from harness.report.labels import NLL, context_title, ordered_budgets, ordered_policies, policy_labels
from harness.report.looks import is_baseline
from harness.report.rows import CONTEXT, checked_rows, valid_rows
from tasks.longbench_subsets import ENGLISH, by_category, overall

Line: TypeAlias = Mapping[Any, Any]  # one line of a table, as ``to_dict('records')`` gives it
PANEL = (*CONTEXT, "task", "metric")
NOTHING_EVICTED = "nothing evicted"
COLUMNS = (
    "cell_id",
    *CONTEXT,
    "task",
    "metric",
    "policy",
    "label",
    "budget",
    "dense",
    "reference",
    "value",
    "low",
    "high",
    "n",
    "n_clusters",
    "difference",
    "difference_low",
    "difference_high",
    "n_paired",
    "slots_requested",
    "slots_kept",
    "slots_kept_max",
    "slots_peak",
    "evicted",
    "rank",
)


def summary_table(rows: pd.DataFrame) -> pd.DataFrame:
    """One line per cell and metric, without the cells that broke an invariant.

    ``value``, ``low``, ``high``: mean score with its 95 % interval; for the metric ``nll`` the perplexity.
    ``difference``, ``difference_low``, ``difference_high``: to the dense cell of the same model, task, prompt
    regime, block size, dtype and seed, over the ``n_paired`` samples that both have: a difference of means, for
    ``nll`` a ratio of perplexities (1 is no difference); NaN without such a cell.
    ``slots_requested``, ``slots_kept``: mean over samples, in slots per layer and KV head; ``slots_kept_max``,
    ``slots_peak``: largest over samples. ``evicted``: most tokens per layer and KV head that a sample lost; where it
    is 0 the budget held everything, and the scores are those of dense. ``label``: the policy, with its settings where
    the name is ambiguous.
    ``rank``: ``best`` or ``second`` among the policies of the same budget and column of a table; dense and the
    baselines random and the oracle (``reference``) have none.
    """
    accepted = checked_rows(rows)
    return summarise(valid_rows(accepted), policy_labels(accepted))


def summarise(valid: pd.DataFrame, labels: Mapping[str, str]) -> pd.DataFrame:
    """The summary of rows that are checked and valid, under the given labels of cells."""
    groups = {
        (str(cell), str(metric)): part.set_index("sample_id")
        for (cell, metric), part in valid.groupby(["cell_id", "metric"], sort=False)
    }
    lines = [_line(part, labels) for part in groups.values()]
    table = pd.DataFrame(lines, columns=list(COLUMNS))
    for _, panel in table.groupby(list(PANEL), sort=False):
        dense = {
            str(line["cell_id"]): groups[str(line["cell_id"]), str(line["metric"])]
            for _, line in panel[panel["dense"]].iterrows()
        }
        for i, line in panel[~panel["dense"]].iterrows():
            own = groups[str(line["cell_id"]), str(line["metric"])]
            for column, number in _difference(own, dense, str(line["metric"])).items():
                table.loc[i, column] = number  # type: ignore[index]
        for _, rivals in panel[~panel["dense"] & ~panel["reference"]].groupby("budget", sort=False):
            for i, rank in _ranks(rivals).items():
                table.loc[i, "rank"] = rank
    return _ordered(table)


def _line(part: pd.DataFrame, labels: Mapping[str, str]) -> dict[str, Any]:
    first = part.iloc[0]
    interval = _interval(part, str(first["metric"]))
    line: dict[str, Any] = {name: first[name] for name in COLUMNS if name in part.columns}
    return line | {
        "label": labels[str(first["cell_id"])],
        "dense": bool(first["dense"]),
        "reference": is_baseline(str(first["policy"])),
        "value": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "n": interval.n,
        "n_clusters": interval.n_clusters,
        "difference": math.nan,
        "difference_low": math.nan,
        "difference_high": math.nan,
        "n_paired": 0,
        "slots_requested": float(part["slots_requested"].mean()),
        "slots_kept": float(part["slots_kept_mean"].mean()),
        "slots_kept_max": int(part["slots_kept_max"].max()),
        "slots_peak": int(part["slots_peak"].max()),
        "evicted": int(part["tokens_evicted"].max()),
        "rank": "",
    }


def _interval(part: pd.DataFrame, metric: str) -> Interval:
    values, weights, clusters = (part[name].to_numpy() for name in ("value", "weight", "cluster"))
    if metric == NLL:
        return perplexity_interval(values, weights, clusters)
    return mean_interval(values, clusters, weights)


def _difference(own: pd.DataFrame, dense: Mapping[str, pd.DataFrame], metric: str) -> dict[str, float]:
    """The difference to the dense cell that shares the most samples; empty if none shares any."""
    shared = {cell: own.index.intersection(part.index) for cell, part in dense.items()}
    best = max(shared, key=lambda cell: len(shared[cell]), default=None)
    if best is None or len(shared[best]) == 0:
        return {}
    a, b = own.loc[shared[best]], dense[best].loc[shared[best]]
    scores, reference, weights = a["value"].to_numpy(), b["value"].to_numpy(), a["weight"].to_numpy()
    found = paired_difference(scores, reference, a["cluster"].to_numpy(), weights)
    numbers = np.array([found.mean, found.low, found.high])
    mean, low, high = (float(x) for x in (np.exp(numbers) if metric == NLL else numbers))
    return {"difference": mean, "difference_low": low, "difference_high": high, "n_paired": found.n}


MOST_SECOND = 2  # policies that share a second best value


def _ranks(rivals: pd.DataFrame) -> dict[Any, str]:
    """The rows of the best and second best values; equal values share a rank, a lone policy has none.

    Where more than two share the second best value (all others at the floor, say) it marks nothing.
    """
    if len(rivals) < 2:
        return {}
    lower_is_better = bool((rivals["metric"] == NLL).all())
    values = rivals["value"].round(12)
    distinct = sorted(set(values), reverse=not lower_is_better)
    names = dict(zip(distinct, ("best", "second"), strict=False))
    shared = values.value_counts()
    names = {value: name for value, name in names.items() if name == "best" or shared[value] <= MOST_SECOND}
    return {i: names[value] for i, value in values.items() if value in names}


def _ordered(table: pd.DataFrame) -> pd.DataFrame:
    """Contexts by name, tasks and metrics as they came, budgets by size, policies by family, dense first."""
    places = {
        "task": {name: i for i, name in enumerate(table["task"].unique())},
        "metric": {name: i for i, name in enumerate(table["metric"].unique())},
        "budget": {name: i for i, name in enumerate(ordered_budgets(table["budget"]))},
        "label": {name: i for i, name in enumerate(ordered_policies(table["label"]))},
    }
    keys = table[list(CONTEXT)].assign(dense=~table["dense"].astype(bool))
    keys = keys.assign(**{name: table[name].map(i) for name, i in places.items()})
    order = keys.sort_values([*CONTEXT, "task", "metric", "dense", "budget", "label"], kind="stable").index
    return table.loc[order].reset_index(drop=True)


def value_text(line: Line) -> str:
    """The value as text: perplexities with four significant digits, scores with three decimals."""
    return _number(line["value"], line["metric"])


def interval_text(line: Line) -> str:
    """The 95 % interval as ``[low, high]``, or a dash where the samples cannot give one."""
    if math.isnan(line["low"]):
        return "[–]"
    return f"[{_number(line['low'], line['metric'])}, {_number(line['high'], line['metric'])}]"


def difference_text(line: Line) -> str:
    """The difference to dense with its interval, signed, or ``×ratio`` for perplexity; empty without dense.

    A cell that lost no token says so instead: it is dense by another name.
    """
    if evicted_nothing(line):
        return NOTHING_EVICTED
    if math.isnan(line["difference"]):
        return ""
    numbers = [line[name] for name in ("difference", "difference_low", "difference_high")]
    if line["metric"] == NLL:
        mean, low, high = _ratios(numbers)
        return f"×{mean} [{low}, {high}]" if not math.isnan(numbers[1]) else f"×{mean}"
    mean, low, high = (f"{x:+.3f}".replace("-", "−") for x in numbers)
    return f"{mean} [{low}, {high}]" if not math.isnan(numbers[1]) else mean


def evicted_nothing(line: Line) -> bool:
    """Whether this is a cell with a budget under which nothing was evicted."""
    return not line["dense"] and line["evicted"] == 0


def nothing_evicted_messages(summary: pd.DataFrame) -> list[str]:
    """One sentence for each task on which a method kept everything; empty where each of them lost something.

    Baselines are not named: they stand beside a method with the same budget.
    """
    lines = [line for line in summary.to_dict("records") if evicted_nothing(line) and not line["reference"]]
    found: dict[str, dict[str, None]] = {}
    for line in lines:
        found.setdefault(str(line["task"]), {})[f"{line['label']} at {line['budget']}"] = None
    return [
        f"Nothing was evicted on {task} by {', '.join(names)}: the budget held the whole prompt and all new tokens, so "
        "these are the scores of dense. Set a smaller budget or longer prompts."
        for task, names in found.items()
    ]


def verdict(line: Line) -> str:
    """``worse`` or ``better`` than dense if the whole interval of the difference says so, else empty."""
    none = 1.0 if line["metric"] == NLL else 0.0
    above, below = line["difference_low"] > none, line["difference_high"] < none
    if line["metric"] == NLL:
        above, below = below, above
    return "better" if above else "worse" if below else ""


def _number(value: float, metric: str) -> str:
    return _perplexity(value) if metric == NLL else f"{value:.3f}".replace("-", "−")


def _perplexity(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"


def _ratios(numbers: Sequence[float]) -> list[str]:
    """Two digits behind the point, four where two would make a ratio look like 1 that is not."""
    digits = 4 if any(number != 1 and abs(number - 1) < 0.005 for number in numbers) else 2
    return [f"{number:.{digits}f}" if number < 100 else _perplexity(number) for number in numbers]


# Averages over the subsets of LongBench as papers print them: plain means of the 16 English ones, and by category.


SUITE = "longbench/"


@dataclass(frozen=True)
class Averages:
    """One table: a policy under one budget a line. Numbers are percent, as in the papers."""

    context: str
    categories: list[str]
    lines: list[tuple[str, str, list[str], str]]  # policy, budget, categories, average with its interval
    note: str  # what else the name of the suite was followed by: synthetic rows


def averages(summary: pd.DataFrame, shown: tuple[str, ...]) -> Iterator[Averages]:
    """A table for every context in which some cell has all 16 English subsets; cells that lack one have no line."""
    ours = summary[summary["task"].str.startswith(SUITE)]
    if ours.empty:
        return
    parts = ours["task"].str.removeprefix(SUITE).str.partition(" ")
    ours = ours.assign(subset=parts[0], note=parts[2])
    for (*key, note), panel in ours.groupby([*CONTEXT, "note"], sort=False):
        lines = list(_lines(panel))
        if lines:
            title = context_title(dict(zip(CONTEXT, key, strict=True)), shown)
            categories = list(by_category(dict.fromkeys(ENGLISH, 0.0)))
            yield Averages(title, categories, lines, str(note).strip("()"))


def _lines(panel: pd.DataFrame) -> Iterator[tuple[str, str, list[str], str]]:
    cells = {(str(label), str(budget)): part for (label, budget), part in panel.groupby(["label", "budget"])}
    budgets = ordered_budgets(budget for _, budget in cells)
    for label in ordered_policies(label for label, _ in cells):
        for budget in budgets:
            part = cells.get((label, budget))
            if part is None or not set(ENGLISH) <= set(part["subset"]):
                continue
            scores = _percent(part, "value")
            low, high = _average_interval(part)
            means = [f"{mean:.2f}" for mean in by_category(scores).values()]
            yield label, budget, means, f"{overall(scores):.2f} [{low:.2f}, {high:.2f}]"


def _average_interval(part: pd.DataFrame) -> tuple[float, float]:
    """95 % for the mean of the 16 means: subsets are independent, so half-widths add in squares."""
    scores, low, high = (_percent(part, name) for name in ("value", "low", "high"))
    mean = overall(scores)
    below = math.sqrt(sum((scores[name] - low[name]) ** 2 for name in ENGLISH)) / len(ENGLISH)
    above = math.sqrt(sum((high[name] - scores[name]) ** 2 for name in ENGLISH)) / len(ENGLISH)
    return mean - below, mean + above


def _percent(part: pd.DataFrame, column: str) -> Mapping[str, float]:
    return {str(name): 100 * float(value) for name, value in zip(part["subset"], part[column], strict=True)}
