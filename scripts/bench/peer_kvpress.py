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
    """Prompts, compression at their end as kvpress does it, and greedy tokens; the first round does not count."""
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
    tokens = torch.tensor(order["tokens"], device=order["device"])  # (R, T)
    ratio = 1 - order["budget"] / tokens.shape[1]
    found: dict[str, list[float]] = {name: [] for name in order["presses"]}
    for _ in range(order["repeats"] + 1):
        for name, taken in found.items():
            press = getattr(kvpress, name)(compression_ratio=ratio)
            taken.append(_seconds(model, transformers.DynamicCache(), tokens, press, order["new"]))
    print(json.dumps({"seconds": {name: taken[1:] for name, taken in found.items()}}))


@torch.inference_mode()
def _seconds(model: Any, cache: Any, tokens: torch.Tensor, press: Any, new: int) -> float:
    """Of reading all rows and of ``new`` greedy tokens each, at the positions after the prompt as in its pipeline."""
    started = time.perf_counter()
    with press(model):
        logits = model(tokens, past_key_values=cache, logits_to_keep=1).logits
    for position in range(tokens.shape[1], tokens.shape[1] + new - 1):
        here = torch.full((len(tokens), 1), position, device=tokens.device)
        logits = model(logits[:, -1].argmax(-1, keepdim=True), past_key_values=cache, position_ids=here).logits
    logits[:, -1].argmax(-1).tolist()  # waits for a GPU
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
