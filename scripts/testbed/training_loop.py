"""The training loop: from wherever the checkpoint stands to the end of the plan."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from scripts.testbed import arithmetic, network, optimisers, prefetch, probe, words
from scripts.testbed.curriculum import Curriculum
from scripts.testbed.weighted import FIRST
from tasks.mini.material import material

CHECKPOINT = "checkpoint.pt"
LOG = "log.jsonl"
EVERY = 20  # steps between lines of the log


def train(config: Mapping[str, Any], folder: Path, stop_after: int | None = None) -> tuple[LlamaForCausalLM, Path]:
    """The model after its plan, or after ``stop_after`` steps of this call, and its tokenizer's file.

    Resumes from the checkpoint in ``folder``. A killed and resumed run gives the same weights as one that was not,
    on the same machine with the same number of threads.
    """
    torch.set_num_threads(config["threads"])
    folder.mkdir(parents=True, exist_ok=True)
    plan = Curriculum.parse(config)
    if config["start_from"]:
        shutil.copy(Path(config["start_from"]) / words.FILE, folder / words.FILE)
    tokenizer = words.saved(folder, config["model"]["vocab_size"], material("train"), material("test"))
    model = network.build(config["model"], config["seed"], config["start_from"]).to(config["device"])
    optimiser = optimisers.Optimisers(model, config["optimisers"], arithmetic.chosen(config))
    file = folder / CHECKPOINT
    start = optimisers.load(file, model, optimiser) if file.exists() else 0
    end = plan.steps if stop_after is None else min(plan.steps, start + stop_after)
    log = Log(folder / LOG, plan, start)
    saved = time.monotonic()
    passes: dict[int, Any] = {}
    step = start
    for ids, weights in prefetch.batches(plan, folder / words.FILE, config["seed"], start):
        if step >= end:
            break
        stage, within = plan.at(step)
        length = plan.stages[stage].length
        if length not in passes:
            passes = {length: forward(model, length, config)}
        result = passes[length](torch.from_numpy(ids).to(model.device), torch.from_numpy(weights).to(model.device))
        result[0].backward()
        optimiser.step(plan.rate(step))
        step += 1
        log.add(step, length, *(value.item() for value in result))
        if time.monotonic() - saved > config["save_every"]:
            optimisers.save(file, model, optimiser, step)
            saved = time.monotonic()
        if step % config["probe_every"] == 0 or within + 1 == plan.stages[stage].steps:
            log.probed(step, length, _probed(model, tokenizer, length, config))
    optimisers.save(file, model, optimiser, step)
    return model, folder / words.FILE


def forward(model: LlamaForCausalLM, length: int, config: Mapping[str, Any]) -> Any:
    """A function of a batch, ids [batch, length + 1] and weights [batch, length]: `network.loss`, compiled or not."""
    turn, mixed = network.rotation(model, length), arithmetic.chosen(config) is torch.bfloat16

    def rest(x: Tensor, gold: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(config["device"], dtype=torch.bfloat16, enabled=mixed):
            return network.loss(model, x, gold, weights, turn, first=FIRST)

    fast = torch.compile(rest, dynamic=False) if config["compile"] else rest
    return lambda ids, weights: fast(network.embedded(model, ids[:, :-1]), ids[:, 1:], weights)


def _probed(
    model: LlamaForCausalLM, tokenizer: tokenizers.Tokenizer, length: int, config: Mapping[str, Any]
) -> dict[str, float]:
    mixed = arithmetic.chosen(config) is torch.bfloat16

    def logits(ids: Tensor) -> Tensor:
        ids = ids.to(model.device)
        with torch.autocast(config["device"], dtype=torch.bfloat16, enabled=mixed):
            return network.logits(model, network.embedded(model, ids), network.rotation(model, ids.shape[1])).cpu()

    return probe.accuracy(logits, tokenizer, length, config["probe_samples"])


class Log:
    """Lines on the screen, with the time left, and in a file for curves."""

    def __init__(self, file: Path, plan: Curriculum, start: int) -> None:
        self.file, self.plan, self.first = file, plan, plan.done(start)
        self.began = time.monotonic()
        self.recent: list[tuple[float, float]] = []

    def add(self, step: int, length: int, loss: float, right: float) -> None:
        """A step's loss and share of answers begun right; every `EVERY` steps a line."""
        self.recent.append((loss, right))
        if step % EVERY and step < self.plan.steps:
            return
        losses, rights = zip(*self.recent, strict=True)
        loss, right = sum(losses) / len(losses), sum(rights) / len(rights)
        self.recent.clear()
        done, elapsed = self.plan.done(step), time.monotonic() - self.began
        pace = (done - self.first) / elapsed  # tokens per second
        left = (self.plan.tokens - done) / pace / 60
        print(
            f"{done / 1e6:6.2f} of {self.plan.tokens / 1e6:.1f} M tokens, step {step}, length {length}: "
            f"loss {loss:.3f}, answers begun right {right:.3f}, {pace:.0f} tokens/s, {left:.0f} min left",
            flush=True,
        )
        self._write({"step": step, "tokens": done, "length": length, "loss": loss, "answers": right})

    def probed(self, step: int, length: int, found: Mapping[str, float]) -> None:
        """What `probe.accuracy` found after a step."""
        print("   held out: " + ", ".join(f"{name} {share:.2f}" for name, share in found.items()), flush=True)
        self._write({"step": step, "tokens": self.plan.done(step), "length": length, "held_out": dict(found)})

    def _write(self, entry: Mapping[str, Any]) -> None:
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(entry) + "\n")
