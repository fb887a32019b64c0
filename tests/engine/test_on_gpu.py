"""On a GPU the engine gives the tokens, survivors and likelihoods that it gives on a processor."""

from __future__ import annotations

import pytest
import torch
from presets import alike_groups, evicting_in, policy
from tiny import ARCHITECTURES, prompt, tiny_model

from harness.engine.cuda_graphs import CudaGraphRunner, on_gpu
from harness.engine.engine import Engine
from harness.engine.fast_layers import compile_layers
from harness.engine.requests import Prompting, Request

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

BLOCKS, ONCE = Prompting("blocked", 8), Prompting("one_shot")
BUDGET, NEW = 40, 9


def rows_of(names, new=NEW):
    return [Request(prompt(99, seed), policy(name), BUDGET, new) for name in names for seed in (0, 1)]


def nudged(seed):
    """The model with weights changed by a millionth: its likelihoods move by 1e-4, ten times what a GPU rounds."""
    model = tiny_model("llama")
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1 + 1e-6 * torch.randn(weight.shape))
    return Engine(model)


@pytest.mark.parametrize("feed", [BLOCKS, ONCE], ids=lambda feed: feed.regime)
def test_every_preset_gives_the_tokens_and_ledgers_of_a_processor(feed):
    on_cpu, on_cuda = Engine(tiny_model("llama")), Engine(tiny_model("llama").cuda())
    differing, hanging, count = [], [], 0
    for names in alike_groups(evicting_in(feed, BUDGET)):
        rows = rows_of(names)
        here, there = on_cpu.generate(rows, feed), on_cuda.generate(rows, feed)
        count += len(rows)
        if here == there:
            continue
        others = [nudged(seed).generate(rows, feed) for seed in (0, 1)]
        for row, mine, its, *rest in zip(rows, here, there, *others, strict=True):
            if its == mine:
                continue
            if any(other != mine for other in rest):
                hanging.append(row.policy.name)  # on the last digits: two slots or two tokens are as good as equal
            else:
                differing.append((row.policy.name, mine, its))
    assert not differing
    assert len(hanging) <= 0.05 * count


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_every_architecture_gives_the_tokens_of_a_processor(kind):
    rows = rows_of(("keydiff", "h2o", "caote_snapkv", "dense"))
    on_cpu, on_cuda = Engine(tiny_model(kind)), Engine(tiny_model(kind).cuda())
    assert on_cuda.generate(rows, BLOCKS) == on_cpu.generate(rows, BLOCKS)


def test_recorded_and_compiled_passes_give_the_likelihoods_of_a_processor():
    rows = rows_of(("keydiff", "tova", "snapkv"), new=0)
    model = tiny_model("llama").cuda()
    assert compile_layers(model) is None
    messages = []
    fast = Engine(model, graphs=CudaGraphRunner(on_gpu(), messages.append))
    for here, there in zip(
        Engine(tiny_model("llama")).perplexity(rows, BLOCKS), fast.perplexity(rows, BLOCKS), strict=True
    ):
        assert there.ledger == here.ledger
        assert there.nll == pytest.approx(here.nll, abs=1e-4)  # fused operations round otherwise; nll is around 5
    assert fast.runner.graphs.replayed
    assert not messages
