"""Key points: every key of the prompt as a point, and whether it was kept.

Source: KeyDiff Figures 4 and 7-9 (PCA of kept and evicted keys), 11 (angle to the mean key) and 13 (norms). The PCA is
fitted on all keys of the head, centred, kept and evicted together. The anchor is the mean of the normalised keys
(Eq. 8); Figure 11 may mean the raw mean.
"""

from __future__ import annotations

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from harness.diagnostics.evidence import Evidence
from harness.diagnostics.key_sets import heads_of


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per layer, KV head and prompt token: ``layer``, ``head``, ``position``, ``kept`` (after the prompt),
    ``norm`` (length of the key), ``cosine_to_anchor`` and ``cosine_to_mean_query`` (-1 to 1), ``pc1`` and ``pc2``
    (units of the keys)."""
    parts = []
    for each in heads_of(evidence.run):
        points = principal_components(each.keys)
        columns = {
            "position": torch.arange(len(each.keys)),
            "kept": each.kept,
            "norm": torch.linalg.vector_norm(each.keys, dim=-1),
            "cosine_to_anchor": each.directions @ F.normalize(each.anchor, dim=0),
            "cosine_to_mean_query": each.directions @ F.normalize(each.mean_query, dim=0),
            "pc1": points[:, 0],
            "pc2": points[:, 1],
        }
        part = pd.DataFrame({name: column.cpu().numpy() for name, column in columns.items()})
        part.insert(0, "head", each.head)
        part.insert(0, "layer", each.layer)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def principal_components(keys: Tensor) -> Tensor:
    """(n, 2): coordinates of (n, D) keys along the two directions in which they vary most; the largest entry of each
    direction is positive, which makes signs reproducible."""
    centred = (keys - keys.mean(0)).double()
    directions = torch.linalg.svd(centred, full_matrices=False).Vh[:2]
    directions = F.pad(directions, (0, 0, 0, 2 - len(directions)))  # a single token varies in no direction
    largest = directions.abs().argmax(-1, keepdim=True)
    return centred @ (directions * directions.gather(-1, largest).sign()).T


def summary(key_points: pd.DataFrame) -> pd.DataFrame:
    """Means of kept and evicted keys."""
    columns = ["norm", "cosine_to_anchor", "cosine_to_mean_query"]
    return key_points.groupby(["layer", "kept"], as_index=False)[columns].mean()
