"""Ranking loss: what attention it costs to drop keys in the order of a ranking instead of the order of attention.

Source: HashEvict appendices D and E.3, Eq. 7 and 8, Figure 8 ("ALR", after Devoto et al. 2024): with ā_p the mean
attention of key p over all n queries, L^m the sum of ā over the first m keys dropped, Y = Σ_m (L^m - L^m_ref), where
the reference drops the smallest ā first. Rankings: ``l2`` drops the largest key norms first, ``lsh`` the largest
average distances to later queries (16 bits). Deviation: E.3 says "ascending order of the average Hamming distance",
which would drop the most similar keys first; we drop the most distant, as the method does. The last token, which no
later query asks for, is dropped last.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from harness.diagnostics.attention import dense_rows, later
from harness.diagnostics.evidence import Evidence
from harness.diagnostics.hamming import average_distances
from harness.diagnostics.lsh import mean_over_later
from harness.diagnostics.tape import Vectors

BITS = 16


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per layer, query head and ranking, of the dense run: ``layer``, ``query_head``, ``ranking`` (l2, lsh),
    ``tokens`` (n), ``difference`` (Y, 0 to n; 0 = drops in the order of attention)."""
    rows = []
    for layer, vectors in enumerate(evidence.dense.vectors):
        for head in range(len(vectors.queries)):
            attention = torch.cat([weights for _, weights in dense_rows(vectors, head)]).double().mean(0)
            for ranking, importance in _rankings(vectors, layer, head):
                rows.append((layer, head, ranking, len(attention), cumulative_difference(attention, importance)))
    return pd.DataFrame(rows, columns=["layer", "query_head", "ranking", "tokens", "difference"])


def _rankings(vectors: Vectors, layer: int, head: int) -> Iterator[tuple[str, Tensor]]:
    """(T,) numbers, larger = dropped later."""
    keys = vectors.keys[head // vectors.group]
    yield "l2", -torch.linalg.vector_norm(keys.float(), dim=-1)
    apart = average_distances(vectors, layer, head, BITS)
    earlier = later(slice(0, len(apart)), len(apart), apart.device).T
    yield "lsh", F.pad(-mean_over_later(apart, earlier), (0, 1), value=torch.inf)


def cumulative_difference(attention: Tensor, importance: Tensor) -> float:
    """Y of Eq. 7, from (n,) mean attention; keys are dropped by ascending (n,) importance, older first among equals."""
    dropped = attention[importance.argsort(stable=True)].cumsum(0)
    reference = attention.sort().values.cumsum(0)
    return float((dropped - reference).sum())


def summary(ranking_loss: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads."""
    table = ranking_loss.pivot_table(index="layer", columns="ranking", values="difference", aggfunc="mean")
    return table.reset_index().rename_axis(columns=None)
