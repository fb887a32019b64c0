"""The value of a printed number that is not a score: a mean over stored diagnostics, with its 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.analysis.statistics import mean_interval
from harness.papers.figures.canvas import NotDrawnError as NothingStoredError
from harness.papers.figures.figure_data import FigureData, FigureDataOfItems
from harness.papers.published import presets
from harness.papers.table_cells import NoValueError
from harness.papers.table_layouts import PrintedNumber
from harness.papers.table_values import MeasuredValue

Frames = Callable[[FigureData, Mapping[str, str], Sequence[str]], pd.Series]


@dataclass(frozen=True)
class DiagnosticLookup:
    """Values of stored diagnostics of one paper."""

    paper: str
    data: FigureDataOfItems

    def measured(self, item: str, number: PrintedNumber) -> MeasuredValue | None:
        """Our value of a printed number; None where its metric is not that of a diagnostic.

        Its interval resamples prompts. Raises `NoValueError` where nothing is stored.
        """
        metric = number.at["metric"]
        if metric not in _DIAGNOSTICS:
            return None
        diagnostic, values, of_item = _DIAGNOSTICS[metric]
        try:
            data = self.data.of(self.paper, of_item or item)
            own = values(data, number.at, presets(self.paper, number.at["method"], number.note))
        except NothingStoredError as nothing:
            raise NoValueError(f"No score of samples. {nothing}") from None
        if own.empty:
            raise NoValueError(f"The stored diagnostics '{diagnostic}' have no value for this place.")
        prompts = own.index.nunique()
        if metric == "pearson_std":
            return MeasuredValue(float(own.std()), math.nan, math.nan, prompts)
        found = mean_interval(own.to_numpy(float), own.index.to_numpy(str))
        return MeasuredValue(found.mean, found.low, found.high, prompts, by_prompt=own)


def _correlations(data: FigureData, at: Mapping[str, str], policies: Sequence[str]) -> pd.Series:
    """By hash size, over pairs of a query and an earlier key; one value per prompt, layer and query head."""
    frame = data.internals("lsh")
    own = frame[(frame["bits"] == int(at["hash_bits"])) & (frame["over"] == "pairs")]
    return own.set_index("sample_id")["pearson"].dropna()


def _ranks(data: FigureData, at: Mapping[str, str], policies: Sequence[str]) -> pd.Series:
    """CAOTE against FastCAOTE in one layer, which the paper counts from 1; one value per decision and head."""
    frame = data.internals("score_ranks")
    own = frame[(frame["layer"] == int(at["layer"]) - 1) & (frame["pair"] == "caote-fastcaote")]
    return own.set_index("sample_id")["spearman"].dropna()


def _attention(data: FigureData, at: Mapping[str, str], policies: Sequence[str]) -> pd.Series:
    """Of one policy: the mean over heads and generated tokens after an eviction; one value per prompt.

    Queries of the prompt are left out: only a prompt that is fed token by token has any to which something is hidden.
    """
    frame = data.internals("attention_loss")
    asked = frame["policy"].isin(policies) & (frame["phase"] == "decode")
    hidden = frame[asked & (frame["evicted"] > 0)]
    sums = hidden.assign(loss=hidden["loss"] * hidden["queries"]).groupby("sample_id")[["loss", "queries"]].sum()
    return sums["loss"] / sums["queries"]


_DIAGNOSTICS: Mapping[str, tuple[str, Frames, str]] = {
    "pearson": ("lsh", _correlations, "Figure 9"),
    "pearson_std": ("lsh", _correlations, "Figure 9"),
    "spearman": ("score_ranks", _ranks, ""),
    "attention_loss": ("attention_loss", _attention, ""),
}
