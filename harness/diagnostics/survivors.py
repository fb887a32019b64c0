"""Survivors: when each head lets go of each token. The whole history of a cache, in one number per head and token.

Source: K-VEC Figures 3 and 4 and KeyDiff Figure 4 show single moments of it. A token never returns once it has gone, so
the pass after which it is missing says all.
"""

from __future__ import annotations

import pandas as pd
import torch

from harness.diagnostics.evidence import Evidence
from harness.diagnostics.tape import NEVER

STAYS = -1  # in `left_at`: held after the last pass


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per layer, head and token fed (prompt, then continuation): ``layer``, ``head`` (KV head), ``position``,
    ``token`` (id), ``phase`` (prompt or decode, of the pass that fed it), ``fed_in`` (its step), ``left_at`` (the first
    step after which the head no longer holds it, `STAYS` where it is held to the end)."""
    tape = evidence.run
    layers, heads, fed = tape.left_at.shape
    left_at = tape.left_at.cpu()
    phases = pd.Categorical([p.phase for p in tape.passes], categories=["prompt", "decode"])
    fed_in = tape.asked_in.cpu().long()
    places = torch.cartesian_prod(torch.arange(layers), torch.arange(heads), torch.arange(fed)).numpy()
    columns = {
        **{name: places[:, at].astype("int32") for at, name in enumerate(("layer", "head", "position"))},
        "token": torch.tensor(tape.tokens, dtype=torch.int32).repeat(layers * heads).numpy(),
        "phase": phases[fed_in.repeat(layers * heads).numpy()],
        "fed_in": fed_in.int().repeat(layers * heads).numpy(),
        "left_at": left_at.masked_fill(left_at == NEVER, STAYS).flatten().numpy(),
    }
    return pd.DataFrame(columns)


def summary(survivors: pd.DataFrame) -> pd.DataFrame:
    """After the last step: how many tokens are held by how many of the heads of all layers."""
    held = (survivors["left_at"] == STAYS).groupby(survivors["position"]).sum()
    counts = held.value_counts().sort_index(ascending=False)
    return pd.DataFrame({"heads": counts.index, "tokens": counts.to_numpy()})
