"""How time grows with the prompt T, the budget N, the block B and the number of rows R, one of them at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from harness.engine.requests import Prompting, Request
from scripts.bench.clock import median, rounds
from scripts.bench.conditions import Bench, Line
from scripts.bench.contenders import as_runs_have_it, engine_as_runs_have_it, preset, prompt, read
from scripts.bench.shapes import build

BUDGETS = (256, 512, 1024, 2048)  # slots
BLOCKS = (32, 64, 128, 256)  # tokens
ROWS = (1, 2, 4)


def length(bench: Bench) -> list[Line]:
    """Time in the length of the prompt at a fixed budget: the exponent of a power law."""
    model = as_runs_have_it(build(bench.shape, bench.dtype, bench.device))
    engine = engine_as_runs_have_it(model)
    lengths = [4096, 8192, 16384, 32768, 65536]
    texts = {f"{n}": prompt(n, model.config.vocab_size) for n in lengths}
    name = bench.policies()[-1] if bench.only else "keydiff"
    taken = rounds(
        {n: partial(read, engine, [text], name, bench.budget, bench.block) for n, text in texts.items()},
        bench.repeats,
        bench.target,
    )
    times = [median(taken[f"{n}"]) for n in lengths]
    slope = float(np.polyfit(np.log(lengths), np.log(times), 1)[0])
    lines = [{"what": f"{name}, T = {n}", "seconds": t, "tokens/s": n / t} for n, t in zip(lengths, times, strict=True)]
    return [*lines, {"what": "exponent", "seconds": slope}]


def scaling(bench: Bench) -> list[Line]:
    """Tokens per second of one policy in half the usual prompt, from the given budget and block on."""
    model = as_runs_have_it(build(bench.shape, bench.dtype, bench.device))
    engine = engine_as_runs_have_it(model)
    name = bench.policies()[-1] if bench.only else "keydiff"
    tokens = bench.tokens // 2
    texts = [prompt(tokens, model.config.vocab_size, seed) for seed in range(max(ROWS))]
    policy = preset(name)

    def reading(budget: int, block: int, rows: int) -> Callable[[], object]:
        asked = [Request(text, policy, budget, 1) for text in texts[:rows]]
        return partial(engine.generate, asked, Prompting("blocked", block))

    cases = {(bench.budget, bench.block, 1)}
    cases |= {(budget, bench.block, 1) for budget in BUDGETS}
    cases |= {(bench.budget, block, 1) for block in BLOCKS}
    cases |= {(bench.budget, bench.block, rows) for rows in ROWS}
    taken = rounds({str(case): reading(*case) for case in sorted(cases)}, bench.repeats, bench.target)
    return [
        {"what": f"{name}, T = {tokens}, N = {budget}, B = {block}, {rows} row{'s' * (rows > 1)}",
         "seconds": median(taken[str((budget, block, rows))]),
         "tokens/s": rows * tokens / median(taken[str((budget, block, rows))])}
        for budget, block, rows in sorted(cases)
    ]  # fmt: skip
