"""Decode of rows that end at different times: by continuous batching in waves, and batch by batch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from torch import Tensor

from harness.engine.batch.batch import Batch
from harness.engine.engine import Engine
from harness.engine.model_runner import ModelRunner
from harness.engine.requests import Prompting, Request
from scripts.bench.clock import median, ratio, rounds
from scripts.bench.conditions import Bench, Line
from scripts.bench.contenders import as_runs_have_it, engine_as_runs_have_it, preset, prompt
from scripts.bench.shapes import build

PLACES, SAMPLES = 8, 64
TYPICAL, LONGEST = 24, 160  # new tokens: lengths are spread as those of worked answers are, most short and a few long


def waves(bench: Bench) -> list[Line]:
    """Short prompts and answers of 1 to 160 tokens, eight rows at a time."""
    model = as_runs_have_it(build(bench.shape, bench.dtype, bench.device))
    engine, prompting = engine_as_runs_have_it(model), Prompting("blocked", 128)
    draw = random.Random(0)
    rows = [
        Request(
            prompt(200, model.config.vocab_size, seed), preset("keydiff"), 128,
            1 + min(LONGEST - 1, int(draw.expovariate(1 / TYPICAL))),
        )
        for seed in range(SAMPLES)
    ]  # fmt: skip

    def by_batch(engine: Engine) -> None:
        for start in range(0, SAMPLES, PLACES):
            engine.generate(rows[start : start + PLACES], prompting)

    def in_waves(engine: Engine) -> None:
        engine.generate(rows, prompting, waves=[PLACES // 2] * (2 * SAMPLES // PLACES))

    ways = {"batch by batch": by_batch, "in waves": in_waves}
    taken = rounds({name: partial(way, engine) for name, way in ways.items()}, bench.repeats, bench.target)
    counting = {name: _Counting(model) for name in ways}
    for name, way in ways.items():
        engine = Engine(model)
        engine.runner = counting[name]
        way(engine)
    return [
        {"what": name, "decode passes": f"{counting[name].steps}", "seconds": median(times),
         "share": ratio(times, taken["batch by batch"])}
        for name, times in taken.items()
    ]  # fmt: skip


class _Counting(ModelRunner):
    """Counts its decode passes."""

    steps = 0

    def step(self, batch: Batch, pieces: Sequence[Sequence[int]]) -> Tensor:
        """Count the step and run it."""
        self.steps += 1
        return super().step(batch, pieces)
