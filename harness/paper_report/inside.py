"""Printed numbers from inside the model: stored diagnostics instead of scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from harness.figures.drawing import GapError as NothingStoredError
from harness.figures.material import Material, gathered
from harness.paper_report.lookup import GapError
from harness.paper_report.quantities import Measured
from harness.published.layouts import Printed
from harness.published.names import presets
from harness.statistics.intervals import mean_interval
from harness.store import Store
from harness.verdicts import Scale

Frames = Callable[[Material, Mapping[str, str], Sequence[str]], pd.Series]


@dataclass(frozen=True)
class Inside:
    """The stored diagnostics of one paper at one scale; what belongs to an item is gathered once."""

    paper: str
    rows: pd.DataFrame
    store: Store
    scale: Scale
    _known: dict[str, Material] = field(default_factory=dict)

    def measured(self, item: str, place: Printed) -> Measured | None:
        """The number of a place; None where its metric is not one of a diagnostic.

        Its interval resamples prompts. Raises `GapError` where nothing is stored.
        """
        metric = place.at["metric"]
        if metric not in _DIAGNOSTICS:
            return None
        diagnostic, values, of_item = _DIAGNOSTICS[metric]
        try:
            material = self._material(of_item or item)
            if material.wanted.scale != self.scale:
                raise GapError(f"The stored diagnostics are of scale={material.wanted.scale}.")
            own = values(material, place.at, presets(self.paper, place.at["method"], place.note))
        except NothingStoredError as nothing:
            raise GapError(f"No score of samples. {nothing}") from None
        if own.empty:
            raise GapError(f"The stored diagnostics '{diagnostic}' have no value for this place.")
        prompts = own.index.nunique()
        if metric == "pearson_std":
            return Measured(float(own.std()), math.nan, math.nan, prompts)
        found = mean_interval(own.to_numpy(float), own.index.to_numpy(str))
        return Measured(found.mean, found.low, found.high, prompts)

    def _material(self, item: str) -> Material:
        if item not in self._known:
            self._known[item] = gathered(self.paper, item, self.rows, self.store)
        return self._known[item]


def _correlations(material: Material, at: Mapping[str, str], policies: Sequence[str]) -> pd.Series:
    """By hash size, over pairs of a query and an earlier key; one value per prompt, layer and query head."""
    frame = material.internals("lsh")
    own = frame[(frame["bits"] == int(at["hash_bits"])) & (frame["over"] == "pairs")]
    return own.set_index("sample_id")["pearson"].dropna()


def _ranks(material: Material, at: Mapping[str, str], policies: Sequence[str]) -> pd.Series:
    """CAOTE against FastCAOTE in one layer, which the paper counts from 1; one value per decision and head."""
    frame = material.internals("score_ranks")
    own = frame[(frame["layer"] == int(at["layer"]) - 1) & (frame["pair"] == "caote-fastcaote")]
    return own.set_index("sample_id")["spearman"].dropna()


def _attention(material: Material, at: Mapping[str, str], policies: Sequence[str]) -> pd.Series:
    """Of one policy, the mean over heads and queries of passes in which something is hidden; one value per prompt."""
    frame = material.internals("attention_loss")
    hidden = frame[frame["policy"].isin(policies) & (frame["evicted"] > 0)]
    sums = hidden.assign(loss=hidden["loss"] * hidden["queries"]).groupby("sample_id")[["loss", "queries"]].sum()
    return sums["loss"] / sums["queries"]


_DIAGNOSTICS: Mapping[str, tuple[str, Frames, str]] = {
    "pearson": ("lsh", _correlations, "Figure 9"),
    "pearson_std": ("lsh", _correlations, "Figure 9"),
    "spearman": ("score_ranks", _ranks, ""),
    "attention_loss": ("attention_loss", _attention, ""),
}
