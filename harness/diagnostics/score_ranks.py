"""Score ranks: do CAOTE, FastCAOTE and their base score order the slots of a cache alike?

Source: CAOTE Table 8, Spearman's correlation of CAOTE and FastCAOTE scores, one number per layer. The paper states
neither the base score nor how heads and steps are averaged; here every decision of every head is a row, over all slots
of the cache at that moment, protected ones included.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pandas as pd
from torch import Tensor

from harness.diagnostics.correlation import spearman
from harness.engine.cohort import Cohort
from harness.engine.settle import view_after
from policies.caote import CAOTE, FastCAOTE

if TYPE_CHECKING:
    from harness.diagnostics.evidence import Evidence
    from harness.engine.layer_pass import LayerPass
    from policies import CacheView, Scorer

COLUMNS = ["step", "phase", "layer", "head", "slots", "pair", "spearman"]


class RankWatcher:
    """Scores the cache of the only row each time it holds more than its budget, as the policy is about to."""

    def __init__(self) -> None:
        self.rows: list[tuple[object, ...]] = []

    def attended(self, work: LayerPass) -> None:
        """Score the slots as `settle` is about to: after the state has been brought up to date."""
        cohort, group = work.cohort, work.cohort.groups[0]
        scorer = group.policy.scorer
        if scorer is None or not any(cohort.over(group)):
            return
        if group.policy.prompt_stage is not None and cohort.phase == "prompt":
            scorer = group.policy.prompt_stage.scorer
        view = view_after(work, group)
        scores = scores_of(scorer, view)
        for head, filled in enumerate(view.filled[0]):
            numbers = {name: each[0, head][filled] for name, each in scores.items()}
            place = (cohort.passes - 1, cohort.phase, work.index, head, int(filled.sum()))
            for first, second in combinations(numbers, 2):
                self.rows.append((*place, f"{first}-{second}", spearman(numbers[first], numbers[second])))

    def settled(self, work: LayerPass) -> None:
        """What was kept does not matter here."""

    def predicted(self, cohort: Cohort, logits: Tensor) -> None:
        """Nor do logits."""


def scores_of(scorer: Scorer, view: CacheView) -> dict[str, Tensor]:
    """The base score and both corrections of it, (R, H, N) each."""
    base = scorer.score(view)
    return {"base": base, "caote": CAOTE().correct(base, view), "fastcaote": FastCAOTE().correct(base, view)}


def frame(evidence: Evidence) -> pd.DataFrame:
    """One row per decision, KV head and pair of scores: ``step``, ``phase``, ``layer``, ``head``, ``slots`` (ranked),
    ``pair`` (base-caote, base-fastcaote, caote-fastcaote), ``spearman`` (-1 to 1; NaN where a score does not vary)."""
    return pd.DataFrame(evidence.ranks.rows, columns=COLUMNS)


def summary(score_ranks: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads and decisions."""
    table = score_ranks.pivot_table(index="layer", columns="pair", values="spearman", aggfunc="mean")
    return table.reset_index().rename_axis(columns=None)
