"""Quantities that claims are tested on and that are diagnostics: which prompts are diagnosed, and a value per prompt.

Within a prompt every value is a mean over layers and heads, unless the claim says "in every layer" or "in every head":
then it is that of the layer or head that is worst for the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from harness.analysis.attention_diagnostics import DENSE_RUN, WINDOW
from harness.papers.figures.figure_data import FigureData
from harness.papers.figures.figure_index import FigureDiagnostics
from harness.papers.published import presets

Columns = Mapping[str, pd.Series]  # by name, a value per prompt
LAST = 0.1  # share of the layers that are "the last layers", at least one: HashEvict names 3 of 32


@dataclass(frozen=True)
class DiagnosticQuantity:
    """A quantity of stored diagnostics. ``needs``: what is measured on the cells of ``item`` of ``paper``.

    ``columns`` takes the stored frame and the paper's names of methods.
    """

    paper: str
    item: str
    needs: FigureDiagnostics
    columns: Callable[[pd.DataFrame, Iterable[str]], Columns]

    def measured(self, data: FigureData, names: Iterable[str]) -> Columns:
        """The columns. Raises `harness.papers.figures.canvas.NotDrawnError` where nothing is stored."""
        return self.columns(data.internals(self.needs.names[0]), names)


def diagnostics_for_claims(paper: str, item: str) -> list[FigureDiagnostics]:
    """What claims need of the cells of an item, beside what its figure or table shows."""
    return [each.needs for each in QUANTITIES.values() if (each.paper, each.item) == (paper, item)]


def of_prompts(frame: pd.DataFrame, column: str) -> pd.Series:
    """The mean of a column within each prompt."""
    means: pd.Series = frame.groupby("sample_id")[column].mean()
    return means


def _means(frame: pd.DataFrame, names: Iterable[str], columns: Mapping[str, str]) -> Columns:
    """By our name, a column of the frame."""
    return {name: of_prompts(frame, column) for name, column in columns.items()}


def _greatest_head(frame: pd.DataFrame, names: Iterable[str], column: str, name: str) -> Columns:
    return {name: frame.groupby("sample_id")[column].max()}


def _by_policy(frame: pd.DataFrame, names: Iterable[str], paper: str) -> dict[str, pd.DataFrame]:
    """The frame of each method that was diagnosed, by the paper's name of it."""
    parts = {name: frame[frame["policy"].isin(presets(paper, name, ""))] for name in names}
    return {name: part for name, part in parts.items() if not part.empty}


def _volumes(frame: pd.DataFrame, names: Iterable[str]) -> Columns:
    """Without heads in which some policy's keys span no volume (log det -inf): they would hide all others."""
    heads = frame.set_index(["sample_id", "layer", "head"])
    flat = heads.index[~np.isfinite(heads["log_det"])]
    known = heads[~heads.index.isin(flat)].reset_index()
    return {name: of_prompts(part, "log_det") for name, part in _by_policy(known, names, "keydiff").items()}


def _kept_similarity(frame: pd.DataFrame, names: Iterable[str]) -> Columns:
    """Of the pairs of keys that a head keeps."""
    pairs = frame[(frame["first"] == "kept") & (frame["second"] == "kept")]
    return {name: of_prompts(part, "cosine") for name, part in _by_policy(pairs, names, "keydiff").items()}


def _norm_spread(frame: pd.DataFrame, names: Iterable[str]) -> Columns:
    """Standard deviation of lengths over their mean, in each head."""
    shares = {f"{what} norms": frame[f"{what}_norm_std"] / frame[f"{what}_norm"] for what in ("key", "query")}
    return {name: of_prompts(frame.assign(share=share), "share") for name, share in shares.items()}


def _lowest_layer(frame: pd.DataFrame, names: Iterable[str]) -> Columns:
    """CAOTE against FastCAOTE: means over decisions, heads and base scores, of the layer where it is lowest."""
    own = frame[frame["pair"] == "caote-fastcaote"]
    layers = own.groupby(["sample_id", "layer"])["spearman"].mean()
    return {"the lowest layer": layers.groupby("sample_id").min()}


def _output_errors(frame: pd.DataFrame, names: Iterable[str]) -> Columns:
    """Squared error over squared norm of the dense run's outputs, sums over passes and heads; mean over layers."""
    out = {}
    for name, part in _by_policy(frame[frame["against"] == DENSE_RUN], names, "caote").items():
        sums = part.groupby(["sample_id", "layer"])[["squared_error", "squared_norm"]].sum()
        out[name] = (sums["squared_error"] / sums["squared_norm"]).groupby("sample_id").mean()
    return out


def _attention_losses(frame: pd.DataFrame, names: Iterable[str]) -> Columns:
    """Of generated tokens alone: only a prompt that is fed token by token has queries from which something is hidden.

    Mean over heads and over the passes in which something is hidden.
    """
    hidden = frame[(frame["phase"] == "decode") & (frame["evicted"] > 0)]
    out = {}
    for name, part in _by_policy(hidden, names, "hashevict").items():
        sums = part.assign(lost=part["loss"] * part["queries"]).groupby("sample_id")[["lost", "queries"]].sum()
        out[name] = sums["lost"] / sums["queries"]
    return out


