"""What is checked and measured: each step yields lines of a table, as soon as it has them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

from harness.engine.attention import attend
from harness.engine.attention.mask import AttentionMask
from harness.engine.engine import Engine
from harness.engine.fast_layers import compile_layers
from policies.view import AttentionRows
from scripts.bench import loop
from scripts.bench.clock import median, ratio, rounds
from scripts.bench.conditions import Line
from scripts.bench.contenders import (
    ATTENTION_BASED,
    ATTENTION_FREE,
    decode_rounds,
    engine_as_runs_have_it,
    prompt,
    read,
)
from scripts.bench.peak import PeakCase, planned_and_peak
from scripts.bench.shapes import build
from scripts.gpu_check.check import Check

POLICIES = (*ATTENTION_FREE, *ATTENTION_BASED)
LAST_ROWS: tuple[AttentionRows, ...] = (32, "all")
COUNTS = re.compile(r"(\d+) (passed|failed|skipped|errors?)")


def tests(check: Check) -> Iterator[Line]:
    """The tests that need a GPU: each file in a process of its own, all at the same time."""
    how = ["-rfE", "-p", "no:cacheprovider", "--tb=short", "-m", check.marked]
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "pytest", *how, f"tests/engine/{name}"], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )
        for name in check.tests
    ]  # fmt: skip
    for name, run in zip(check.tests, runs, strict=True):
        said, _ = run.communicate()
        counts = {what: int(count) for count, what in COUNTS.findall("".join(said.strip().splitlines()[-1:]))}
        yield {"what": f"tests of {name}", "exit code": run.returncode, **counts}
        for line in said.splitlines():
            if line.startswith(("FAILED", "ERROR")):
                yield {"what": line}
        if run.returncode:
            print(said[-6000:], file=sys.stderr)


def layer(check: Check) -> Iterator[Line]:
    """What the machine can do, and the attention statistics of one layer."""
    yield from roofs(check)
    yield from kernels(check)


def roofs(check: Check) -> Iterator[Line]:
    """A square matrix product and a copy, as torch does them."""
    side = check.product
    like: dict[str, Any] = {"device": check.target, "dtype": check.dtype}
    left, right = torch.randn(side, side, **like), torch.randn(side, side, **like)
    taken = rounds({"product": lambda: [left @ right for _ in range(10)]}, check.repeats, check.target)["product"]
    yield {"what": f"product of {side} × {side}", "TFLOP/s": 10 * 2 * side**3 / median(taken) / 1e12}
    source = torch.randn(4 * side, side, **like)
    target = torch.empty_like(source)
    taken = rounds({"copy": lambda: [target.copy_(source) for _ in range(10)]}, check.repeats, check.target)["copy"]
    yield {"what": "copy, read and written", "TB/s": 10 * 2 * source.nbytes / median(taken) / 1e12}


def kernels(check: Check) -> Iterator[Line]:
    """Attention statistics of one layer: Triton against plain torch, their times and how far they are apart."""
    for count, heads, group, queries, slots, width in check.statistics:
        like: dict[str, Any] = {"device": check.target, "dtype": check.dtype}
        torch.manual_seed(0)
        query = torch.randn(count, heads * group, queries, width, **like)
        keys = torch.randn(count, heads, slots, width, **like)
        valid = torch.ones(count, queries, dtype=torch.bool, device=check.target)
        filled = torch.ones(count, 1, slots - queries, dtype=torch.bool, device=check.target)
        mask = AttentionMask(valid, filled, plain=True)
        for last in LAST_ROWS:
            sums = partial(attend.column_sums, query, keys, mask, last, width**-0.5)
            plain = partial(_without_kernels, sums)
            taken = rounds({"kernels": sums, "torch": plain}, check.repeats, check.target)
            apart = (sums() - plain()).norm() / plain().norm()
            yield {
                "what": f"sums of {last} rows: R {count}, H {heads}, G {group}, m {queries}, N {slots}, D {width}",
                "kernels, ms": 1000 * median(taken["kernels"]), "torch, ms": 1000 * median(taken["torch"]),
                "torch / kernels": ratio(taken["torch"], taken["kernels"]), "relative difference": float(apart),
            }  # fmt: skip


def _without_kernels(sums: Callable[[], torch.Tensor]) -> torch.Tensor:
    usual = attend.has_kernels
    attend.has_kernels = lambda device: False  # type: ignore[assignment]
    try:
        return sums()
    finally:
        attend.has_kernels = usual


def model(check: Check, shape: str) -> Iterator[Line]:
    """Prompts, decode steps and memory of a model of this shape with random weights."""
    built = build(shape, check.dtype, check.device)
    yield from prompts(check, built)
    yield from decode(check, built)
    if check.target.type == "cuda":  # elsewhere a process has one peak only, and runs compile nothing
        yield from memory(check, built)
        yield from compiled_prompts(check, built)


def prompts(check: Check, model: PreTrainedModel) -> Iterator[Line]:
    """Prompts in blocks: transformers' dense pass, the plain loop, and ours, computed and recorded."""
    for count in check.rows:
        texts = [prompt(check.tokens, model.config.vocab_size, seed) for seed in range(count)]
        tensor = torch.tensor(texts, device=check.target)
        contenders: dict[str, Callable[[], object]] = {
            "transformers, dense, one pass": partial(loop.dense_pass, model, tensor),
            "keydiff, computed": partial(read, Engine(model), texts, "keydiff", check.budget, check.block),
        }
        contenders |= {
            f"{name}, graphs": partial(read, engine_as_runs_have_it(model), texts, name, check.budget, check.block)
            for name in POLICIES
        }
        if count == 1:  # the loop takes one row
            contenders["loop (keydiff)"] = partial(loop.blocked, model, tensor, check.block, check.budget)
        yield from _rates(contenders, count, check)


