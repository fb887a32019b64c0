"""Q-Filters: the score worked by hand, the filters against singular vectors of transformers' own queries."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from engine.tiny import prompt, tiny_model
from reference.qfilters import filter_of
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from views import view

from harness.analysis.query_filters import measure_filters
from harness.config.head_profiles import identity, read, with_profile
from harness.config.model import ModelSpec
from harness.errors import CellError, UserError
from policies import PolicyError
from policies.qfilters import QFilters
from policies.view import ModelShape

TESTBED = ModelSpec("testbed", "bundled/testbed")
ALONG = (((0.6, 0.8),),)  # one layer, one KV head, D = 2
KEYS = [[1.0, 0.0], [0.0, 1.0], [-1.0, 2.0], [2.0, -2.0]]


def test_worked_example():
    """policies.md 3.27: u = (.6, .8) and keys (1, 0), (0, 1), (-1, 2), (2, -2) give .6, .8, 1, -.4."""
    torch.testing.assert_close(QFilters(ALONG).score(view(keys=KEYS)).flatten(), torch.tensor([0.6, 0.8, 1.0, -0.4]))


def test_the_score_is_the_mean_logit_where_all_queries_point_one_way():
    """Queries c·u with c > 0 on average: every logit is c times the score, so their means have its order."""
    lengths = torch.tensor([0.5, 2.0, -0.3, 1.0])
    queries = lengths[:, None] * torch.tensor([0.6, 0.8])
    mean_logits = (queries @ torch.tensor(KEYS).T).mean(0)
    torch.testing.assert_close(mean_logits, lengths.mean() * QFilters(ALONG).score(view(keys=KEYS)).flatten())


def projected_queries(model, tokens: list[int]) -> list[torch.Tensor]:
    """The output of each layer's `q_proj` in one pass of transformers."""
    outputs: list[torch.Tensor] = []
    modules = [layer.self_attn.q_proj for layer in model.model.layers]
    hooks = [each.register_forward_hook(lambda _, __, out: outputs.append(out)) for each in modules]
    with torch.no_grad():
        model(torch.tensor([tokens]))
    for hook in hooks:
        hook.remove()
    return outputs


@pytest.mark.parametrize("turned", [1, -1])
def test_filters_are_singular_vectors_of_the_models_queries(turned):
    """Against an SVD of all queries, of `q_proj` and rotated by transformers; also where weights are negated."""
    model = tiny_model("llama")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.mul_(turned)
    texts = [prompt(40, seed=1), prompt(25, seed=2)]
    found = measure_filters(model, texts)
    queries: dict[int, list[torch.Tensor]] = {}
    for tokens in texts:
        outputs = projected_queries(model, tokens)
        cos, sin = model.model.rotary_emb(outputs[0], torch.arange(len(tokens))[None])
        for at, out in enumerate(outputs):
            own = out.view(1, len(tokens), 4, 8).transpose(1, 2)
            queries.setdefault(at, []).append(apply_rotary_pos_emb(own, own, cos, sin)[0][0])
    for at in range(3):
        of_layer = torch.cat(queries[at], 1).double().numpy()  # (H·G, n, D)
        expected = [filter_of(of_layer[2 * head : 2 * head + 2]) for head in range(2)]
        # Queries are fp32 numbers computed in blocks here and at once there.
        np.testing.assert_allclose(np.array(found[at]), expected, atol=1e-4)


def test_filters_are_read_for_their_own_model(tmp_path):
    file = tmp_path / "mine.json"
    heads = {f"{layer}-{head}": [0.1 * layer, -0.2] for layer in range(2) for head in range(3)}
    file.write_text(json.dumps({"model": "testbed", "fingerprint": identity(TESTBED), **heads}))
    scorer = {"name": "qfilters", "filters": str(file)}
    assert with_profile({"scorer": scorer}, TESTBED)["scorer"]["filters"][1] == ((0.1, -0.2),) * 3
    over = with_profile({"scorer": {"name": "chunkkv", "base": scorer}}, TESTBED)["scorer"]["base"]
    assert over["filters"][0] == ((0.0, -0.2),) * 3, "also where another scorer is over it"
    other = replace(TESTBED, path=str(tmp_path))
    with pytest.raises(CellError, match=r"The filters .* were measured on testbed, not on this .*kind=q out=<file>"):
        with_profile({"scorer": scorer}, other)
    assert with_profile({"scorer": {**scorer, "transfer": True}}, other)["scorer"]["filters"]


def test_filters_of_a_model_that_is_not_fetched_yet_are_no_mistake(tmp_path):
    """What is missing are the weights, which is said where they are loaded."""
    absent = ModelSpec(
        "smollm2-135m", str(tmp_path / "models/none"), fetch="python -m scripts.fetch_model smollm2-135m"
    )
    scorer = {"name": "qfilters", "filters": "bundled/smollm2-135m-q"}
    assert len(with_profile({"scorer": scorer}, absent)["scorer"]["filters"]) == 30
    with pytest.raises(CellError, match="were measured on smollm2-135m, not on this other"):
        with_profile({"scorer": scorer}, replace(absent, name="other"))


@pytest.mark.parametrize("numbers", [[], [float("nan")], [1.0, 2.0]])
def test_a_file_that_holds_no_filters_is_refused(tmp_path, numbers):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"0-0": [1.0], "0-1": numbers}))
    with pytest.raises(UserError, match="is no file of filters: every KV head needs as many finite numbers"):
        read(str(file), "filters")


def test_two_gguf_models_are_two_models(tmp_path):
    """A folder without config.json and weights of transformers has no empty identity that any other would share."""
    names = []
    for content in (b"GGUF one", b"GGUF two"):
        file = tmp_path / f"{len(names)}.gguf"
        file.write_bytes(content)
        names.append(identity(ModelSpec("mine", str(file))))
    assert names[0] != names[1]


def test_filters_of_another_layout_are_refused():
    filters = QFilters(ALONG)
    assert filters.reason_against_model(ModelShape(layers=1, kv_heads=1, query_heads=4)) == ""
    sentence = filters.reason_against_model(ModelShape(layers=2, kv_heads=1, query_heads=4))
    assert sentence.startswith("qfilters has filters for 1 layers with 1 KV heads each, but the model has 2 layers")
    with pytest.raises(PolicyError, match="qfilters has filters of 2 numbers, but this model's heads have 4"):
        filters.score(replace(view(keys=KEYS), keys=torch.zeros(1, 1, 4, 4)))
    with pytest.raises(PolicyError, match="were not read"):
        QFilters("bundled/testbed-q").score(view(keys=KEYS))
