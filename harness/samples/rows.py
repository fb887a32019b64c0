"""From what the engine said of one sample to its rows in the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.engine.rows import Outcome
from harness.origin import fingerprint
from harness.planning.plan import Job
from harness.samples.continuations import likeliest, likelihoods
from harness.samples.stopping import before


def rows_of(job: Job, outcomes: Sequence[Outcome], tokenizer: Any, seconds: float) -> list[dict[str, Any]]:
    """The ``samples`` rows of one (cell, sample), one per metric (docs/results-schema.md)."""
    task, sample = job.cell.task, job.sample
    outcome = outcomes[job.rows.index(job.row)]
    prediction = before(tokenizer.decode(outcome.tokens, skip_special_tokens=True), sample.until)
    weight = 1.0
    scores: Mapping[str, float]
    if task.mode == "perplexity":
        weight = float(len(outcome.nll))
        scores = {"nll": sum(outcome.nll) / max(1.0, weight)}
    elif task.mode == "continuations":
        found = likelihoods(outcomes)
        prediction, scores = likeliest(sample, found), task.score_continuations(sample, found)
    else:
        scores = task.score(sample, prediction)
    common = {
        "sample_id": sample.id,
        "weight": weight,
        "prediction": prediction,
        "reference": sample.references[0] if sample.references else "",
        "document": sample.document,
        **{f"axis_{name}": value for name, value in sample.axes.items()},
        "task_fingerprint": fingerprint.of_data(job.cell.protocol),
        "prompt_tokens": len(job.row.tokens),
        "new_tokens": len(outcome.tokens),
        **asdict(outcome.ledger),
        "seconds": seconds,
    }
    return [{"metric": metric, "value": value, **common} for metric, value in scores.items()]
