"""kvpress on the same prompt, run by the interpreter of an environment that has it (it pins an older transformers).

Stands alone: that environment has no kvreplica. Reads its settings as JSON, prints seconds as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

import torch


def main() -> None:
    """Prefill with compression at its end, which is what kvpress does; the first of the repeats is thrown away."""
    order = json.loads(sys.argv[1])
    torch.set_num_threads(order["threads"])
    transformers: Any = import_module("transformers")
    kvpress: Any = import_module("kvpress")
    config = transformers.LlamaConfig(**order["config"])
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=getattr(torch, order["dtype"]), attn_implementation="sdpa"
    )
    model = model.to(order["device"]).eval()
    tokens = torch.tensor([order["tokens"]], device=order["device"])
    ratio = 1 - order["budget"] / tokens.shape[1]
    found = {
        name: _seconds(model, tokens, getattr(kvpress, name), ratio, order["repeats"]) for name in order["presses"]
    }
    print(json.dumps({"version": kvpress.__version__ if hasattr(kvpress, "__version__") else "", "seconds": found}))


@torch.inference_mode()
def _seconds(model: Any, tokens: torch.Tensor, press: Any, ratio: float, repeats: int) -> list[float]:
    taken = []
    for _ in range(repeats + 1):
        chosen = press(compression_ratio=ratio)
        started = time.perf_counter()
        with chosen(model):
            model(tokens, logits_to_keep=1)
        if tokens.is_cuda:
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
    return taken[1:]


if __name__ == "__main__":
    main()
