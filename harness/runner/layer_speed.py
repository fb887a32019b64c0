"""One process of a short measurement: how many layers of a model's shape it computes in a second.

``launcher=local`` starts several at once, to find how many workers share the cores of this machine best. Each says
"ready" when it is warm, waits until its input is closed, computes for `SECONDS`, and prints its number: blocks of
`BLOCK` tokens over `SLOTS` slots, with the engine's attention, the products and the small operations of a Llama layer.

    python -m harness.runner.layer_speed <hidden size> <intermediate size> <dtype>
"""

from __future__ import annotations

import sys
import time

import torch
import torch.nn.functional as F
from torch import Tensor

from harness.engine.attention.attend import attend
from harness.engine.attention.mask import AttentionMask

SECONDS, WARM = 1.5, 0.3
LAYERS = 4  # of their own weights, so that these do not stay in the processor's caches more than a model's do
BLOCK, SLOTS, HEAD = 128, 512, 64  # tokens, slots, numbers of a head


def layers_a_second(hidden: int, inner: int, dtype: torch.dtype, seconds: float) -> float:
    """Layers that this process computes in a second, measured for so many seconds; at least `LAYERS` are computed."""
    torch.manual_seed(0)
    width = max(1, hidden // HEAD) * HEAD
    shapes = ((width, hidden), (hidden, width), (2 * inner, hidden), (hidden, inner))
    weights = [[torch.randn(shape, dtype=dtype) * shape[1] ** -0.5 for shape in shapes] for _ in range(LAYERS)]
    hidden_states = torch.randn(BLOCK, hidden, dtype=dtype)
    cached = torch.randn(2, width // HEAD, SLOTS, HEAD, dtype=dtype)
    began, done = time.perf_counter(), 0
    with torch.inference_mode():
        while done == 0 or time.perf_counter() - began < seconds:
            for layer in weights:
                hidden_states = _layer(hidden_states, layer, cached)
            done += LAYERS
    return done / (time.perf_counter() - began)


def _layer(hidden_states: Tensor, weights: list[Tensor], cached: Tensor) -> Tensor:
    """(tokens, hidden): attention to the cached keys and values (2, H, N, D), then the gated product."""
    to_heads, to_hidden, up, down = weights
    queries = F.linear(_normed(hidden_states), to_heads).view(BLOCK, -1, HEAD).transpose(0, 1)
    seen = torch.ones(1, 1, SLOTS, dtype=torch.bool)
    mask = AttentionMask(valid=seen[0, :, :BLOCK], filled=seen[..., BLOCK:], plain=True)
    attended = attend(queries[None], cached[:1], cached[1:], mask, HEAD**-0.5)[0]
    hidden_states = hidden_states + F.linear(attended.flatten(1), to_hidden)
    gate, rest = F.linear(_normed(hidden_states), up).chunk(2, dim=-1)
    return hidden_states + F.linear(F.silu(gate) * rest, down)


def _normed(hidden_states: Tensor) -> Tensor:
    return hidden_states * hidden_states.square().mean(-1, keepdim=True).add(1e-6).rsqrt()


def main() -> None:
    """Warm up, wait for the others, measure, print."""
    hidden, inner, dtype = int(sys.argv[1]), int(sys.argv[2]), getattr(torch, sys.argv[3])
    layers_a_second(hidden, inner, dtype, WARM)
    print("ready", flush=True)
    sys.stdin.read()
    print(layers_a_second(hidden, inner, dtype, SECONDS), flush=True)


if __name__ == "__main__":
    main()
