"""Diagnostics of rankings: the order in which scores, hashes and norms would evict keys, compared with attention."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import combinations

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from harness.analysis.attention_diagnostics import dense_rows, later
from harness.analysis.recording import DiagnosticInput, Vectors
from harness.analysis.statistics import Floats
from harness.engine.batch.batch import Batch
from harness.engine.batch.evict import view_after
from harness.engine.batch.layer_pass import LayerPass
from policies import CacheView, Scorer
from policies.caote import CAOTE, FastCAOTE
from policies.hashevict import projection_of


def pearson(first: Tensor, second: Tensor) -> float:
    """Correlation of two (n,) tensors, in fp64; NaN if one of them does not vary."""
    return _correlation(_numbers(first), _numbers(second))


def spearman(first: Tensor, second: Tensor) -> float:
    """Correlation of the ranks of two (n,) tensors, equal numbers sharing their mean rank; NaN if one does not vary."""
    rankdata = import_module("scipy.stats").rankdata  # a second to import: not for runs without this diagnostic
    return _correlation(rankdata(_numbers(first)), rankdata(_numbers(second)))


def _correlation(first: Floats, second: Floats) -> float:
    """As `scipy.stats.pearsonr`, without the p-value that takes it ten times as long."""
    if len(first) < 2:
        return float("nan")
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.corrcoef(first, second)[0, 1])


def _numbers(tensor: Tensor) -> Floats:
    return tensor.double().cpu().numpy()


# Hamming distances between the codes of queries and keys, which are signs of seeded random projections.
#
# Source: HashEvict appendix E, steps 1-3. Codes do not depend on a vector's length, so normalising first, as the paper
# does, changes nothing. "Averaged over multiple projections": 8 here, the paper gives no number.


PROJECTIONS = 8  # seeds 0 … 7


def average_distances(vectors: Vectors, layer: int, query_head: int, bits: int) -> Tensor:
    """(T, T) fp32, query × key: bits in which their codes differ, mean over projections, 0 to ``bits``."""
    asking = _signs(vectors.queries[query_head], layer, bits)
    cached = _signs(vectors.keys[query_head // vectors.group], layer, bits)
    return (bits - asking @ cached.T / PROJECTIONS) / 2


def _signs(vectors: Tensor, layer: int, bits: int) -> Tensor:
    """(n, D) to (n, PROJECTIONS · bits), -1 or 1; zero counts as positive."""
    drawn = [projection_of(seed, layer, bits, vectors.shape[-1]) for seed in range(PROJECTIONS)]
    return torch.where(vectors.float() @ torch.cat(drawn).to(vectors.device).T >= 0, 1.0, -1.0)


# LSH: does the Hamming distance between hashed queries and keys predict how much attention a key gets?
#
# Source: HashEvict appendix E, Table 11 and Figure 9: Pearson's correlation, per layer and head, of attention and the
# inverted average Hamming distance, for several numbers of bits, without eviction. The text leaves open over what the
# correlation runs; both readings are given. ``pairs``: every query and every earlier key. ``keys``: for every key the
# means over all later queries (appendix D: "the average Hamming distance between the key code of token i and the query
# codes of all tokens j > i"). Inverted means bits - distance. The heads of one group share their keys' codes.
#
# Matrices of T × T numbers exist for one head at a time.


BITS = (8, 16, 24, 32)


def lsh_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per layer, query head, number of bits and reading: ``layer``, ``query_head``, ``bits``, ``over`` (pairs
    or keys), ``count`` (of them), ``pearson`` (-1 to 1)."""
    rows = []
    for layer, vectors in enumerate(evidence.dense.vectors):
        for head in range(len(vectors.queries)):
            attention = torch.cat([weights for _, weights in dense_rows(vectors, head)])
            for bits in BITS:
                similar = bits - average_distances(vectors, layer, head, bits)
                for over, first, second in _readings(attention, similar):
                    rows.append((layer, head, bits, over, len(first), pearson(first, second)))
    return pd.DataFrame(rows, columns=["layer", "query_head", "bits", "over", "count", "pearson"])


