"""Keys and queries: where a head's queries point, seen from its keys.

Source: KeyDiff Figures 11 (cosine of queries to the mean query), 12 (cosine of mean key and mean query), 13 (norms) and
14 (cosine of the most distinct keys and the mean query; the paper does not say how many, here a tenth). Means are of
the raw vectors of the prompt, per query head.
"""

from __future__ import annotations

import math

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from harness.diagnostics.evidence import Evidence
from harness.diagnostics.key_sets import heads_of

DISTINCT = 0.1  # share of the prompt's keys, those with the lowest cosine to the anchor


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per layer and query head: ``layer``, ``query_head``, ``head`` (its KV head); cosines of the mean query
    (-1 to 1) with the mean key, ``cosine_of_means``, with the most distinct keys, ``cosine_of_distinct``, and with all
    queries, ``cosine_of_queries`` (both means); ``query_norm`` and ``query_norm_std`` (lengths)."""
    rows = []
    for each in heads_of(evidence.run):
        count = max(1, math.floor(DISTINCT * len(each.keys)))
        distinct = (each.directions @ each.anchor).argsort(stable=True)[:count]
        for member, queries in enumerate(each.queries):
            towards = queries.mean(0)
            norms = torch.linalg.vector_norm(queries, dim=-1)
            cosines = (
                _cosine(each.keys.mean(0), towards),
                _cosine(each.keys[distinct], towards),
                _cosine(queries, towards),
            )
            query_head = each.head * len(each.queries) + member
            rows.append(
                (each.layer, query_head, each.head, *cosines, float(norms.mean()), float(norms.std(correction=0)))
            )
    columns = ["layer", "query_head", "head", "cosine_of_means", "cosine_of_distinct", "cosine_of_queries"]
    return pd.DataFrame(rows, columns=[*columns, "query_norm", "query_norm_std"])


def _cosine(vectors: Tensor, towards: Tensor) -> float:
    """Mean cosine of (…, D) vectors to one (D,)."""
    return float(F.cosine_similarity(vectors, towards, dim=-1).mean())


def summary(key_query: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads."""
    columns = ["cosine_of_means", "cosine_of_distinct", "cosine_of_queries", "query_norm"]
    return key_query.groupby("layer", as_index=False)[columns].mean()
