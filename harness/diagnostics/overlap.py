"""Overlap: how many tokens two heads of one layer hold in common.

Source: K-VEC section 4.1 speaks of overlapping heads without a measure; ours is the Jaccard index. Equal sets give 1,
disjoint ones 0.
"""

from __future__ import annotations

import pandas as pd
import torch

from harness.diagnostics.coverage import after_prompt
from harness.diagnostics.evidence import Evidence


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per step, layer and pair of KV heads: ``step``, ``phase``, ``layer``, ``head`` < ``other``, ``shared``
    (tokens), ``jaccard`` (shared / held by either, 0 to 1)."""
    tape, parts = evidence.run, []
    first, second = torch.triu_indices(tape.left_at.shape[1], tape.left_at.shape[1], offset=1)
    for moment in tape.passes:
        held = tape.held_after(moment).float().cpu()
        common = held @ held.transpose(1, 2)  # (L, H, H)
        count = held.sum(-1)
        shared = common[:, first, second]
        either = (count[:, first] + count[:, second] - shared).clamp(min=1)
        layers = torch.arange(len(held)).unsqueeze(-1).expand_as(shared)
        columns = {
            "step": moment.step,
            "phase": moment.phase,
            "layer": layers.flatten().numpy(),
            "head": first.expand_as(shared).flatten().numpy(),
            "other": second.expand_as(shared).flatten().numpy(),
            "shared": shared.int().flatten().numpy(),
            "jaccard": (shared / either).flatten().numpy(),
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def summary(overlap: pd.DataFrame) -> pd.DataFrame:
    """Mean over pairs after the last prompt block."""
    last = after_prompt(overlap)
    layers: pd.DataFrame = last.groupby("layer", as_index=False)[["shared", "jaccard"]].mean()
    return layers
