"""Key diagnostics: known answers, and direct computations on a tiny model."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from diagnostics.runs import LENGTH, frames, tape

from harness.analysis.key_diagnostics import log_volume, principal_components

WHAT = ("key_points", "key_cosines", "key_query", "log_det")


def orthonormal(count: int, width: int) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.linalg.qr(torch.randn(width, count)).Q.T


def test_orthonormal_keys_span_the_unit_volume():
    assert log_volume(orthonormal(5, 8)) == pytest.approx(0, abs=1e-5)
    assert log_volume(3 * orthonormal(5, 8)) == pytest.approx(2 * 5 * torch.tensor(3.0).log().item(), rel=1e-5)


def test_the_volume_is_the_gram_determinant_on_either_side():
    torch.manual_seed(2)
    few, many = torch.randn(5, 8).double(), torch.randn(20, 8).double()
    assert log_volume(few) == pytest.approx(float(torch.logdet(few @ few.T)))
    assert log_volume(many) == pytest.approx(float(torch.logdet(many.T @ many)))
    assert log_volume(torch.ones(2, 8)) < -30  # the same key twice


def test_principal_components_are_the_axes_of_a_stretched_cloud():
    torch.manual_seed(3)
    axes = orthonormal(4, 4)
    cloud = (torch.randn(200, 4) * torch.tensor([10.0, 4.0, 0.5, 0.1])) @ axes + 7
    points = principal_components(cloud)
    truth = (cloud - cloud.mean(0)) @ axes.T
    for component in range(2):
        correlation = torch.corrcoef(torch.stack([points[:, component], truth[:, component].double()]))[0, 1]
        assert abs(float(correlation)) > 0.99
    assert principal_components(torch.ones(1, 4)).tolist() == [[0, 0]]


@pytest.mark.parametrize("kind", ["llama", "gemma"])
def test_they_equal_direct_computations(kind):
    recorded = tape("keydiff", 10, kind=kind)
    found = frames("keydiff", 10, *WHAT, kind=kind)
    kept = recorded.held_after(recorded.passes[-1])
    for layer, vectors in enumerate(recorded.vectors):
        for head, keys in enumerate(vectors.keys):
            at = {name: frame[(frame["layer"] == layer) & (frame["head"] == head)] for name, frame in found.items()}
            mask = kept[layer, head]
            assert at["key_points"]["kept"].tolist() == mask.tolist()
            assert at["key_points"]["norm"].tolist() == pytest.approx(keys.norm(dim=-1).tolist(), rel=1e-5)
            anchor = F.normalize(keys, dim=-1).mean(0)
            cosines = F.cosine_similarity(keys, anchor[None])
            assert at["key_points"]["cosine_to_anchor"].tolist() == pytest.approx(cosines.tolist(), abs=1e-5)

            matrix = F.cosine_similarity(keys[:, None], keys[None], dim=-1)
            other = ~torch.eye(LENGTH, dtype=torch.bool)
            wanted = {
                ("kept", "kept"): matrix[mask][:, mask][other[mask][:, mask]].mean(),
                ("evicted", "evicted"): matrix[~mask][:, ~mask][other[~mask][:, ~mask]].mean(),
                ("all", "all"): matrix[other].mean(),
                ("kept", "evicted"): matrix[mask][:, ~mask].mean(),
            }
            for row in at["key_cosines"].itertuples():
                assert row.cosine == pytest.approx(float(wanted[row.first, row.second]), abs=1e-5)

            chosen = keys[mask].double()
            assert at["log_det"]["keys"].item() == 10
            gram = torch.logdet(chosen.T @ chosen) if len(chosen) > chosen.shape[1] else torch.logdet(chosen @ chosen.T)
            assert at["log_det"]["log_det"].item() == pytest.approx(float(gram), rel=1e-4)

            queries = vectors.queries[head * vectors.group : (head + 1) * vectors.group]
            mean = F.cosine_similarity(keys.mean(0), queries.mean(1), dim=-1)
            assert at["key_query"]["cosine_of_means"].tolist() == pytest.approx(mean.tolist(), abs=1e-5)
            distinct = keys[cosines.argsort()[: LENGTH // 10]]
            top = [float(F.cosine_similarity(distinct, query[None]).mean()) for query in queries.mean(1)]
            assert at["key_query"]["cosine_of_distinct"].tolist() == pytest.approx(top, abs=1e-5)
            rest = keys[cosines.argsort()[LENGTH // 10 :]]
            others = [float(F.cosine_similarity(rest, query[None]).mean()) for query in queries.mean(1)]
            assert at["key_query"]["cosine_of_others"].tolist() == pytest.approx(others, abs=1e-5)
            own = float(F.cosine_similarity(keys, keys.mean(0)[None]).mean())
            lengths = keys.norm(dim=-1)
            for row in at["key_query"].itertuples():
                assert row.cosine_of_keys == pytest.approx(own, abs=1e-5)
                assert row.key_norm == pytest.approx(float(lengths.mean()), rel=1e-5)
                assert row.key_norm_std == pytest.approx(float(lengths.std(correction=0)), rel=1e-4)


def test_without_eviction_there_is_no_evicted_set():
    cosines = frames("dense", 0, "key_cosines")["key_cosines"]
    evicted = cosines[cosines["second"] == "evicted"]
    assert (evicted["pairs"] == 0).all()
    assert evicted["cosine"].isna().all()
