"""Decode of rows that end at different times: in waves, whose rows take places of finished ones, and batch by batch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from harness.engine.rows import Prompting, Row
from harness.engine.run import Engine
from scripts.bench.clock import median, ratio, rounds
from scripts.bench.conditions import Bench, Line
from scripts.bench.contenders import as_runs_have_it, engine_as_runs_have_it, preset, prompt
from scripts.bench.shapes import build

PLACES, SAMPLES = 8, 64
TYPICAL, LONGEST = 24, 160  # new tokens: lengths are spread as those of worked answers are, most short and a few long


def waves(bench: Bench) -> list[Line]:
    """Short prompts and answers of 1 to 160 tokens on eight places."""
    model = as_runs_have_it(build(bench.shape, bench.dtype, bench.device))
    engine, prompting = engine_as_runs_have_it(model), Prompting("blocked", 128)
    draw = random.Random(0)
    rows = [
        Row(
            prompt(200, model.config.vocab_size, seed), preset("keydiff"), 128,
            1 + min(LONGEST - 1, int(draw.expovariate(1 / TYPICAL))),
        )
        for seed in range(SAMPLES)
    ]  # fmt: skip

    def by_batch() -> None:
        for start in range(0, SAMPLES, PLACES):
            engine.generate(rows[start : start + PLACES], prompting)

    def in_waves() -> None:
        engine.generate(rows, prompting, waves=[PLACES // 2] * (2 * SAMPLES // PLACES))

    taken = rounds({"batch by batch": by_batch, "in waves": in_waves}, bench.repeats, bench.target)
    steps = {"batch by batch": _steps(engine, by_batch), "in waves": _steps(engine, in_waves)}
    return [
        {"what": name, "decode passes": f"{steps[name]}", "seconds": median(times),
         "share": ratio(times, taken["batch by batch"])}
        for name, times in taken.items()
    ]  # fmt: skip


def _steps(engine: Engine, work: Callable[[], object]) -> int:
    """Decode passes that some work takes."""
    taken, step = 0, engine.step

    def counted(*given: Any) -> Any:
        nonlocal taken
        taken += 1
        return step(*given)

    engine.step = counted  # type: ignore[method-assign]
    try:
        work()
    finally:
        del engine.step
    return taken
