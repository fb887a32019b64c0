"""Key cosines: how much alike the keys are that a head keeps, that it evicts, and across.

Source: KeyDiff sections 3.1 and 3.2 (the objective of Eq. 9 is the sum of pairwise cosines of the kept keys); the
paper shows the matrix of one example (Figure 2) and no means.
"""

from __future__ import annotations

import pandas as pd
from torch import Tensor

from harness.diagnostics.evidence import Evidence
from harness.diagnostics.key_sets import heads_of


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per layer, KV head and pair of sets: ``layer``, ``head``, ``first`` and ``second`` (kept, evicted,
    all), ``pairs`` (of different keys), ``cosine`` (mean over pairs, -1 to 1; NaN where there are none)."""
    rows = []
    for each in heads_of(evidence.run):
        directions = each.directions.double()
        kept, evicted = directions[each.kept], directions[~each.kept]
        for name, members in (("kept", kept), ("evicted", evicted), ("all", directions)):
            rows.append((each.layer, each.head, name, name, *_within(members)))
        pairs = len(kept) * len(evicted)
        cosine = float(kept.sum(0) @ evicted.sum(0)) / pairs if pairs else float("nan")
        rows.append((each.layer, each.head, "kept", "evicted", pairs, cosine))
    return pd.DataFrame(rows, columns=["layer", "head", "first", "second", "pairs", "cosine"])


def _within(directions: Tensor) -> tuple[int, float]:
    """Pairs of different keys, and their mean cosine: the sum over all pairs is the squared length of the sum."""
    pairs = len(directions) * (len(directions) - 1)
    own = directions.square().sum()  # 1 for each key, 0 for a key of zeros
    return pairs // 2, float((directions.sum(0).square().sum() - own) / pairs) if pairs else float("nan")


def summary(key_cosines: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads."""
    named = key_cosines.assign(sets=key_cosines["first"] + "-" + key_cosines["second"])
    table = named.pivot_table(index="layer", columns="sets", values="cosine", aggfunc="mean")
    return table.reset_index().rename_axis(columns=None)
