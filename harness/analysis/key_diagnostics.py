"""Diagnostics of keys and queries: geometry of the kept and the evicted keys of each head at the end of the prompt."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from harness.analysis.recording import DiagnosticInput, Tape


@dataclass(frozen=True)
class HeadKeys:
    """One KV head of the policy's own run. n: prompt tokens."""

    layer: int
    head: int
    keys: Tensor  # (n, D) fp32, rotated
    queries: Tensor  # (G, n, D) fp32, rotated, of the query heads that share these keys
    kept: Tensor  # (n,) bool, held after the last prompt block

    @property
    def directions(self) -> Tensor:
        """(n, D): keys of length 1."""
        return F.normalize(self.keys, dim=-1)

    @property
    def anchor(self) -> Tensor:
        """(D,): the mean of the directions over the whole prompt, evicted keys included (KeyDiff Eq. 8)."""
        return self.directions.mean(0)

    @property
    def mean_query(self) -> Tensor:
        """(D,): over tokens and the query group; KeyDiff does not say how it treats groups."""
        return self.queries.mean((0, 1))


def heads_of(tape: Tape) -> Iterator[HeadKeys]:
    """Every KV head of every layer."""
    held = tape.held_after(tape.last_of_prompt)[..., : tape.prompt_tokens]
    for layer, vectors in enumerate(tape.vectors):
        queries = vectors.queries.view(len(vectors.keys), vectors.group, *vectors.queries.shape[1:])
        for head, keys in enumerate(vectors.keys):
            asked = queries[head, :, : tape.prompt_tokens].float()
            yield HeadKeys(layer, head, keys[: tape.prompt_tokens].float(), asked, held[layer, head])


# Key cosines: how similar the kept keys of a head are, its evicted keys, and kept to evicted ones.
#
# Source: KeyDiff sections 3.1 and 3.2 (the objective of Eq. 9 is the sum of pairwise cosines of the kept keys); the
# paper shows the matrix of one example (Figure 2) and no means.


def key_cosines_frame(evidence: DiagnosticInput) -> pd.DataFrame:
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


