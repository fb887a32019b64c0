"""LSH: does the Hamming distance of hashed queries and keys tell how much attention a key gets?

Source: HashEvict appendix E, Table 11 and Figure 9: Pearson's correlation, per layer and head, of attention and the
inverted average Hamming distance, for several numbers of bits, without eviction. The text leaves open over what the
correlation runs; both readings are given. ``pairs``: every query and every earlier key. ``keys``: for every key the
means over all later queries (appendix D: "the average Hamming distance between the key code of token i and the query
codes of all tokens j > i"). Inverted means bits - distance. The heads of one group share their keys' codes.

Matrices of T × T numbers exist for one head at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import torch
from torch import Tensor

from harness.diagnostics.attention import dense_rows, later
from harness.diagnostics.correlation import pearson
from harness.diagnostics.evidence import Evidence
from harness.diagnostics.hamming import average_distances

BITS = (8, 16, 24, 32)


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per layer, query head, number of bits and reading: ``layer``, ``query_head``, ``bits``, ``over`` (pairs
    or keys), ``count`` (of them), ``pearson`` (-1 to 1)."""
    rows = []
    for layer, vectors in enumerate(evidence.dense.vectors):
        for head in range(len(vectors.queries)):
            attention = torch.cat([weights for _, weights in dense_rows(vectors, head)])
            for bits in BITS:
                similar = bits - average_distances(vectors, layer, head, bits)
                for over, first, second in _readings(attention, similar):
                    rows.append((layer, head, bits, over, len(first), pearson(first, second)))
    return pd.DataFrame(rows, columns=["layer", "query_head", "bits", "over", "count", "pearson"])


def _readings(attention: Tensor, similar: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Two (T, T) matrices as two lists of numbers, over pairs and over keys."""
    length = len(attention)
    earlier = later(slice(0, length), length, attention.device).T  # key before query
    yield "pairs", attention[earlier], similar[earlier]
    yield "keys", mean_over_later(attention, earlier), mean_over_later(similar, earlier)


def mean_over_later(numbers: Tensor, earlier: Tensor) -> Tensor:
    """(T, T) query × key to (T - 1,): each key's mean over the queries after it; the last key has none."""
    return (numbers * earlier).sum(0)[:-1] / earlier.sum(0)[:-1]


def summary(lsh: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over layers and heads, as in Table 11."""
    return lsh.groupby(["over", "bits"])["pearson"].agg(["mean", "std"]).reset_index()
