"""CAOTE's promise (Eq. 13): the score is how far the attention output moves when the slot alone is removed."""

from __future__ import annotations

import pytest
import torch
from views import view

from policies import Policy
from policies.caote import CAOTE
from policies.tova import TOVA


@pytest.mark.parametrize("seed", range(5))
def test_over_tova_with_one_query_head_it_equals_brute_force(seed):
    """policies.md 3.16, T-33."""
    torch.manual_seed(seed)
    n, width = 40, 16
    logits, values = torch.randn(n) * 2, torch.randn(n, width)
    attention = logits.softmax(-1)
    output = attention @ values
    moved = []
    for gone in range(n):
        rest = torch.arange(n) != gone
        moved.append(float((logits[rest].softmax(-1) @ values[rest] - output).norm()))
    shown = view(sums=attention.tolist(), values=values.tolist())
    score = Policy("caote", TOVA(), CAOTE()).scores(shown).flatten()
    assert torch.allclose(score, torch.tensor(moved), atol=1e-5)


@pytest.mark.parametrize("several", [2, 7])
def test_the_joint_error_formula_equals_brute_force(several):
    """policies.md 3.16."""
    torch.manual_seed(several)
    attention, values = torch.randn(30).softmax(-1), torch.randn(30, 8)
    gone = torch.randperm(30)[:several]
    rest = torch.ones(30, dtype=torch.bool).index_fill(0, gone, False)
    moved = attention[rest] / attention[rest].sum() @ values[rest] - attention @ values
    formula = (attention[gone, None] * (attention @ values - values[gone])).sum(0).norm() / (1 - attention[gone].sum())
    assert float(moved.norm()) == pytest.approx(float(formula), abs=1e-6)
