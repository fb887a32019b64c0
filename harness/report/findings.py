"""The page's first cards: what each policy keeps of the dense model's score, task by task and budget by budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from harness.report.labels import NLL, context_title, metric_title
from harness.report.rows import CONTEXT
from harness.report.summary import Line

MOST = 12  # cards; a page with more tasks and budgets says how many more its tables hold
# Families of policies that rank slots by the attention they have received so far.
BY_ATTENTION = {
    "h2o", "tova", "snapkv", "caote", "fastcaote", "scissorhands", "buzz", "pyramidkv", "ada", "kvec", "headkv",
}  # fmt: skip
FEW = 10  # samples below which a card explains nothing
OF_FEW = "{n} samples cannot tell policies apart that are close: their intervals stand in the table."
NO_BETTER = (
    "{names} no better than random here: in true blocks they rank a text by its attention to itself, before the "
    "question is read that asks for the answer."
)


@dataclass(frozen=True)
class Bar:
    """One policy or baseline in the chart of a card."""

    label: str
    length: float  # 0 to 100
    text: str


@dataclass(frozen=True)
class Finding:
    """What one task says at one budget: a sentence, a bar for each policy, and why some are at the floor."""

    title: str
    sentence: str
    bars_show: str = ""
    bars: list[Bar] = field(default_factory=list)
    reason: str = ""


def findings(summary: pd.DataFrame) -> list[Finding]:
    """One for each task, metric and budget that has a dense line beside policies that lost tokens.

    ``summary`` as `harness.report.summary.summarise` gives it. Shares are over the samples that a policy and dense both
    have. Titles name what differs on the page: the model, the prompt regime, ….
    """
    return list(_of_panels(summary, [name for name in CONTEXT if summary[name].nunique() > 1]))


def _of_panels(summary: pd.DataFrame, shown: Sequence[str]) -> Iterator[Finding]:
    for _, panel in summary.groupby([*CONTEXT, "task", "metric"], sort=False):
        dense = panel[panel["dense"]]
        if dense.empty:
            continue
        whole = _records(dense)[0]
        for budget, part in panel[~panel["dense"]].groupby("budget", sort=False):
            lines = part[part["evicted"] > 0]
            if not lines[~lines["reference"]].empty:
                title = f"{_name(whole)} at {budget}"
                context = context_title(whole, shown)
                title += f" ({context})" if context else ""
                yield _of_perplexity(title, lines, whole) if whole["metric"] == NLL else _of_scores(title, lines, whole)


def _of_scores(title: str, lines: pd.DataFrame, dense: Line) -> Finding:
    whole = float(dense["value"])
    if whole <= 0:
        return Finding(title, f"The dense model itself scores {whole:.3f}, so this says nothing about policies.")
    policies, baselines = _in_order(lines, largest_first=True)
    best = policies.iloc[0].to_dict()
    shares = [(str(line["label"]), _share(line, whole)) for line in (*_records(policies), *_records(baselines))]
    return Finding(
        title,
        f"{best['label']} keeps {_percent(shares[0][1])} of dense ({best['value']:.3f} of {whole:.3f}, {best['n']} "
        "samples).",
        "share of the dense score that is kept",
        [Bar(label, min(100.0, max(0.0, 100 * share)), _percent(share)) for label, share in shares],
        _reason(policies, baselines, str(dense["prompt"])),
    )


def _of_perplexity(title: str, lines: pd.DataFrame, dense: Line) -> Finding:
    policies, baselines = _in_order(lines, largest_first=False)
    best = policies.iloc[0].to_dict()
    ratios = [(str(line["label"]), _ratio(line, dense)) for line in (*_records(policies), *_records(baselines))]
    most = max(max(ratio for _, ratio in ratios) - 1, 1e-9)
    return Finding(
        title,
        f"{best['label']} has {ratios[0][1]:.3f} times the perplexity of dense ({best['value']:.2f} for "
        f"{dense['value']:.2f}, {best['n']} samples).",
        "perplexity above that of dense: shorter is better",
        [Bar(label, min(100.0, max(0.0, 100 * (ratio - 1) / most)), f"×{ratio:.3f}") for label, ratio in ratios],
        _of_few(policies),
    )


def _in_order(lines: pd.DataFrame, largest_first: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Policies and baselines, the best of each first."""
    ordered = lines.sort_values("value", ascending=not largest_first, kind="stable")
    return ordered[~ordered["reference"]], ordered[ordered["reference"]]


def _records(lines: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in line.items()} for line in lines.to_dict("records")]


def _share(line: Line, whole: float) -> float:
    """Of dense on the same samples; 0 where dense scores nothing on them."""
    same = whole if math.isnan(line["difference"]) else line["value"] - line["difference"]
    return float(line["value"] / same) if same > 0 else 0.0


def _ratio(line: Line, dense: Line) -> float:
    return float(line["value"] / dense["value"] if math.isnan(line["difference"]) else line["difference"])


def _reason(policies: pd.DataFrame, baselines: pd.DataFrame, regime: str) -> str:
    """That there are few samples, or why policies that rank by attention can be at the floor (some and not all)."""
    if few := _of_few(policies):
        return few
    random = baselines[baselines["policy"] == "random"]
    if regime != "blocked" or random.empty:
        return ""
    floor = float(random["high"].max())
    low = policies[policies["value"] <= floor]
    names = [str(name) for name in low["label"] if str(name).split("/")[0].split("_")[0] in BY_ATTENTION]
    if not names or len(low) == len(policies):
        return ""
    return NO_BETTER.format(names=f"{', '.join(names)} {'are' if len(names) > 1 else 'is'}")


def _of_few(policies: pd.DataFrame) -> str:
    fewest = int(policies["n"].min())
    return OF_FEW.format(n=fewest) if fewest < FEW else ""


def _name(line: Line) -> str:
    task, metric = str(line["task"]), metric_title(str(line["metric"]))
    return task if line["metric"] == NLL or metric == task else f"{task} ({metric})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}\u00a0%"