def _hash_correlations(frame: pd.DataFrame, names: Iterable[str]) -> Columns:
    """By number of bits, over pairs of a query and an earlier key."""
    pairs = frame[frame["over"] == "pairs"]
    return {f"{bits} bits": of_prompts(part, "pearson") for bits, part in pairs.groupby("bits")}


def _hash_correlations_by_depth(frame: pd.DataFrame, names: Iterable[str]) -> Columns:
    """Of all numbers of bits together: the last layers, and the others."""
    pairs = frame[frame["over"] == "pairs"]
    layers = int(pairs["layer"].max()) + 1
    last = pairs["layer"] >= layers - max(1, round(LAST * layers))
    return {"the last layers": of_prompts(pairs[last], "pearson"), "the others": of_prompts(pairs[~last], "pearson")}


def _ranking_losses(frame: pd.DataFrame, names: Iterable[str]) -> Columns:
    """Of each ranking, as a share of the prompt's tokens, which the sum grows with."""
    own = frame.assign(share=frame["difference"] / frame["tokens"])
    return {f"{ranking} ranking": of_prompts(part, "share") for ranking, part in own.groupby("ranking")}


def _later_half(frame: pd.DataFrame, names: Iterable[str]) -> Columns:
    """SnapKV: the share of chosen tokens in the later half of what it could choose, in the head where it is smallest.

    The window at the end of the prompt is left out: it is kept whatever the scores are.
    """
    own = frame[frame["policy"].isin(presets("kvec", "snapkv", "")) & (frame["phase"] == "prompt")]
    held = own[own["step"] == own.groupby("sample_id")["step"].transform("max")]
    chosen = held[held["position"] < held["fed"] - WINDOW]
    late = chosen.assign(late=chosen["position"] >= (chosen["fed"] - WINDOW) / 2)
    heads = late.groupby(["sample_id", "layer", "head"])["late"].mean()
    return {"the smallest head": heads.groupby("sample_id").min()}


ALIKE = FigureDiagnostics(("key_attention",), full=60, mini=20, of_dense=True)
HEADS = FigureDiagnostics(("key_query",), full=20, mini=20)

# Twelve prompts where a diagnostic is dear: an exact test of twelve that all agree has p = .0005.
QUANTITIES: Mapping[str, DiagnosticQuantity] = {
    "attention_of_alike_keys": DiagnosticQuantity(
        "keydiff", "Figure 2", ALIKE, partial(_means, columns={"correlation": "cosine_correlation"})
    ),
    "volume": DiagnosticQuantity("keydiff", "Figure 5", FigureDiagnostics(("log_det",), full=100, mini=20), _volumes),
    "kept_similarity": DiagnosticQuantity(
        "keydiff", "Figure 5", FigureDiagnostics(("key_cosines",), full=100, mini=20), _kept_similarity
    ),
    "cosine_of_means": DiagnosticQuantity(
        "keydiff", "Figure 12", HEADS, partial(_greatest_head, column="cosine_of_means", name="the greatest head")
    ),
    "cosine_to_mean": DiagnosticQuantity(
        "keydiff",
        "Figure 12",
        HEADS,
        partial(_means, columns={"keys to their mean": "cosine_of_keys", "queries to their mean": "cosine_of_queries"}),
    ),
    "norm_spread": DiagnosticQuantity("keydiff", "Figure 12", HEADS, _norm_spread),
    "cosine_to_mean_query": DiagnosticQuantity(
        "keydiff",
        "Figure 14",
        HEADS,
        partial(_means, columns={"distinct keys": "cosine_of_distinct", "other keys": "cosine_of_others"}),
    ),
    "score_ranks": DiagnosticQuantity(
        "caote", "Table 8", FigureDiagnostics(("score_ranks",), full=12, mini=12), _lowest_layer
    ),
    "output_error": DiagnosticQuantity(
        "caote", "Figure 3", FigureDiagnostics(("output_error",), full=20, mini=20), _output_errors
    ),
    "attention_loss": DiagnosticQuantity(
        "hashevict", "Table 3", FigureDiagnostics(("attention_loss",), full=20, mini=12), _attention_losses
    ),
    "hash_correlation": DiagnosticQuantity(
        "hashevict", "Figure 9", FigureDiagnostics(("lsh",), full=50, mini=20), _hash_correlations
    ),
    "hash_correlation_by_depth": DiagnosticQuantity(
        "hashevict", "Figure 9", FigureDiagnostics(("lsh",), full=50, mini=20), _hash_correlations_by_depth
    ),
    "ranking_loss": DiagnosticQuantity(
        "hashevict", "Figure 8", FigureDiagnostics(("ranking_loss",), full=20, mini=12), _ranking_losses
    ),
    "attention_of_long_keys": DiagnosticQuantity(
        "hashevict", "Figure 7", ALIKE, partial(_means, columns={"correlation": "norm_correlation"})
    ),
    "later_half": DiagnosticQuantity(
        "kvec", "Figure 2", FigureDiagnostics(("kept",), full=40, mini=40, of_dense=True), _later_half
    ),
}
