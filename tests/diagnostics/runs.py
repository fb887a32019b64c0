"""Small runs to diagnose, and slow direct computations to compare with."""

from __future__ import annotations

from functools import cache

import torch
from engine.presets import policy as preset
from engine.tiny import prompt, tiny_model

from harness.analysis.diagnostics import diagnose
from harness.analysis.recording import Tape, TapeRecorder, follow
from harness.engine.requests import Prompting, Request
from policies import DENSE, Policy, build

LENGTH = 40
BLOCKS = Prompting("blocked", 8)


@cache
def model(kind: str = "llama"):
    return tiny_model(kind)


def policy(name: str) -> Policy:
    return {"window": build({"name": "window", "scorer": "recency"}), "dense": DENSE}.get(name) or preset(name)


def tape(name: str, budget: int, prompting: Prompting = BLOCKS, continuation=(), kind: str = "llama") -> Tape:
    """Everything recorded of one run."""
    chosen, tokens = policy(name), prompt(LENGTH)
    recorder = TapeRecorder(vectors=True, logits=True)
    row = Request(tokens, chosen, 0 if chosen.is_dense else budget)
    with torch.inference_mode():
        ledger = follow(model(kind), row, continuation, prompting, [recorder])
        return recorder.tape([*tokens, *continuation], len(tokens), ledger.invalid)


def frames(name: str, budget: int, *what: str, prompting: Prompting = BLOCKS, continuation=(), kind: str = "llama"):
    """The frames of `diagnose`."""
    return diagnose(model(kind), prompt(LENGTH), policy(name), budget, prompting, what, continuation)


def dense_probabilities(kind: str = "llama") -> list[torch.Tensor]:
    """Transformers' own attention, per layer (H·G, T, T)."""
    with torch.inference_mode():
        output = model(kind)(torch.tensor([prompt(LENGTH)]), output_attentions=True, use_cache=False)
    return [layer[0] for layer in output.attentions]
