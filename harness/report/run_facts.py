"""What was run, with what, on what: the headline, the provenance, the examples and the invalid cells of a page."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import tasks
from harness.report.labels import NLL, metric_title, ordered_budgets, ordered_policies
from harness.report.rows import CONTEXT, PROVENANCE
from tasks.base import TaskError

OF_GIVEN_ANSWER = "answer_probability"  # tasks/ruler_answers.py
LONGEST_EXCERPT = 220  # characters of a prediction
SHOWN_SAMPLES = 8  # of a cell, in the page's list of cells


def headline(rows: pd.DataFrame, labels: Iterable[str]) -> list[tuple[str, str]]:
    """The run in a few facts, as (what, text)."""
    cells = rows.drop_duplicates("cell_id")
    sparse = cells[~cells["dense"]]
    named = [
        f"{task} ({', '.join(metric_title(str(metric)) for metric in part['metric'].unique())})"
        for task, part in rows.groupby("task", sort=False)
    ]
    samples = rows.groupby("task")["sample_id"].nunique().sum()
    created = sorted(day for day in cells["created"].str[:10].unique() if day)
    return [
        ("model", ", ".join(cells["model"].unique())),
        ("policies", ", ".join(ordered_policies(labels))),
        ("budgets", ", ".join(ordered_budgets(sparse["budget"])) or "none (dense only)"),
        ("prompt regimes", ", ".join(cells["prompt"].unique())),
        ("tasks", ", ".join(named)),
        ("samples", f"{samples:,} distinct, {len(rows):,} rows in {len(cells):,} cells"),
        (
            "date",
            created[0] if len(created) == 1 else f"{created[0]} to {created[-1]}" if created else "unknown",
        ),
        ("machine", " | ".join(_machines(cells)) or "unknown"),
    ]


def task_notes(rows: pd.DataFrame) -> list[str]:
    """What each task asks, one sentence each; nothing of a task from elsewhere."""
    notes = []
    for label, config in rows.drop_duplicates("task")[["task", "config"]].itertuples(index=False):
        with suppress(TaskError, ValueError, KeyError, TypeError):  # no task of ours, or no configuration
            doc = inspect.cleandoc(tasks.task_class(json.loads(config)["task"]["name"]).__doc__ or "")
            notes.append(f"{label}: {doc.splitlines()[0]}")
    return notes


def _machines(cells: pd.DataFrame) -> list[str]:
    pairs = cells[["hardware", "device"]].drop_duplicates()
    texts = (" · ".join(filter(None, (readable(str(h)), str(d)))) for h, d in pairs.itertuples(index=False))
    return [text for text in texts if text]


def readable(text: str) -> str:
    """A JSON object as ``key value · key value``; other text as it is."""
    try:
        return " · ".join(f"{key} {value}" for key, value in dict(json.loads(text)).items())
    except (ValueError, TypeError):
        return text


@dataclass(frozen=True)
class RunSource:
    """Cells that share git state, versions and machine."""

    facts: list[tuple[str, str]]
    cells: int


def sources(rows: pd.DataFrame) -> list[RunSource]:
    """Every combination of provenance; more than one means that the numbers were not made alike."""
    cells = rows.drop_duplicates("cell_id")
    fields = [name for name in PROVENANCE if name != "created"]
    found = []
    for key, part in cells.groupby(fields, sort=False):
        texts = [(name, readable(str(value)) or "not recorded") for name, value in zip(fields, key, strict=True)]
        found.append(RunSource(texts, len(part)))
    return found


@dataclass(frozen=True)
class Example:
    """One sample, and the prediction of every cell for it."""

    context: str
    task: str
    metric: str
    sample: str
    reference: str
    answers: list[tuple[str, str, str, str]]  # policy, budget, prediction, score


def examples(valid: pd.DataFrame, labels: Mapping[str, str]) -> Iterator[Example]:
    """Per context and task with generated text: the sample on which the cells disagree the most.

    Tasks that give the right answer and score its probability have none: every cell would seem to have said it.
    """
    for key, part in valid.groupby([*CONTEXT, "task"], sort=False):
        headline_metric = str(part["metric"].iloc[0])
        scored = part[part["metric"] == headline_metric]
        if not (scored["prediction"] != "").any() or headline_metric == OF_GIVEN_ANSWER:
            continue
        disagreement = scored.groupby("sample_id")["value"].var(ddof=0)
        sample = str(disagreement.idxmax())
        own = scored[scored["sample_id"] == sample]
        own = own.assign(label=own["cell_id"].map(labels))
        order = {name: i for i, name in enumerate(ordered_policies(own["label"]))}
        sizes = {name: i for i, name in enumerate(ordered_budgets(own["budget"]))}
        own = own.assign(first=own["label"].map(order), second=own["budget"].map(sizes))
        yield Example(
            context=" · ".join((str(key[0]), str(key[1]))),
            task=str(key[-1]),
            metric=metric_title(headline_metric),
            sample=sample,
            reference=_excerpt(str(own["reference"].iloc[0])),
            answers=[
                (
                    str(line["label"]),
                    str(line["budget"]),
                    _excerpt(str(line["prediction"])),
                    f"{line['value']:.2f}",
                )
                for line in own.sort_values(["first", "second"]).to_dict("records")
            ],
        )


def _excerpt(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST_EXCERPT else flat[: LONGEST_EXCERPT - 1] + "…"


def invalid_table(broken: pd.DataFrame, labels: Mapping[str, str]) -> list[dict[str, str]]:
    """Every broken invariant once per cell and sentence, with the samples it was seen on."""
    lines = []
    for (cell, sentence), part in broken.groupby(["cell_id", "invalid"], sort=False):
        first = part.iloc[0]
        samples = list(dict.fromkeys(part["sample_id"].astype(str)))
        more = f" and {len(samples) - 3:,} more" if len(samples) > 3 else ""
        lines.append(
            {
                "cell_id": str(cell),
                "label": labels[str(cell)],
                "budget": str(first["budget"]),
                "task": str(first["task"]),
                "sentence": str(sentence),
                "samples": ", ".join(samples[:3]) + more,
                "rows": f"{len(part):,}",
            }
        )
    return lines


def cell_table(rows: pd.DataFrame, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every cell with its identity, where it came from, and ``samples``, the first `SHOWN_SAMPLES` of it."""
    names = ("cell_id", *CONTEXT, "task", "budget", "created", "git", "config")
    return [
        {name: str(own.iloc[0][name]) for name in names} | {"label": labels[str(cell)], "samples": _first_samples(own)}
        for cell, own in rows.groupby("cell_id", sort=False)
    ]


def _first_samples(cell: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Id, scores and answer of each."""
    return [
        (
            str(sample),
            ", ".join(_score_text(str(row["metric"]), float(row["value"])) for row in own.to_dict("records")),
            _excerpt(str(own.iloc[0]["prediction"])),
        )
        for sample, own in itertools.islice(cell.groupby("sample_id", sort=False), SHOWN_SAMPLES)
    ]


def _score_text(metric: str, value: float) -> str:
    """``exact match 1``; the nats of a text as its perplexity, as everywhere on the page."""
    return f"{metric_title(metric)} {np.exp(value) if metric == NLL else value:.3g}"
