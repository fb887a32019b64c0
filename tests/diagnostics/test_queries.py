"""Diagnostics of queries and of the last window: direct computations on a tiny model."""

from __future__ import annotations

import pytest
import torch.nn.functional as F
from diagnostics.runs import LENGTH, dense_probabilities, frames, tape

from harness.analysis.attention_diagnostics import WINDOW


@pytest.mark.parametrize("kind", ["llama", "gemma"])
def test_window_attention_is_the_models_own_of_the_last_queries_before_eviction(kind):
    found = frames("keydiff", 10, "window_attention", kind=kind)["window_attention"]
    for layer, probabilities in enumerate(dense_probabilities(kind)):
        for head, weights in enumerate(probabilities):
            own = found[(found["layer"] == layer) & (found["query_head"] == head)].sort_values("position")
            assert own["attention"].tolist() == pytest.approx(weights[LENGTH - WINDOW :].mean(0).tolist(), abs=1e-5)
            assert own["attention"].sum() == pytest.approx(1, abs=1e-4)


def test_query_points_have_the_length_and_direction_of_each_query():
    vectors = tape("keydiff", 10).vectors
    found = frames("keydiff", 10, "query_points")["query_points"]
    assert len(found) == sum(len(each.queries) for each in vectors) * LENGTH
    for layer, each in enumerate(vectors):
        for head, queries in enumerate(each.queries):
            own = found[(found["layer"] == layer) & (found["query_head"] == head)].sort_values("position")
            assert own["norm"].tolist() == pytest.approx(queries.norm(dim=-1).tolist(), rel=1e-5)
            cosines = F.cosine_similarity(queries, queries.mean(0)[None], dim=-1)
            assert own["cosine_to_mean_query"].tolist() == pytest.approx(cosines.tolist(), abs=1e-5)


def test_means_over_queries_are_those_of_key_query():
    found = frames("keydiff", 10, "query_points", "key_query")
    means = found["query_points"].groupby(["layer", "query_head"])[["norm", "cosine_to_mean_query"]].mean()
    expected = found["key_query"].set_index(["layer", "query_head"])
    assert means["norm"].tolist() == pytest.approx(expected["query_norm"].tolist(), rel=1e-5)
    assert means["cosine_to_mean_query"].tolist() == pytest.approx(expected["cosine_of_queries"].tolist(), abs=1e-5)
