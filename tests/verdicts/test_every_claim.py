"""Every claim of the ledger that can be asked of rows is decided once its cells are there, and not before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from made_up_rows import rows_of, verdict

from harness.papers.cell_index import CellIndex
from harness.papers.claim_ledger import Claim, Comparison, claims
from harness.papers.claim_verdicts import verdicts
from harness.papers.published import PAPERS, our_model, presets, row_metrics, task_labels

N = 9
EVERY = [claim for paper in PAPERS for claim in claims(paper)]
# Claims about other quantities than scores: tests/verdicts/test_claim_measurements.py.
ASKED = [claim for claim in EVERY if claim.comparison and not claim.comparison.quantity]


def cells_of(claim: Claim) -> pd.DataFrame:
    """Rows of every cell that the claim speaks of, in the paper's own setting, with scores drawn at random."""
    rng = np.random.default_rng(len(claim.text))
    frames = [part for asked in claim.comparisons for part in cells_of_comparison(claim, asked, rng)]
    return pd.concat(frames, ignore_index=True).drop_duplicates(["cell_id", "sample_id", "metric"])


def cells_of_comparison(claim: Claim, asked: Comparison, rng: np.random.Generator) -> Iterator[pd.DataFrame]:
    for each in asked.methods():
        policy = presets(claim.paper, each.method, each.variant)[0]
        prompt = each.prompt or asked.prompt or "one_shot"
        blocks = (each.block_size or asked.block_size) if prompt == "blocked" else 0
        budgets = ["full"] if policy == "dense" else [each.budget] if each.budget else asked.budgets
        for task in dict.fromkeys(label for name in asked.task for label in task_labels(claim.paper, name)):
            for metric in asked.metric:
                yield rows_of(
                    {(policy, budget): rng.uniform(0.2, 0.8, N) for budget in budgets},
                    task=task,
                    metric={"first": "qa_f1"}.get(row_metrics(metric)[0], row_metrics(metric)[-1]),
                    model=our_model(claim.models[0]) if claim.models else "testbed",
                    prompt=prompt,
                    block_size=blocks,
                    axis_gold_at=[0, 4, 9] * (N // 3),
                )


@pytest.mark.parametrize("claim", ASKED, ids=lambda claim: claim.id)
def test_it_is_decided_from_the_cells_that_it_names(claim):
    rows = cells_of(claim)
    found = verdict(claim, rows, "full")
    assert found.outcome != "not comparable", found.reason
    assert found.n > 0
    assert np.isfinite([found.estimate, found.p]).all()
    # Models without rows are named; nothing else is missing.
    assert "Not measured: " not in found.reason
    assert all(our_model(name) in found.reason for name in claim.models)


def test_nothing_is_decided_without_rows():
    for paper in PAPERS:
        for found in verdicts(claims(paper), CellIndex(pd.DataFrame()), "full"):
            asked = found.claim.comparison
            assert found.outcome == "not comparable", found.claim.id
            assert found.reason
            assert (found.n, found.needed_samples) == (0, None)
            if asked and not asked.quantity:
                missing = presets(paper, asked.left[0].method, asked.left[0].variant)[0]
                assert f"Not measured: there are no rows of {missing}" in found.reason
