"""Key geometry: the measures say what they are named for, on keys made to order."""

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from scripts.testbed.geometry import SHIPPED, WINDOW, described, measure

T, D = 100, 8


def test_the_correlations_follow_the_attention():
    generator = torch.Generator().manual_seed(0)
    angle, norm = torch.rand(T, generator=generator), 1 + torch.rand(T, generator=generator)
    keys = torch.zeros(T, D)
    keys[:, 0], keys[:, 1] = norm * angle.cos(), norm * angle.sin()  # in a plane, 0 to 1 radian apart
    to_anchor = described(keys, norm / norm.sum())
    assert to_anchor.short > 0.99
    directions = torch.nn.functional.normalize(keys, dim=-1)
    alike = directions @ directions.mean(0)
    assert described(keys, 1 - alike).distinct < -0.99
    assert described(keys, alike).distinct > 0.99


def test_sink_and_recent_shares_and_the_norm_of_the_first_key():
    keys = torch.ones(T, D)
    keys[0] *= 3
    attention = torch.zeros(T)
    attention[0], attention[-WINDOW:] = 0.6, 0.4 / WINDOW
    attention[1 : T - WINDOW] += torch.linspace(0, 1e-6, T - WINDOW - 1)
    found = described(keys, attention)
    assert abs(found.first - 0.6) < 1e-6
    assert abs(found.near - 0.4) < 1e-4
    assert abs(found.norm_of_first - 3) < 1e-6
    assert abs(found.cosine - 1) < 1e-6


def test_a_row_for_each_sample_layer_and_head_of_the_shipped_model():
    model = LlamaForCausalLM.from_pretrained(SHIPPED, dtype=torch.float32, attn_implementation="eager").eval()
    rows = measure(model, PreTrainedTokenizerFast.from_pretrained(SHIPPED), length=256, repeats=2)
    shape = model.config
    assert len(rows) == 2 * shape.num_hidden_layers * shape.num_key_value_heads
    assert rows[["first", "near"]].sum(axis=1).between(0, 1 + 1e-5).all()
    assert rows[["distinct", "short"]].abs().le(1).all().all()
