"""Which tokens each head holds, after every prompt block and every decode step.

Source: what K-VEC Figures 3 and 4 and KeyDiff Figure 4 are drawn from.
"""

from __future__ import annotations

import pandas as pd

from harness.diagnostics.evidence import Evidence


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per held token: ``step``, ``phase``, ``fed`` (tokens fed so far), ``layer``, ``head`` (KV head),
    ``position`` (place in the text, from 0)."""
    tape, parts = evidence.run, []
    for moment in tape.passes:
        places = tape.held_after(moment).nonzero().cpu().numpy()
        part = pd.DataFrame(places, columns=["layer", "head", "position"]).astype("int32")
        parts.append(part.assign(step=moment.step, phase=moment.phase, fed=moment.stop))
    whole = pd.concat(parts, ignore_index=True)
    return whole[["step", "phase", "fed", "layer", "head", "position"]]


def summary(kept: pd.DataFrame) -> pd.DataFrame:
    """Tokens held by each head after the last step, and where they lie on average."""
    last = kept[kept["step"] == kept["step"].max()]
    heads: pd.DataFrame = last.groupby(["layer", "head"], as_index=False).agg(
        held=("position", "size"), mean_position=("position", "mean")
    )
    return heads
