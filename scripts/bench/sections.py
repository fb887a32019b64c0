"""What is measured: each section is a function from a bench to lines of one table."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from scripts.bench import loop, roof
from scripts.bench.clock import median, ratio, rounds
from scripts.bench.conditions import Bench, Line
from scripts.bench.contenders import as_runs_have_it, decode_rounds, engine_as_runs_have_it, preset, prompt, read
from scripts.bench.peak import PeakCase, measured
from scripts.bench.scaling import length, scaling
from scripts.bench.shapes import build, work_of
from scripts.bench.waves import waves


def blocks(bench: Bench) -> list[Line]:
    """Block-wise prefill: tokens per second of all rows, against the loop, one dense pass, dense blocks and the roof.

    The loop, the dense pass and the model alone have transformers' layers, ours what a run makes of them. The roof
    takes the faster products of the two; beside it stands that of torch's own. The loop takes one row: of several there
    is none.
    """
    model = build(bench.shape, bench.dtype, bench.device)
    ours = as_runs_have_it(model)
    engine = engine_as_runs_have_it(ours)
    vocabulary = model.config.vocab_size
    texts = [prompt(bench.tokens, vocabulary, seed) for seed in range(bench.rows)]
    tensor = torch.tensor(texts, device=bench.target)
    passes = math.ceil(bench.tokens / bench.block)
    sample = max(1, passes // 8)  # the roof is steady: an eighth of the passes says as much
    contenders: dict[str, Callable[[], object]] = {
        "roof: plain": roof.products(model, bench.rows * bench.block, sample),
        "roof: as runs have it": roof.products(ours, bench.rows * bench.block, sample),
        "roof: attention": roof.attention(model, bench.rows, bench.block, bench.budget + bench.block, sample),
        "dense, one pass": partial(loop.dense_pass, model, tensor),
        "model alone": partial(loop.model_alone, model, tensor, bench.block, bench.budget + bench.block, passes),
    }
    if bench.rows == 1:
        contenders["loop (keydiff)"] = partial(loop.blocked, model, tensor, bench.block, bench.budget)
    for name in bench.policies():
        contenders[name] = partial(read, engine, texts, name, bench.budget, bench.block)
    taken = rounds(contenders, bench.repeats, bench.target)
    plain, packed, attending = (taken.pop(f"roof: {part}") for part in ("plain", "as runs have it", "attention"))
    fastest = min(plain, packed, key=median)
    torchs, ceiling = (
        [(a + b) * passes / sample for a, b in zip(linear, attending, strict=True)] for linear in (plain, fastest)
    )
    read_tokens = bench.rows * bench.tokens
    flops = work_of(model.config).linear * bench.rows * bench.block * sample
    peers = {
        "loop": "loop (keydiff)",
        "keydiff": "keydiff",
        "one pass": "dense, one pass",
        "model alone": "model alone",
    }
    lines = [
        {"what": name, "seconds": median(times), "tokens/s": read_tokens / median(times)}
        | {f"of {short}": ratio(taken[peer], times) for short, peer in peers.items() if peer in taken}
        | {"of torch's products": ratio(torchs, times), "of roof": ratio(ceiling, times)}
        for name, times in taken.items()
    ]
    for name, linear, whole in (("torch's products", plain, torchs), ("roof", fastest, ceiling)):
        rate = f"{name}: {flops / median(linear) / 1e9:.0f} GFLOP/s in the linear layers alone"
        lines.append({"what": rate, "seconds": median(whole), "tokens/s": read_tokens / median(whole)})
    return lines


def decode(bench: Bench) -> list[Line]:
    """Decode with an eviction in every step, against dense decode at the same length and over the whole prompt."""
    model = build(bench.shape, bench.dtype, bench.device)
    plain = Engine(model)
    ours = engine_as_runs_have_it(as_runs_have_it(model))
    steps = 64

    contenders = {"dense, transformers' layers": (plain, "dense")}
    contenders |= {name: (ours, name) for name in ("dense", *bench.policies())}
    taken = decode_rounds(contenders, bench.rows, bench.budget, bench.block, steps, bench.repeats)
    whole = f"transformers, {bench.tokens} tokens"
    taken |= rounds(
        {whole: partial(loop.dense_steps, model, bench.rows, bench.tokens, steps)}, bench.repeats, bench.target
    )
    return [
        {"what": name, "ms/step": 1000 * median(times) / steps, "tokens/s": bench.rows * steps / median(times),
         "of dense": ratio(taken["dense"], times), "of the whole prompt": ratio(taken[whole], times)}
        for name, times in taken.items()
    ]  # fmt: skip


SWEEP = ("window", "sink", "h2o", "tova", "snapkv", "keydiff", "keydiff/rawmean", "caote_snapkv")
SWEEP_ONCE = ("window", "sink", "snapkv/kvec", "pyramidkv", "ada_snapkv", "ada_pyramidkv", "kvec/testbed", "keydiff")


def sweep(bench: Bench) -> list[Line]:
    """Eight policies and four budgets as one run, against its 32 cells one by one with one sample at a time."""
    return [_sweep(bench, SWEEP, "blocked"), _sweep(bench, SWEEP_ONCE, "one_shot")]


def _sweep(bench: Bench, names: tuple[str, ...], regime: str) -> Line:
    model = as_runs_have_it(build("testbed", bench.dtype, bench.device))
    prompting = Prompting(regime, 32)  # type: ignore[arg-type]
    samples = [prompt(1024, model.config.vocab_size, seed) for seed in range(16)]
    rows = [
        Request(tokens, preset(name), budget, 12)
        for tokens in samples
        for name in names
        for budget in (64, 128, 256, 512)
    ]
    together, apart = engine_as_runs_have_it(model), Engine(model, share_prompts=False)
    one = rows[: len(rows) // len(samples)]  # the first sample under every cell stands for all sixteen

    def cells_one_by_one() -> None:
        for row in one:
            apart.generate([row], prompting)

    taken = rounds(
        {"together": lambda: together.generate(rows, prompting), "apart": cells_one_by_one},
        bench.repeats,
        bench.target,
    )
    whole = [spent * len(rows) / len(one) for spent in taken["apart"]]
    return {
        "what": f"{regime}: 8 policies × 4 budgets × 16 samples", "together, s": median(taken["together"]),
        "cells one by one, s": median(whole), "share": ratio(taken["together"], whole),
    }  # fmt: skip


def memory(bench: Bench) -> list[Line]:
    """Peaks of whole runs beside what is planned for them, megabytes without the weights."""
    dtype = str(bench.dtype)[6:]
    one = PeakCase(
        bench.shape, dtype, bench.device, "blocked", bench.tokens, bench.block, ("keydiff",), (bench.budget,), 1
    )
    cases = {
        f"{bench.shape}: keydiff, one row": one,
        f"{bench.shape}: h2o, one row": replace(one, policies=("h2o",)),
        f"{bench.shape}: keydiff, four times the tokens": replace(one, tokens=4 * bench.tokens),
        f"{bench.shape}: keydiff, eight rows": replace(one, samples=8),
        "testbed: blocks of 32": PeakCase(
            "testbed", dtype, bench.device, "blocked", 1024, 32, SWEEP, (64, 128, 256, 512), samples=4
        ),
        "testbed: one shot": PeakCase(
            "testbed", dtype, bench.device, "one_shot", 1024, 32, SWEEP_ONCE, (64, 128, 256, 512), samples=4
        ),
    }
    found = {name: measured(case) for name, case in cases.items()}
    return [
        {"what": name, "rows": f"{line['rows']:.0f}", "planned, MB": line["planned"] / 1e6,
         "peak, MB": line["peak"] / 1e6, "peak / planned": line["peak"] / line["planned"]}
        for name, line in found.items()
    ]  # fmt: skip


PRESSES = {
    "keydiff/kvpress": "KeyDiffPress",
    "l2/kvpress": "KnormPress",
    "snapkv/kvpress": "SnapKVPress",
    "tova/kvpress": "TOVAPress",
}


PEER_NEW = 64  # greedy tokens of each row


def peer(bench: Bench) -> list[Line]:
    """One shot beside kvpress, by the interpreter that ``--peer`` names: prompts, compression, 64 tokens."""
    if not bench.peer:
        return [{"what": "no --peer given: name the python of an environment that has kvpress"}]
    model = as_runs_have_it(build(bench.shape, bench.dtype, bench.device))
    engine = engine_as_runs_have_it(model)
    texts = [prompt(bench.tokens, model.config.vocab_size, seed) for seed in range(bench.rows)]

    def run(name: str) -> None:
        rows = [Request(tokens, preset(name), bench.budget, PEER_NEW) for tokens in texts]
        engine.generate(rows, Prompting("one_shot"))

    ours = rounds({name: partial(run, name) for name in PRESSES}, bench.repeats, bench.target)
    order = {
        "config": model.config.to_diff_dict(), "dtype": str(bench.dtype)[6:], "device": bench.device, "tokens": texts,
        "new": PEER_NEW, "budget": bench.budget, "presses": list(PRESSES.values()), "repeats": bench.repeats,
        "threads": torch.get_num_threads(),
    }  # fmt: skip
    script = Path(__file__).with_name("peer_kvpress.py")
    answer = subprocess.run([bench.peer, script, json.dumps(order)], check=True, stdout=subprocess.PIPE, text=True)
    theirs = json.loads(answer.stdout.splitlines()[-1])["seconds"]
    read_and_written = bench.rows * (bench.tokens + PEER_NEW)
    return [
        {"what": f"{name}, one shot", "ours, s": median(ours[name]), "kvpress, s": median(theirs[press]),
         "ours, tokens/s": read_and_written / median(ours[name]),
         "kvpress / ours": median(theirs[press]) / median(ours[name])}
        for name, press in PRESSES.items()
    ]  # fmt: skip


SECTIONS: dict[str, Callable[[Bench], list[Line]]] = {
    "blocks": blocks,
    "decode": decode,
    "sweep": sweep,
    "waves": waves,
    "length": length,
    "scaling": scaling,
    "memory": memory,
    "peer": peer,
}
