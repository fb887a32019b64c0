"""Log-determinant of the Gram matrix of the kept keys: the volume they span.

Source: KeyDiff Figure 5, log det(K Kᵀ). With more keys than dimensions that determinant is 0, and at the paper's sizes
(2048 keys, 128 dimensions) it always is. Ours is the sum of log s² over the min(n, D) largest singular values s of K:
log det(K Kᵀ) where n <= D, log det(Kᵀ K) where n >= D. Compare only sets of equal size.
"""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from harness.diagnostics.evidence import Evidence
from harness.diagnostics.key_sets import heads_of


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per layer and KV head at the end of the prompt: ``layer``, ``head``, ``keys`` (kept), ``log_det``
    (natural logarithm; -inf where the keys do not span their dimensions)."""
    rows = []
    for each in heads_of(evidence.run):
        kept = each.keys[each.kept]
        rows.append((each.layer, each.head, len(kept), log_volume(kept)))
    return pd.DataFrame(rows, columns=["layer", "head", "keys", "log_det"])


def log_volume(keys: Tensor) -> float:
    """Of (n, D) keys, in fp64."""
    return float(2 * torch.linalg.svdvals(keys.double()).log().sum())


def summary(log_dets: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads."""
    return log_dets.groupby("layer", as_index=False)[["keys", "log_det"]].mean()