def compiled_prompts(check: Check, model: PreTrainedModel) -> Iterator[Line]:
    """The same with the model's layers compiled, in place; with most rows only, because other shapes compile anew."""
    if reason := compile_layers(model):
        yield {"what": reason}
        return
    count = max(check.rows)
    texts = [prompt(check.tokens, model.config.vocab_size, seed) for seed in range(count)]
    name = "keydiff, graphs, compiled layers"
    reading = partial(read, engine_as_runs_have_it(model), texts, "keydiff", check.budget, check.block)
    yield from _rates({name: reading}, count, check)


def _rates(contenders: Mapping[str, Callable[[], object]], count: int, check: Check) -> Iterator[Line]:
    taken = rounds(contenders, check.repeats, check.target)
    tokens = count * check.tokens
    for name, times in taken.items():
        yield {"what": f"prompt: {name}", "R": count, "seconds": median(times), "tokens/s": tokens / median(times)}


def decode(check: Check, model: PreTrainedModel) -> Iterator[Line]:
    """Decode steps with an eviction in each, against a dense step at the same mean length, computed and recorded."""
    plain, recording = Engine(model), engine_as_runs_have_it(model)
    for count in check.decoded_rows:
        contenders: dict[str, tuple[Engine, str]] = {"dense": (plain, "dense")}
        contenders |= {f"{name}, computed": (plain, name) for name in ("keydiff", "h2o")}
        contenders |= {f"{name}, graphs": (recording, name) for name in POLICIES}
        taken = decode_rounds(contenders, count, check.budget, check.block, check.steps, check.repeats)
        for what, times in taken.items():
            step = median(times) / check.steps
            yield {
                "what": f"decode: {what}", "R": count, "ms/step": 1000 * step, "tokens/s": count / step,
                "of dense": ratio(taken["dense"], times),
            }  # fmt: skip


def memory(check: Check, model: PreTrainedModel) -> Iterator[Line]:
    """Peaks beside what the runner plans, gigabytes without the weights."""
    for name in ("keydiff", "h2o"):
        for count in check.rows:
            case = PeakCase(
                "", str(check.dtype)[6:], check.device, "blocked",
                check.tokens, check.block, (name,), (check.budget,), count,
            )  # fmt: skip
            found = planned_and_peak(case, model)
            yield {
                "what": f"memory: {name}", "R": count, "planned, GB": found["planned"] / 1e9,
                "peak, GB": found["peak"] / 1e9, "peak / planned": found["peak"] / found["planned"],
            }  # fmt: skip
