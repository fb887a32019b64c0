"""Output error: how far eviction moves the attention output of a layer.

Source: CAOTE appendix E.4, Figure 3: normalised mean squared error between the dense attention output and the output
under eviction, per layer. The paper does not say on which hidden states the dense output is computed, nor how it
normalises. Both readings are given: against ``own states`` the queries, keys and values of the policy's run attend to
everything, which isolates what this layer's eviction does; against ``dense run`` errors of the layers below come on
top. Errors are divided by the squared norm of the dense output. Outputs are per query head, before the output
projection.
"""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from harness.diagnostics.attention import dense_rows
from harness.diagnostics.by_pass import summed_by_pass
from harness.diagnostics.evidence import Evidence
from harness.diagnostics.tape import Vectors

OWN, DENSE = "own states", "dense run"


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per pass, layer, query head and reference: ``step``, ``phase``, ``layer``, ``query_head``, ``queries``,
    ``against``, ``squared_error`` and ``squared_norm`` (sums over queries), ``error`` (their ratio; 0 = no change).

    To average over passes, divide sums by sums.
    """
    run = evidence.run.vectors
    references = {OWN: [_unevicted(each) for each in run], DENSE: [each.outputs for each in evidence.dense.vectors]}
    parts = []
    for against, outputs in references.items():
        wanted = torch.stack(outputs).float()  # (L, H·G, T, D)
        given = torch.stack([each.outputs for each in run]).float()
        numbers = {
            "squared_error": (given - wanted).square().sum(-1),
            "squared_norm": wanted.square().sum(-1),
        }
        parts.append(summed_by_pass(evidence.run, numbers).assign(against=against))
    whole = pd.concat(parts, ignore_index=True)
    return whole.assign(error=whole["squared_error"] / whole["squared_norm"])


def _unevicted(vectors: Vectors) -> Tensor:
    """(H·G, T, D) fp32: what the layer would have given with every key and value still there."""
    outputs = torch.zeros_like(vectors.outputs, dtype=torch.float32)
    for head in range(len(outputs)):
        values = vectors.values[head // vectors.group].float()
        for tile, weights in dense_rows(vectors, head):
            outputs[head, tile] = weights @ values
    return outputs


def summary(output_error: pd.DataFrame) -> pd.DataFrame:
    """Per layer over all passes and heads."""
    sums = output_error.groupby(["layer", "against"])[["squared_error", "squared_norm"]].sum()
    return (sums["squared_error"] / sums["squared_norm"]).unstack().reset_index().rename_axis(columns=None)
