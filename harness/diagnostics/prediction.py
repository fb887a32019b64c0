"""Prediction: what eviction does to the next-token distribution, on the same teacher-forced tokens.

Source: CAOTE appendix D.2 (eviction error moves the logits) names no measure; ours are the Kullback-Leibler divergence
KL(dense ‖ policy) and the difference of the negative log likelihood (its perplexity tables).
"""

from __future__ import annotations

import pandas as pd
import torch

from harness.diagnostics.evidence import Evidence

ROWS_PER_TILE = 256  # tokens whose two distributions exist at one time


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per predicted token: ``step`` and ``phase`` of the pass that predicted it, ``position`` of the token,
    ``nll`` and ``nll_dense`` (nats), ``nll_difference`` (policy - dense), ``kl`` (nats), ``agrees`` (whether both
    rank the same token first)."""
    tape, dense = evidence.run, evidence.dense
    truth = torch.tensor(tape.tokens[1:], device=tape.logits.device)
    parts = []
    for start in range(0, len(truth), ROWS_PER_TILE):
        tile = slice(start, min(start + ROWS_PER_TILE, len(truth)))
        given, wanted = tape.logits[tile].log_softmax(-1), dense.logits[tile].log_softmax(-1)
        target = truth[tile].unsqueeze(-1)
        columns = {
            "nll": -given.gather(-1, target).squeeze(-1),
            "nll_dense": -wanted.gather(-1, target).squeeze(-1),
            "kl": (wanted.exp() * (wanted - given)).sum(-1),
            "agrees": given.argmax(-1) == wanted.argmax(-1),
        }
        parts.append(pd.DataFrame({name: column.cpu().numpy() for name, column in columns.items()}))
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["nll", "nll_dense", "kl", "agrees"])
    steps = tape.asked_in[: len(truth)].cpu().numpy()
    whole = whole.assign(
        step=steps,
        phase=[tape.passes[step].phase for step in steps],
        position=range(1, len(truth) + 1),
        nll_difference=whole["nll"] - whole["nll_dense"],
    )
    return whole[["step", "phase", "position", "nll", "nll_dense", "nll_difference", "kl", "agrees"]]


def summary(prediction: pd.DataFrame) -> pd.DataFrame:
    """Means over tokens."""
    return prediction.groupby("phase", as_index=False)[["nll", "nll_dense", "nll_difference", "kl", "agrees"]].mean()
