"""What is timed: our engine under presets, feeding random tokens."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache, partial

import torch
from transformers import PreTrainedModel

from harness.config.compose import checked_config, compose_config
from harness.config.model import ModelSpec
from harness.config.policy_config import policy_from
from harness.engine.batch.evict import slots_enabled
from harness.engine.cuda_graphs import CudaGraphRunner, on_gpu
from harness.engine.decode.logits import NextLogits
from harness.engine.engine import Engine
from harness.engine.fast_layers import pack_layers
from harness.engine.requests import Prompting, Request
from policies import Policy
from scripts.bench.clock import seconds

ATTENTION_FREE = ("window", "keydiff")
ATTENTION_BASED = ("tova", "snapkv", "caote_snapkv", "h2o")


@cache
def preset(name: str) -> Policy:
    """The policy that ``policy=<name>`` gives."""
    config = checked_config(compose_config([f"policy={name}"]))
    return policy_from(config["policy"], ModelSpec.parse(config["model"]), [])


def prompt(length: int, vocabulary: int, seed: int = 0) -> list[int]:
    """Random token ids."""
    draw = random.Random(f"{seed}/{length}")
    return [draw.randrange(1, vocabulary) for _ in range(length)]


def as_runs_have_it(model: PreTrainedModel) -> PreTrainedModel:
    """The model as a run prepares it: on a CPU a copy with packed layers, where they can be packed."""
    if model.device.type != "cpu":
        return model
    copy = deepcopy(model)
    return copy if pack_layers(copy) else model


def engine_as_runs_have_it(model: PreTrainedModel) -> Engine:
    """An engine over a model of `as_runs_have_it`; on a GPU steady passes are recorded as CUDA graphs.

    Why a pass cannot be recorded goes to the standard error.
    """
    tell = partial(print, file=sys.stderr)
    return Engine(model, graphs=CudaGraphRunner(on_gpu(), tell) if model.device.type == "cuda" else None)


def read(engine: Engine, texts: Sequence[list[int]], name: str, budget: int, block: int) -> None:
    """Prompts in blocks under one policy, together, up to their first new tokens."""
    engine.generate([Request(text, preset(name), budget, 1) for text in texts], Prompting("blocked", block))


def decode_rounds(
    contenders: Mapping[str, tuple[Engine, str]], count: int, budget: int, block: int, steps: int, repeats: int
) -> dict[str, list[float]]:
    """Seconds of so many decode steps of each engine and policy in each round, after one that is not counted.

    ``count`` rows each. A policy holds ``budget`` slots; a dense row grows, and holds as many on average.
    """
    taken: dict[str, list[float]] = {what: [] for what in contenders}
    for number in range(repeats + 1):
        for what, (engine, name) in contenders.items():
            held = budget - steps // 2 if name == "dense" else budget
            spent = seconds(_decoding(engine, name, count, held, block, steps), engine.model.device)
            if number:
                taken[what].append(spent)
    return taken


def _decoding(engine: Engine, name: str, count: int, budget: int, block: int, steps: int) -> Callable[[], object]:
    """Decode steps of rows that have read their prompts and hold ``budget`` slots. To be called once."""
    length = budget if name == "dense" else budget + block
    texts = [prompt(length, engine.model.config.vocab_size, seed) for seed in range(count)]
    rows = [Request(text, preset(name), budget, steps + 1) for text in texts]
    runner = engine.runner
    batch = runner.new_batch(rows, Prompting("blocked", block))
    with torch.inference_mode(), slots_enabled(engine.model):
        runner.read_prompts(batch, NextLogits.of(count))

    @torch.inference_mode()
    def run() -> None:
        with slots_enabled(engine.model):
            for step in range(steps):
                runner.step(batch, [[1 + step]] * count).argmax(-1).tolist()

    return run
