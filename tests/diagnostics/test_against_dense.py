"""Attention loss, output error and prediction: 0 without eviction, and equal to direct computations with it."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from diagnostics.runs import BLOCKS, LENGTH, dense_probabilities, frames, model, policy, tape
from engine.tiny import prompt

from harness.analysis import recording
from harness.analysis.diagnostics import diagnose
from harness.analysis.recording import DenseRuns
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies import DENSE

WHAT = ("attention_loss", "output_error", "prediction")


@pytest.mark.parametrize(("name", "budget"), [("dense", 0), ("window", LENGTH), ("keydiff", 99)])
def test_nothing_is_lost_where_nothing_is_evicted(name, budget):
    found = frames(name, budget, *WHAT)
    assert set(found["attention_loss"]["loss"]) == {0.0}
    assert set(found["attention_loss"]["evicted"]) == {0.0}
    assert found["output_error"]["error"].max() < 1e-10
    assert found["prediction"]["kl"].abs().max() < 1e-6
    assert found["prediction"]["nll_difference"].abs().max() < 1e-5
    assert found["prediction"]["agrees"].all()


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2"])
def test_the_windows_attention_loss_is_the_mass_before_it(kind):
    loss = frames("window", 10, "attention_loss", kind=kind)["attention_loss"]
    attention = dense_probabilities(kind)
    for row in loss.itertuples():
        start = row.step * 8
        hidden = max(0, start - 10)  # a block sees the 10 tokens before it and itself
        mass = attention[row.layer][row.query_head, start : start + 8, :hidden].sum(-1).mean()
        assert row.loss == pytest.approx(float(mass), abs=1e-5)
        assert row.evicted == hidden


def test_a_policy_that_evicts_before_attention_hides_one_token_more():
    loss = frames("window", 10, "attention_loss", prompting=Prompting("blocked", 1))["attention_loss"]
    assert loss["evicted"].max() == LENGTH - 1 - 10
    feed = Prompting("token_fed")
    early = frames("hashevict", 20, "attention_loss", prompting=feed)["attention_loss"]
    assert early["evicted"].max() == LENGTH - 20


def test_the_first_layers_own_error_is_against_plain_causal_attention():
    recorded = tape("keydiff", 10)
    found = frames("keydiff", 10, "output_error")["output_error"]
    for row in found[found["against"] == "own states"].itertuples():
        vectors, head = recorded.vectors[row.layer], row.query_head // 2
        query = vectors.queries[row.query_head][None, None]
        keys, values = vectors.keys[head][None, None], vectors.values[head][None, None]
        whole = F.scaled_dot_product_attention(query, keys, values, is_causal=True, scale=vectors.scaling)[0, 0]
        block = slice(row.step * 8, row.step * 8 + 8)
        difference = (vectors.outputs[row.query_head] - whole)[block].square().sum()
        assert row.error == pytest.approx(float(difference / whole[block].square().sum()), rel=1e-3, abs=1e-9)


def test_in_the_first_layer_both_references_are_one():
    found = frames("keydiff", 10, "output_error")["output_error"]
    first = found[found["layer"] == 0].pivot(index=["step", "query_head"], columns="against", values="error")
    torch.testing.assert_close(
        torch.tensor(first["own states"].to_numpy()), torch.tensor(first["dense run"].to_numpy()), atol=1e-6, rtol=1e-4
    )
    later = found[(found["layer"] == 2) & (found["step"] == 4)].groupby("against")["error"].mean()
    assert later["own states"] != pytest.approx(later["dense run"], rel=0.01)


def test_prediction_is_the_engines_perplexity_and_transformers_kl():
    found = frames("h2o", 10, "prediction")["prediction"]
    tokens = prompt(LENGTH)
    (outcome,) = Engine(model()).perplexity([Request(tokens, policy("h2o"), 10)], BLOCKS)
    assert found["nll"].tolist() == pytest.approx(outcome.nll, rel=1e-5)
    (dense,) = Engine(model()).perplexity([Request(tokens, DENSE)], BLOCKS)
    assert found["nll_dense"].tolist() == pytest.approx(dense.nll, rel=1e-5)
    with torch.inference_mode():
        wanted = model()(torch.tensor([tokens])).logits[0, :-1].log_softmax(-1)
    given = tape("h2o", 10).logits[:-1].log_softmax(-1)
    kl = F.kl_div(given, wanted, log_target=True, reduction="none").sum(-1)
    assert found["kl"].tolist() == pytest.approx(kl.tolist(), abs=1e-4)
    assert found["position"].tolist() == list(range(1, LENGTH))


def test_one_shot_shows_in_the_continuation_alone():
    found = frames("snapkv", 33, *WHAT, prompting=Prompting("one_shot"), continuation=[4, 5, 6, 7])
    prediction, loss = found["prediction"], found["attention_loss"]
    assert prediction[prediction["step"] == 0]["kl"].abs().max() < 1e-6
    assert prediction[prediction["phase"] == "decode"]["kl"].min() > 0
    assert loss[loss["phase"] == "prompt"]["loss"].max() == 0
    assert loss[loss["phase"] == "decode"]["loss"].min() > 0
    assert diagnose(model(), [5], DENSE, 0, BLOCKS, ["prediction"])["prediction"].empty


def test_policies_share_the_dense_run_of_a_prompt_and_get_the_frames_that_they_get_alone(monkeypatch):
    followed, follow, shared = [], recording.follow, DenseRuns(model())

    def counted(loaded, row, *others):
        followed.append(row.policy.name)
        return follow(loaded, row, *others)

    monkeypatch.setattr(recording, "follow", counted)
    cases = [(name, seed) for seed in (1, 2, 1) for name in ("h2o", "window", "keydiff")]
    for name, seed in cases:
        asked = model(), prompt(LENGTH, seed), policy(name), 10, BLOCKS, WHAT, [4, 5]
        found, alone = diagnose(*asked, dense_runs=shared), diagnose(*asked)
        for what in WHAT:
            pd.testing.assert_frame_equal(found[what], alone[what])
    # A prompt's first policy runs it dense for all of them; each of the nine cases alone does so again.
    assert followed.count("dense") == 3 + len(cases)
    answer = shared.continuation(prompt(LENGTH), 3, BLOCKS)
    assert shared.continuation(prompt(LENGTH), 3, BLOCKS) is answer
    assert len(answer) == 3
    assert shared.continuation(prompt(LENGTH), 0, BLOCKS) == []