def _readings(attention: Tensor, similar: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Two (T, T) matrices as two lists of numbers, over pairs and over keys."""
    length = len(attention)
    earlier = later(slice(0, length), length, attention.device).T  # key before query
    yield "pairs", attention[earlier], similar[earlier]
    yield "keys", mean_over_later(attention, earlier), mean_over_later(similar, earlier)


def mean_over_later(numbers: Tensor, earlier: Tensor) -> Tensor:
    """(T, T) query × key to (T - 1,): each key's mean over the queries after it; the last key has none."""
    return (numbers * earlier).sum(0)[:-1] / earlier.sum(0)[:-1]


def lsh_summary(lsh: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over layers and heads, as in Table 11."""
    return lsh.groupby(["over", "bits"])["pearson"].agg(["mean", "std"]).reset_index()


# Ranking loss: what attention it costs to drop keys in the order of a ranking instead of the order of attention.
#
# Source: HashEvict appendices D and E.3, Eq. 7 and 8, Figure 8 ("ALR", after Devoto et al. 2024): with ā_p the mean
# attention of key p over all n queries, L^m the sum of ā over the first m keys dropped, Y = Σ_m (L^m - L^m_ref), where
# the reference drops the smallest ā first. Rankings: ``l2`` drops the largest key norms first, ``lsh`` the largest
# average distances to later queries (16 bits). Deviation: E.3 says "ascending order of the average Hamming distance",
# which would drop the most similar keys first; we drop the most distant, as the method does. The last token, which no
# later query asks for, is dropped last.


RANKING_BITS = 16


def ranking_loss_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per layer, query head and ranking, of the dense run: ``layer``, ``query_head``, ``ranking`` (l2, lsh),
    ``tokens`` (n), ``difference`` (Y, 0 to n; 0 = drops in the order of attention)."""
    rows = []
    for layer, vectors in enumerate(evidence.dense.vectors):
        for head in range(len(vectors.queries)):
            attention = torch.cat([weights for _, weights in dense_rows(vectors, head)]).double().mean(0)
            for ranking, importance in _rankings(vectors, layer, head):
                rows.append((layer, head, ranking, len(attention), cumulative_difference(attention, importance)))
    return pd.DataFrame(rows, columns=["layer", "query_head", "ranking", "tokens", "difference"])


def _rankings(vectors: Vectors, layer: int, head: int) -> Iterator[tuple[str, Tensor]]:
    """(T,) numbers, larger = dropped later."""
    keys = vectors.keys[head // vectors.group]
    yield "l2", -torch.linalg.vector_norm(keys.float(), dim=-1)
    apart = average_distances(vectors, layer, head, RANKING_BITS)
    earlier = later(slice(0, len(apart)), len(apart), apart.device).T
    yield "lsh", F.pad(-mean_over_later(apart, earlier), (0, 1), value=torch.inf)


def cumulative_difference(attention: Tensor, importance: Tensor) -> float:
    """Y of Eq. 7, from (n,) mean attention; keys are dropped by ascending (n,) importance, older first among equals."""
    dropped = attention[importance.argsort(stable=True)].cumsum(0)
    reference = attention.sort().values.cumsum(0)
    return float((dropped - reference).sum())


def ranking_loss_summary(ranking_loss: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads."""
    table = ranking_loss.pivot_table(index="layer", columns="ranking", values="difference", aggfunc="mean")
    return table.reset_index().rename_axis(columns=None)


# Key attention: which keys receive attention, those that are unlike the others, or the short ones?
#
# Source: KeyDiff Figure 2 (cosines of keys beside attention) and HashEvict Figure 7 (attention above key norms), both
# of a few heads of one prompt and without a coefficient. Ours is Pearson's correlation over the first tokens of the
# dense run, as many as in KeyDiff's figure. Attention received is the mean over the later queries among them. Norms
# leave out the first token, as HashEvict's figure does: it is a sink in most heads.


KEYS_COMPARED = 64  # tokens


def key_attention_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per layer and query head, of the dense run: ``layer``, ``query_head``, ``keys`` (compared); correlations
    (-1 to 1) of the attention that a key receives with its mean cosine to the other keys, ``cosine_correlation``, and
    with its length, ``norm_correlation``."""
    rows = []
    for layer, vectors in enumerate(evidence.dense.vectors):
        keys = vectors.keys[:, :KEYS_COMPARED].float()
        count = keys.shape[1]
        directions = F.normalize(keys, dim=-1)
        alike = ((directions @ directions.mT).sum(-1) - 1) / (count - 1)  # (H, n)
        lengths = torch.linalg.vector_norm(keys, dim=-1)
        earlier = later(slice(0, count), count, keys.device).T
        for head in range(len(vectors.queries)):
            _, weights = next(dense_rows(vectors, head))
            received = mean_over_later(weights[:count, :count], earlier)
            own = head // vectors.group
            by_cosine = pearson(alike[own, :-1], received)
            by_norm = pearson(lengths[own, 1:-1], received[1:])
            rows.append((layer, head, count - 1, by_cosine, by_norm))
    return pd.DataFrame(rows, columns=["layer", "query_head", "keys", "cosine_correlation", "norm_correlation"])


def key_attention_summary(key_attention: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads. Both papers say of theirs that it is negative."""
    return key_attention.groupby("layer", as_index=False)[["cosine_correlation", "norm_correlation"]].mean()


# Score ranks: do CAOTE, FastCAOTE and their base score order the slots of a cache alike?
#
# Source: CAOTE Table 8, Spearman's correlation of CAOTE and FastCAOTE scores, one number per layer. The paper states
# neither the base score nor how heads and steps are averaged; here every decision of every head is a row, over all
# slots of the cache at that moment, protected ones included.


RANK_COLUMNS = ["step", "phase", "layer", "head", "slots", "pair", "spearman"]


class RankWatcher:
    """A watcher that scores the cache of a batch of one row each time it holds more than its budget, just before the
    policy evicts.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[object, ...]] = []

    def attended(self, work: LayerPass) -> None:
        """Score the slots as `harness.engine.batch.evict.evict` is about to: with the policy's state of this pass."""
        batch, group = work.batch, work.batch.groups[0]
        scorer = group.policy.scorer
        if scorer is None or not any(batch.over(group)):
            return
        if group.policy.prompt_stage is not None and batch.phase == "prompt":
            scorer = group.policy.prompt_stage.scorer
        view = view_after(work, group)
        scores = scores_of(scorer, view)
        for head, filled in enumerate(view.filled[0]):
            numbers = {name: each[0, head][filled] for name, each in scores.items()}
            place = (batch.passes - 1, batch.phase, work.index, head, int(filled.sum()))
            for first, second in combinations(numbers, 2):
                self.rows.append((*place, f"{first}-{second}", spearman(numbers[first], numbers[second])))

    def evicted(self, work: LayerPass) -> None:
        """What was kept does not matter here."""

    def predicted(self, batch: Batch, logits: Tensor) -> None:
        """Nor do logits."""


def scores_of(scorer: Scorer, view: CacheView) -> dict[str, Tensor]:
    """The base score and both corrections of it, (R, H, N) each."""
    base = scorer.score(view)
    return {"base": base, "caote": CAOTE().correct(base, view), "fastcaote": FastCAOTE().correct(base, view)}


def score_ranks_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per decision, KV head and pair of scores: ``step``, ``phase``, ``layer``, ``head``, ``slots`` (ranked),
    ``pair`` (base-caote, base-fastcaote, caote-fastcaote), ``spearman`` (-1 to 1; NaN where a score does not vary)."""
    return pd.DataFrame(evidence.ranks, columns=RANK_COLUMNS)


def score_ranks_summary(score_ranks: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads and decisions."""
    table = score_ranks.pivot_table(index="layer", columns="pair", values="spearman", aggfunc="mean")
    return table.reset_index().rename_axis(columns=None)