def key_cosines_summary(key_cosines: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads."""
    named = key_cosines.assign(sets=key_cosines["first"] + "-" + key_cosines["second"])
    table = named.pivot_table(index="layer", columns="sets", values="cosine", aggfunc="mean")
    return table.reset_index().rename_axis(columns=None)


# Key points: every key of the prompt as a point, and whether it was kept.
#
# Source: KeyDiff Figures 4 and 7-9 (PCA of kept and evicted keys), 11 (angle to the mean key) and 13 (norms). The PCA
# is fitted on all keys of the head, centred, kept and evicted together. The anchor is the mean of the normalised keys
# (Eq. 8); Figure 11 may mean the raw mean.


def key_points_frame(evidence: DiagnosticInput) -> pd.DataFrame:
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


def key_points_summary(key_points: pd.DataFrame) -> pd.DataFrame:
    """Means of kept and evicted keys."""
    columns = ["norm", "cosine_to_anchor", "cosine_to_mean_query"]
    return key_points.groupby(["layer", "kept"], as_index=False)[columns].mean()


# Keys and queries: the angles between a head's queries and its keys.
#
# Source: KeyDiff Figures 11 (cosine of queries to the mean query), 12 (cosine of mean key and mean query), 13 (norms)
# and 14 (cosine of the most distinct keys and the mean query; the paper does not say how many, here a tenth). Means are
# of the raw vectors of the prompt, per query head.


DISTINCT = 0.1  # share of the prompt's keys, those with the lowest cosine to the anchor


def key_query_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per layer and query head: ``layer``, ``query_head``, ``head`` (its KV head); cosines of the mean query
    (-1 to 1) with the mean key, ``cosine_of_means``, with the most distinct keys, ``cosine_of_distinct``, with the
    other keys, ``cosine_of_others``, and with all queries, ``cosine_of_queries``, and that of all keys with the mean
    key, ``cosine_of_keys`` (means all four); lengths of both: ``query_norm``, ``query_norm_std``, ``key_norm``,
    ``key_norm_std``."""
    rows = []
    for each in heads_of(evidence.run):
        count = max(1, math.floor(DISTINCT * len(each.keys)))
        order = (each.directions @ each.anchor).argsort(stable=True)
        mean_key = each.keys.mean(0)
        for member, queries in enumerate(each.queries):
            towards = queries.mean(0)
            cosines = (
                _cosine(mean_key, towards),
                _cosine(each.keys[order[:count]], towards),
                _cosine(each.keys[order[count:]], towards),
                _cosine(queries, towards),
                _cosine(each.keys, mean_key),
            )
            query_head = each.head * len(each.queries) + member
            rows.append((each.layer, query_head, each.head, *cosines, *_lengths(queries), *_lengths(each.keys)))
    names = ("means", "distinct", "others", "queries", "keys")
    columns = ["layer", "query_head", "head", *(f"cosine_of_{name}" for name in names)]
    return pd.DataFrame(rows, columns=[*columns, "query_norm", "query_norm_std", "key_norm", "key_norm_std"])


def _lengths(vectors: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of the lengths of (n, D) vectors."""
    norms = torch.linalg.vector_norm(vectors, dim=-1)
    return float(norms.mean()), float(norms.std(correction=0))


def _cosine(vectors: Tensor, towards: Tensor) -> float:
    """Mean cosine of (…, D) vectors to one (D,)."""
    return float(F.cosine_similarity(vectors, towards, dim=-1).mean())


def key_query_summary(key_query: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads."""
    columns = ["cosine_of_means", "cosine_of_distinct", "cosine_of_queries", "query_norm"]
    return key_query.groupby("layer", as_index=False)[columns].mean()


# Log-determinant of the Gram matrix of the kept keys: the volume they span.
#
# Source: KeyDiff Figure 5, log det(K Kᵀ). With more keys than dimensions that determinant is 0, and at the paper's
# sizes (2048 keys, 128 dimensions) it always is. Ours is the sum of log s² over the min(n, D) largest singular values s
# of K: log det(K Kᵀ) where n <= D, log det(Kᵀ K) where n >= D. Compare only sets of equal size.


def log_det_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per layer and KV head at the end of the prompt: ``layer``, ``head``, ``keys`` (kept), ``log_det``
    (natural logarithm; -inf where the keys do not span their dimensions)."""
    rows = []
    for each in heads_of(evidence.run):
        kept = each.keys[each.kept]
        rows.append((each.layer, each.head, len(kept), log_volume(kept)))
    return pd.DataFrame(rows, columns=["layer", "head", "keys", "log_det"])


def log_volume(keys: Tensor) -> float:
    """Of (n, D) keys, in fp64."""
    return float(2 * torch.linalg.svdvals(keys.double()).log().sum())


def log_det_summary(log_dets: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads."""
    return log_dets.groupby("layer", as_index=False)[["keys", "log_det"]].mean()


# Query points: every query of the prompt by its length and its direction.
#
# Source: KeyDiff Figures 11 (angles of queries to the mean query) and 13 (norms), which are histograms over queries;
# `key_query` has their means. Mean queries are of the raw vectors, per query head.


def query_points_frame(evidence: DiagnosticInput) -> pd.DataFrame:
    """One row per layer, query head and prompt token: ``layer``, ``query_head``, ``position``, ``norm`` (length of the
    query), ``cosine_to_mean_query`` (-1 to 1)."""
    parts = []
    for each in heads_of(evidence.run):
        for member, queries in enumerate(each.queries):
            columns = {
                "layer": each.layer,
                "query_head": each.head * len(each.queries) + member,
                "position": torch.arange(len(queries)).numpy(),
                "norm": torch.linalg.vector_norm(queries, dim=-1).cpu().numpy(),
                "cosine_to_mean_query": F.cosine_similarity(queries, queries.mean(0), dim=-1).cpu().numpy(),
            }
            parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def query_points_summary(query_points: pd.DataFrame) -> pd.DataFrame:
    """Mean over heads and tokens."""
    return query_points.groupby("layer", as_index=False)[["norm", "cosine_to_mean_query"]].mean()
