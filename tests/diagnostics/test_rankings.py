"""Correlations and rankings: score ranks, LSH, ranking loss, and the two heat maps of the first tokens."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from diagnostics.runs import LENGTH, dense_probabilities, frames, tape
from scipy import stats

from harness.analysis.ranking_diagnostics import PROJECTIONS, cumulative_difference, pearson, spearman
from policies.hashevict import projection_of


def test_correlations_are_those_of_scipy_ties_included():
    torch.manual_seed(0)
    first, second = torch.randint(0, 6, (50,)).float(), torch.randn(50)
    assert pearson(first, second) == pytest.approx(stats.pearsonr(first, second).statistic)
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)
    assert spearman(first, first.exp()) == pytest.approx(1)
    assert torch.tensor(pearson(torch.ones(3), torch.arange(3.0))).isnan()


@pytest.mark.parametrize("base", ["tova", "h2o"])
def test_score_ranks_are_spearmans_of_scores_by_their_equations(base):
    """The first decision of the first layer: all tokens are there, so that plain attention says everything."""
    budget, stop = 10, 16
    ranks = frames(base, budget, "score_ranks")["score_ranks"]
    recorded = tape(base, budget)
    weights = dense_probabilities()[0]
    first = ranks[(ranks["layer"] == 0) & (ranks["step"] == ranks["step"].min())]
    assert set(first["step"]) == {1}
    for head in range(2):
        rows = weights[2 * head : 2 * head + 2, :stop, :stop].mean(0)
        share = rows[-1] if base == "tova" else rows.sum(0) / rows.sum()
        values = recorded.vectors[0].values[head, :stop]
        scores = {"base": share}
        for name, output in (("caote", share @ values), ("fastcaote", values.mean(0))):
            scores[name] = share / (1 - share) * (output - values).norm(dim=-1)
        for row in first[first["head"] == head].itertuples():
            one, other = row.pair.split("-")
            assert row.slots == stop
            assert row.spearman == pytest.approx(stats.spearmanr(scores[one], scores[other]).statistic, abs=1e-3)


def test_score_ranks_come_from_the_same_scores_under_a_correction():
    plain = frames("caote_snapkv", 33, "score_ranks")["score_ranks"]
    assert set(plain["pair"]) == {"base-caote", "base-fastcaote", "caote-fastcaote"}
    assert plain["spearman"].between(-1, 1).all()
    assert frames("caote_snapkv", LENGTH, "score_ranks")["score_ranks"].empty  # nothing was ever decided


def test_lsh_equals_counted_bits():
    found = frames("dense", 0, "lsh")["lsh"]
    vectors, layer, query_head = tape("dense", 0).vectors[1], 1, 3
    attention = dense_probabilities()[layer][query_head]
    query, keys = vectors.queries[query_head], vectors.keys[query_head // 2]
    distance = torch.zeros(LENGTH, LENGTH)
    for seed in range(PROJECTIONS):
        projection = projection_of(seed, layer, 16, query.shape[-1])
        asking, cached = query @ projection.T >= 0, keys @ projection.T >= 0
        distance += (asking[:, None] != cached[None]).sum(-1) / PROJECTIONS
    pairs = [(i, j) for i in range(LENGTH) for j in range(i)]
    wanted = stats.pearsonr([attention[p] for p in pairs], [-distance[p] for p in pairs]).statistic
    means = [(attention[j + 1 :, j].mean(), -distance[j + 1 :, j].mean()) for j in range(LENGTH - 1)]
    at = found[(found["layer"] == layer) & (found["query_head"] == query_head) & (found["bits"] == 16)]
    at = at.set_index("over")
    assert at.loc["pairs", "count"] == len(pairs)
    assert at.loc["pairs", "pearson"] == pytest.approx(wanted, abs=1e-4)
    assert at.loc["keys", "pearson"] == pytest.approx(stats.pearsonr(*zip(*means, strict=True)).statistic, abs=1e-4)


def test_key_attention_equals_correlations_of_the_models_own_attention():
    found = frames("dense", 0, "key_attention")["key_attention"].set_index(["layer", "query_head"])
    for layer, head in ((0, 0), (1, 3)):
        attention, keys = dense_probabilities()[layer][head], tape("dense", 0).vectors[layer].keys[head // 2]
        received = [float(attention[key + 1 :, key].mean()) for key in range(LENGTH - 1)]
        cosines = F.cosine_similarity(keys[:, None], keys[None], dim=-1)
        alike = [float((cosines[key].sum() - 1) / (LENGTH - 1)) for key in range(LENGTH - 1)]
        lengths = keys.norm(dim=-1).tolist()
        at = found.loc[(layer, head)]
        assert at["keys"] == LENGTH - 1
        assert at["cosine_correlation"] == pytest.approx(stats.pearsonr(alike, received).statistic, abs=1e-4)
        assert at["norm_correlation"] == pytest.approx(stats.pearsonr(lengths[1:-1], received[1:]).statistic, abs=1e-4)


def test_dropping_in_the_order_of_attention_costs_nothing():
    attention = torch.tensor([0.1, 0.6, 0.3])
    assert cumulative_difference(attention, attention) == pytest.approx(0)
    # the other way round: .6 .9 1. instead of .1 .4 1.
    assert cumulative_difference(attention, -attention) == pytest.approx(0.5 + 0.5)


def test_the_l2_ranking_drops_large_norms_first():
    found = frames("dense", 0, "ranking_loss")["ranking_loss"]
    vectors, layer, query_head = tape("dense", 0).vectors[2], 2, 1
    mean = dense_probabilities()[layer][query_head].mean(0)
    order = sorted(range(LENGTH), key=lambda key: -float(vectors.keys[query_head // 2, key].norm()))
    cheapest = sorted(range(LENGTH), key=lambda key: float(mean[key]))
    wanted = sum(float(mean[order[:m]].sum() - mean[cheapest[:m]].sum()) for m in range(1, LENGTH + 1))
    at = found[(found["layer"] == layer) & (found["query_head"] == query_head)].set_index("ranking")
    assert at.loc["l2", "difference"] == pytest.approx(wanted, abs=1e-3)
    assert (found["difference"] >= -1e-6).all()


def test_first_tokens_are_the_models_attention_beside_cosines():
    found = frames("keydiff", 10, "first_tokens")["first_tokens"]
    vectors, attention = tape("dense", 0).vectors[1], dense_probabilities()[1][2]
    at = found[(found["layer"] == 1) & (found["query_head"] == 2)]
    assert len(at) == LENGTH**2
    given = torch.tensor(at.sort_values(["query", "key"])["attention"].to_numpy()).view(LENGTH, LENGTH)
    torch.testing.assert_close(given, attention, atol=1e-5, rtol=1e-3)
    row = at[(at["query"] == 7) & (at["key"] == 3)].iloc[0]
    keys = vectors.keys[1]
    assert row["cosine"] == pytest.approx(float(torch.cosine_similarity(keys[7], keys[3], dim=0)), abs=1e-5)
