"""Rows for comparisons between policies: valid, one score per sample, sizes relative to the dense cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from harness.analysis.statistics import Interval, mean_interval, paired_difference
from harness.papers.measured_tables import NotMeasuredError
from harness.report.labels import NLL, metric_title
from harness.report.looks import is_baseline
from harness.report.rows import checked_rows, valid_rows
from harness.report.run_facts import readable

SCOPE = ("model", "dtype", "seed", "task")  # scores and sizes are compared only within equal values of these
COMPARED = (  # columns of the rows that comparisons read; without the texts, rows are taken faster
    *SCOPE, "cell_id", "policy", "budget", "prompt", "block_size", "dense", "metric", "sample_id", "cluster", "value",
    "weight", "prompt_tokens", "new_tokens", "slots_requested", "slots_kept_max", "slots_kept_mean", "slots_peak",
    "kv_bytes", "state_bytes", "config", "git", "hardware", "created",
)  # fmt: skip


def comparable_rows(rows: pd.DataFrame, experiment: str, likelihoods: bool = False) -> pd.DataFrame:
    """One row per setting and sample, of cells without a broken invariant and tasks that have a score.

    ``setting``: policy with its settings, budget and regime; two cells of one task that differ in their samples alone
    are one setting, and a sample that both hold counts once. ``bytes``: K, V and policy state at their largest;
    ``of_dense``: the same over the dense cache of the same sample, NaN where no dense cell has read it; ``slot_bytes``:
    of one slot over all layers and heads, from the same cell. Raises `NotMeasuredError` where nothing is left;
    ``experiment`` would measure it. ``likelihoods``: with tasks whose score is a likelihood (lower is better).
    """
    if rows.empty:
        raise not_measured(experiment)
    valid = valid_rows(checked_rows(rows))
    headline = valid.groupby("task", sort=False)["metric"].transform("first")
    scored = (valid["metric"] == headline) & ((valid["metric"] != NLL) | likelihoods)
    own = valid.loc[scored, list(COMPARED)]
    if own.empty:
        raise not_measured(experiment)
    own["bytes"] = own["kv_bytes"].astype(float) + own["state_bytes"].astype(float)
    full = own[own["dense"]].groupby([*SCOPE, "sample_id"])[["kv_bytes", "slots_kept_max"]].max()
    sizes = pd.DataFrame({"dense_bytes": full["kv_bytes"], "slot_bytes": full["kv_bytes"] / full["slots_kept_max"]})
    own = own.join(sizes, on=[*SCOPE, "sample_id"])
    own["of_dense"] = own["bytes"] / own["dense_bytes"]
    settings = own.drop_duplicates("cell_id").set_index("cell_id")["config"].map(_policy_settings)
    regime = own["prompt"] + "/" + own["block_size"].astype(str)
    setting = own["policy"] + " " + own["budget"] + " " + regime + " " + own["cell_id"].map(settings)
    own["setting"] = setting.astype(object)
    own = own.drop_duplicates([*SCOPE, "setting", "sample_id"])
    own["reference"] = own["policy"].map(is_baseline)
    return own.drop(columns="config").copy()  # new columns too beside those of their type: parts are taken faster


def _policy_settings(config: str) -> str:
    """The policy's part of a cell's identity as text."""
    try:
        return json.dumps(json.loads(config).get("policy", ""), sort_keys=True)
    except (ValueError, AttributeError):
        return ""


def not_measured(experiment: str) -> NotMeasuredError:
    """The error for a comparison that the rows do not hold."""
    return NotMeasuredError(
        f"Not measured: the rows hold no two cells to compare here; python -m harness +exp=ours/{experiment} "
        "scale=mini measures them."
    )


def parts_by(rows: pd.DataFrame, columns: Sequence[str]) -> Callable[[Sequence[object]], pd.DataFrame]:
    """The rows that have some values in these columns, looked up by the values; none where no row has them.

    Values beyond those of the columns are ignored.
    """
    parts = dict(iter(rows.groupby(list(columns), sort=False)))
    return lambda key: parts.get(tuple(key[: len(columns)]), rows.iloc[:0])


def on_common_samples(cells: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """The same cells without the samples that one of them lacks, in one order."""
    common = set.intersection(*(set(cell["sample_id"]) for cell in cells))
    return [cell[cell["sample_id"].isin(common)].sort_values("sample_id") for cell in cells]


def mean_difference(left: pd.DataFrame, right: pd.DataFrame) -> Interval:
    """The mean of left - right, paired by sample: two cells of `on_common_samples`."""
    values, others = left["value"].to_numpy(float), right["value"].to_numpy(float)
    return paired_difference(values, others, left["cluster"].to_numpy(str), left["weight"].to_numpy(float))


def mean_score(cell: pd.DataFrame) -> Interval:
    """The mean score of one cell's rows."""
    return mean_interval(cell["value"].to_numpy(float), cell["cluster"].to_numpy(str), cell["weight"].to_numpy(float))


def format_interval(interval: Interval, signed: bool = False) -> str:
    """``0.45 [0.26, 0.66]``, with a sign for differences; a dash where there is no interval."""
    form = "{:+.2f}" if signed else "{:.2f}"
    texts = [form.format(x).replace("-", "−") for x in (interval.mean, interval.low, interval.high)]
    return texts[0] if np.isnan(interval.low) else f"{texts[0]} [{texts[1]}, {texts[2]}]"


def regime_text(cell: pd.DataFrame) -> str:
    """``blocked, 32`` or ``one_shot``."""
    first = cell.iloc[0]
    return f"{first['prompt']}, {first['block_size']}" if first["block_size"] else str(first["prompt"])


def row_conditions(used: pd.DataFrame) -> tuple[str, ...]:
    """Model, tasks, numbers of samples and machine of exactly the rows that a table uses, as sentences."""
    cells = used.drop_duplicates("cell_id")
    tasks = [
        f"{task} ({_unit_title(str(part['metric'].iloc[0]))}, {part['sample_id'].nunique()} samples, prompts of "
        f"{_range_text(part['prompt_tokens'])} tokens, at most {part['new_tokens'].max()} new)"
        for task, part in used.groupby("task", sort=False)
    ]
    dtypes, machines = ", ".join(cells["dtype"].unique()), " | ".join(map(readable, cells["hardware"].unique()))
    days = sorted(set(cells["created"].str[:10]))
    return (
        f"Model {', '.join(cells['model'].unique())}, {dtypes}, greedy.",
        f"{'; '.join(tasks)}.",
        "Brackets are 95 % intervals; differences are paired over samples.",
        f"Computed {' to '.join(dict.fromkeys((days[0], days[-1])))} on {machines or 'an unknown machine'}, commit "
        f"{', '.join(filter(None, cells['git'].unique())) or 'unknown'}.",
    )


def _unit_title(metric: str) -> str:
    """Of scores as they stand in the rows: perplexities are shown as their logarithm in these tables."""
    return "nats per token" if metric == NLL else metric_title(metric)


def _range_text(values: pd.Series) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
