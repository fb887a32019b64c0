"""Window attention: what the last prompt tokens attend to, before any eviction.

Source: K-VEC Figure 2, "windowed attention scores in SnapKV". The window is SnapKV's of 32 queries. Scores are the mean
over its queries, per query head, without SnapKV's pooling over neighbours, which smooths them and moves nothing.
"""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from harness.diagnostics.attention import dense_rows
from harness.diagnostics.evidence import Evidence
from harness.diagnostics.tape import Vectors

WINDOW = 32  # queries


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per layer, query head and prompt token, of the dense run: ``layer``, ``query_head``, ``position``,
    ``attention`` (0 to 1; sums to 1 over the tokens of a head)."""
    tape, parts = evidence.dense, []
    last = slice(max(0, tape.prompt_tokens - WINDOW), tape.prompt_tokens)
    for layer, vectors in enumerate(tape.vectors):
        for head in range(len(vectors.queries)):
            received = _mean_attention(vectors, head, last)[: tape.prompt_tokens]
            places = torch.arange(len(received)).numpy()
            columns = {"layer": layer, "query_head": head, "position": places, "attention": received.cpu().numpy()}
            parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def _mean_attention(vectors: Vectors, head: int, asking: slice) -> Tensor:
    """(T,) fp32: mean probabilities of the queries in ``asking`` over all tokens."""
    wanted = range(asking.start, asking.stop)
    total = vectors.keys.new_zeros(vectors.keys.shape[1], dtype=torch.float32)
    for tile, weights in dense_rows(vectors, head):
        inside = [place - tile.start for place in wanted if tile.start <= place < tile.stop]
        total += weights[inside].sum(0)
    return total / len(wanted)


def summary(window_attention: pd.DataFrame) -> pd.DataFrame:
    """Share of the window's attention that goes to the last tenth of the prompt: mean over heads."""
    late = window_attention["position"] >= 0.9 * (window_attention["position"].max() + 1)
    shares = window_attention[late].groupby(["layer", "query_head"])["attention"].sum()
    table: pd.DataFrame = shares.groupby("layer").mean().rename("on_last_tenth").reset_index()
    return table
