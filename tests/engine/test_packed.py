"""engine.compile on a CPU: packed linear layers give what plain ones give, and hold their weights once."""

from __future__ import annotations

import pytest
import torch
from presets import policy
from tiny import ARCHITECTURES, prompt, tiny_model
from torch.nn import Linear

from harness.engine.engine import Engine
from harness.engine.fast_layers import PackedLinear, pack_layers
from harness.engine.requests import Prompting, Request

OPS = torch.ops.mkldnn  # as a torch without oneDNN lacks them
BFLOAT16 = hasattr(OPS, "_is_mkldnn_bf16_supported") and OPS._is_mkldnn_bf16_supported()
needs_bfloat16 = pytest.mark.skipif(not BFLOAT16, reason="oneDNN does not compute in bfloat16 on this processor")


@pytest.fixture(autouse=True)
def packing():
    """Skip where torch has no MKL or no oneDNN, as on CPUs other than x86."""
    if not pack_layers(tiny_model("llama")):
        pytest.skip("this torch packs nothing")


def perplexity(model, rows):
    """(rows, tokens) nats."""
    return torch.tensor([out.nll for out in Engine(model).perplexity(rows, Prompting("blocked", 8))])


def linears(model, kind):
    return [part for layer in model.model.layers for part in layer.modules() if type(part) is kind]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (0, 5), (2, 128)])
def test_a_packed_layer_multiplies_as_a_plain_one(shape, bias):
    torch.manual_seed(0)
    plain = Linear(48, 33, bias=bias)
    x = torch.randn(*shape, 96)[..., ::2]  # not contiguous
    with torch.inference_mode():
        wanted, made = plain(x), PackedLinear(plain)(x)
    assert made.shape == wanted.shape
    torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-5)  # sums of 48 products of size 1 in another order


@needs_bfloat16
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (0, 5), (2, 128)])
def test_a_packed_layer_multiplies_bfloat16_as_a_plain_one(shape, bias):
    """Products of 8 bits are exact in float32, where both add them; what differs is rounded to 8 bits: 1 in 2⁸."""
    torch.manual_seed(0)
    plain = Linear(48, 33, bias=bias).bfloat16()
    x = torch.randn(*shape, 96).bfloat16()[..., ::2]
    with torch.inference_mode():
        wanted, made = plain.float()(x.float()), PackedLinear(plain.bfloat16())(x)
    assert (made.shape, made.dtype) == (wanted.shape, torch.bfloat16)
    torch.testing.assert_close(made.float(), wanted, rtol=2**-8, atol=1e-5)


@needs_bfloat16
def test_packed_layers_in_bfloat16_read_as_plain_ones_do():
    """The nats per token of a prompt in blocks, under an eviction that no rounding can change."""
    model = tiny_model("llama", torch.bfloat16)
    rows = [Request(prompt(24), policy(name), 12) for name in ("window", "sink")]
    plain = perplexity(model, rows)
    assert pack_layers(model) == 7 * model.config.num_hidden_layers + 1
    # A logit of about 1 in bfloat16 is off by 2⁻⁹ at each of some dozen roundings on its way.
    torch.testing.assert_close(perplexity(model, rows), plain, rtol=0, atol=0.03)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_packed_layers_give_the_same_tokens_and_ledgers(kind):
    model = tiny_model(kind)
    rows = [Request(prompt(24), policy(name), 12, 4) for name in ("keydiff", "h2o", "tova")]
    plain = Engine(model).generate(rows, Prompting("blocked", 8))
    assert pack_layers(model) == 7 * model.config.num_hidden_layers + 1  # q, k, v, o, gate, up, down; the head
    assert Engine(model).generate(rows, Prompting("blocked", 8)) == plain


@pytest.mark.parametrize("tied", [False, True])
def test_weights_are_held_once_but_for_those_of_the_embedding(tied):
    model = tiny_model("llama")
    if tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    before = sum(weight.numel() for weight in model.parameters())
    embedding = model.model.embed_tokens.weight
    packed_away = sum(layer.weight.numel() for layer in linears(model, Linear)) + (0 if tied else embedding.numel())
    pack_layers(model)
    assert not linears(model, Linear)
    assert sum(weight.numel() for weight in model.parameters()) == before - packed_away
    assert model.model.embed_tokens.weight is embedding
    held = sum(layer.packed.numel() for layer in [*linears(model, PackedLinear), model.lm_head])
    assert held == packed_away + (embedding.numel() if tied else 0)


def test_other_numbers_and_layers_that_accelerate_moves_stay_as_they_are():
    assert pack_layers(tiny_model("llama", torch.float16)) == 0
    moved = tiny_model("llama")
    linears(moved, Linear)[0]._hf_hook = object()  # where accelerate keeps its own
    assert pack_layers(moved) == 7 * moved.config.num_hidden_layers


def test_bfloat16_is_packed_only_where_the_processor_computes_with_it():
    packed = pack_layers(tiny_model("llama", torch.bfloat16))
    assert packed == (7 * tiny_model("llama").config.num_hidden_layers + 1 if BFLOAT16 else 0)


def test_a_torch_without_the_operations_packs_nothing(monkeypatch):
    monkeypatch.setattr(torch._C, "_has_mkldnn", False)
    model = tiny_model("llama")
    assert pack_layers(model) == 0
    assert linears(model, Linear)
