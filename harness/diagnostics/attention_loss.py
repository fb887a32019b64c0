"""Attention loss: the share of dense attention that falls on tokens which the policy had evicted by then.

Source: HashEvict section 4.8 and Table 3, "the sum of the attention probabilities for the evicted tokens". Attention is
that of the dense run on the same tokens (appendix D: "how much of the uncompressed attention matrix is preserved");
evicted is what each head no longer showed to that query in the policy's run. The paper does not say over which queries
it averages; here every pass is a row, and queries from whom nothing is hidden yet lose 0.
"""

from __future__ import annotations

import pandas as pd
import torch

from harness.diagnostics.attention import dense_rows
from harness.diagnostics.by_pass import summed_by_pass
from harness.diagnostics.evidence import Evidence


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per pass, layer and query head: ``step``, ``phase``, ``layer``, ``query_head``, ``queries``,
    ``evicted`` (tokens hidden from a query, mean), ``loss`` (share of attention, 0 to 1, mean over the queries)."""
    tape, dense = evidence.run, evidence.dense.vectors
    heads, length = dense[0].queries.shape[:2]
    loss = torch.zeros(len(dense), heads, length, device=dense[0].queries.device)
    evicted = torch.zeros_like(loss)
    for layer, vectors in enumerate(dense):
        for head in range(heads):
            for tile, weights in dense_rows(vectors, head):
                gone = tape.evicted_for(layer, head // vectors.group, tile)
                loss[layer, head, tile] = (weights * gone).sum(-1)
                evicted[layer, head, tile] = gone.sum(-1).float()
    sums = summed_by_pass(tape, {"evicted": evicted, "loss": loss})
    return sums.assign(evicted=sums["evicted"] / sums["queries"], loss=sums["loss"] / sums["queries"])


def summary(attention_loss: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads and over all queries of passes in which something was hidden."""
    hidden = attention_loss[attention_loss["evicted"] > 0]
    total = (hidden["loss"] * hidden["queries"]).groupby(hidden["layer"]).sum()
    return (total / hidden.groupby("layer")["queries"].sum()).rename("loss").reset_index()
