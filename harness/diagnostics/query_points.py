"""Query points: every query of the prompt by its length and its direction.

Source: KeyDiff Figures 11 (angles of queries to the mean query) and 13 (norms), which are histograms over queries;
`key_query` has their means. Mean queries are of the raw vectors, per query head.
"""

from __future__ import annotations

import pandas as pd
import torch
import torch.nn.functional as F

from harness.diagnostics.evidence import Evidence
from harness.diagnostics.key_sets import heads_of


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per layer, query head and prompt token: ``layer``, ``query_head``, ``position``, ``norm`` (length of the
    query), ``cosine_to_mean_query`` (-1 to 1)."""
    parts = []
    for each in heads_of(evidence.run):
        for member, queries in enumerate(each.queries):
            columns = {
                "layer": each.layer,
                "query_head": each.head * len(each.queries) + member,
                "position": torch.arange(len(queries)).numpy(),
                "norm": torch.linalg.vector_norm(queries, dim=-1).cpu().numpy(),
                "cosine_to_mean_query": F.cosine_similarity(queries, queries.mean(0), dim=-1).cpu().numpy(),
            }
            parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def summary(query_points: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads and tokens."""
    return query_points.groupby("layer", as_index=False)[["norm", "cosine_to_mean_query"]].mean()
