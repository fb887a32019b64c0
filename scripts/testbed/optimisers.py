"""Muon for the matrices inside the layers, AdamW for embeddings and norms, and their state in a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM

from scripts.testbed.muon import Muon


class Optimisers:
    """Both together. ``config`` has the fields ``muon`` and ``adamw``: the keyword arguments of each.

    ``dtype``: in what Muon multiplies (`arithmetic.chosen`).
    """

    def __init__(self, model: LlamaForCausalLM, config: Mapping[str, Any], dtype: torch.dtype) -> None:
        inside = [p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name]
        chosen = {id(p) for p in inside}
        others = [p for p in model.parameters() if id(p) not in chosen]
        self.parameters = [*inside, *others]
        self.clip = config["clip"]
        self.members = [Muon(inside, **config["muon"], dtype=dtype), torch.optim.AdamW(others, **config["adamw"])]
        self.rates = [config["muon"]["lr"], config["adamw"]["lr"]]

    def step(self, factor: float) -> None:
        """One update with learning rates times ``factor``; gradients are clipped together and cleared."""
        torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        for member, rate in zip(self.members, self.rates, strict=True):
            for group in member.param_groups:
                group["lr"] = rate * factor
            member.step()
            member.zero_grad(set_to_none=True)


def save(file: Path, model: LlamaForCausalLM, optimisers: Optimisers, step: int) -> None:
    """Written beside and moved over, so that a kill leaves the old one or the new one."""
    state = {
        "step": step,
        "model": model.state_dict(),
        "optimisers": [member.state_dict() for member in optimisers.members],
    }
    beside = file.with_suffix(".part")
    torch.save(state, beside)
    os.replace(beside, file)  # noqa: PTH105 (same folder, atomic)


def load(file: Path, model: LlamaForCausalLM, optimisers: Optimisers) -> int:
    """Puts everything back; returns the step to go on with."""
    state = torch.load(file, map_location=model.device, weights_only=True)
    model.load_state_dict(state["model"])
    for member, saved in zip(optimisers.members, state["optimisers"], strict=True):
        member.load_state_dict(saved)
    return int(state["step"])
