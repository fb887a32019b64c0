"""Lines of the table: medians of every case over all rounds, with the smallest and largest time; counts, taken once."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from harness.engine.batch.evict import slots_enabled
from harness.engine.decode.logits import NextLogits
from harness.engine.model_runner import ModelRunner
from harness.engine.requests import Prompting, Request
from scripts.bench.clock import seconds
from scripts.bench.contenders import prompt
from scripts.efficiency.cases import CostCase, Counting, Scale, prompts, scoring, steps
from scripts.efficiency.counting import operations_of
from scripts.efficiency.timing import in_turn, policy_of, timed

Line = dict[str, Any]
BLOCKS = 8  # whose time is measured at once
STEPS = 16


def timed_lines(runner: ModelRunner, cases: Sequence[CostCase], repeats: int) -> list[Line]:
    """Seconds of prompts and of generation, and the bytes that the cache held."""
    timed(runner, [replace(cases[0], tokens=64, new=(4,))], seed=0)  # threads and caches
    found: dict[tuple[CostCase, str, int], list[float]] = defaultdict(list)
    for number in range(repeats):
        for compared in in_turn(compared_cases(cases), number):
            group = in_turn(compared, number)
            for case, timing in zip(group, timed(runner, group, seed=number), strict=True):
                found[case, "prefill_seconds", 0].append(timing.prefill)
                for new, taken in timing.decode.items():
                    found[case, "decode_seconds", new].append(taken)
                ledger = timing.ledger
                for name in ("kv_bytes", "state_bytes", "slots_kept_max", "slots_peak"):
                    found[case, name, max(case.new)].append(getattr(ledger, name))
    return [
        {
            "item": case.item, "policy": case.label, "prompt": case.regime,
            "block_size": case.block if case.regime == "blocked" else 0, "prompt_tokens": case.tokens,
            "new_tokens": new, "budget_slots": case.budget, "budget": case.share, **_summary(quantity, values),
        }
        for (case, quantity, new), values in found.items()
    ]  # fmt: skip


def compared_cases(cases: Sequence[CostCase]) -> list[list[CostCase]]:
    """Neighbours of one item and size, whose times are set beside each other; a case that runs again begins anew."""
    groups: list[list[CostCase]] = []
    for case in cases:
        last = groups[-1] if groups else []
        if (
            not last
            or case in last
            or (case.item, case.tokens, case.new) != (last[0].item, last[0].tokens, last[0].new)
        ):
            groups.append(last := [])
        last.append(case)
    return groups


def counted_lines(runner: ModelRunner, scale: Scale, repeats: int) -> list[Line]:
    """Operations of one block, of whole prompts and of one step, beside the seconds that they take."""
    lines = []
    blocks, whole, single = list(scoring(scale)), list(prompts(scale)), list(steps(scale))
    for each in blocks:
        one, two = (operations_of(_reading(runner, each, each.tokens + more * each.block)) for more in (0, 1))
        lines.append(_line(each, "block_operations", [two - one]))
    for each in whole:
        lines.append(_line(each, "prompt_operations", [operations_of(_reading(runner, each, each.tokens))]))
    for each in single:
        lines.append(_line(each, "step_operations", [operations_of(_stepping(runner, each, 1))]))
    taken: dict[tuple[Counting, str], list[float]] = defaultdict(list)
    device = runner.model.device
    for number in range(repeats):
        for each in in_turn(blocks, number):
            short, long = (
                seconds(_reading(runner, each, each.tokens + more * each.block), device) for more in (0, BLOCKS)
            )
            taken[each, "block_seconds"].append((long - short) / BLOCKS)
        for each in in_turn(whole, number):
            taken[each, "prompt_seconds"].append(seconds(_reading(runner, each, each.tokens), device))
        for each in in_turn(single, number):
            taken[each, "step_seconds"].append(seconds(_stepping(runner, each, STEPS), device) / STEPS)
    return lines + [_line(each, quantity, values) for (each, quantity), values in taken.items()]


def _reading(runner: ModelRunner, each: Counting, tokens: int) -> Callable[[], None]:
    row = Request(prompt(tokens, runner.config.vocab_size), policy_of(each.policy), each.budget, 1)

    def read() -> None:
        with torch.no_grad(), slots_enabled(runner.model):
            runner.read_prompts(runner.new_batch([row], Prompting("blocked", each.block)), NextLogits.of(1))

    return read


def _stepping(runner: ModelRunner, each: Counting, count: int) -> Callable[[], None]:
    """So many steps over a cache that is full: dense as long as the others are on average."""
    policy = policy_of(each.policy)
    tokens = each.tokens - count // 2 if policy.is_dense else each.tokens + each.block
    row = Request(prompt(tokens, runner.config.vocab_size), policy, each.budget, count + 1)
    with torch.no_grad(), slots_enabled(runner.model):
        batch = runner.new_batch([row], Prompting("blocked", each.block))
        runner.read_prompts(batch, NextLogits.of(1))

    def step() -> None:
        with torch.no_grad(), slots_enabled(runner.model):
            for number in range(count):
                runner.step(batch, [[1 + number]])

    return step


def _line(each: Counting, quantity: str, values: Sequence[float]) -> Line:
    return {
        "item": each.item, "policy": each.policy, "prompt": "blocked", "block_size": each.block,
        "prompt_tokens": each.tokens, "new_tokens": 0, "budget_slots": each.budget, "budget": "",
        **_summary(quantity, values),
    }  # fmt: skip


def _summary(quantity: str, values: Sequence[float]) -> Line:
    unit = {"seconds": "s", "operations": "FLOP", "bytes": "B"}.get(quantity.rpartition("_")[2], "slots")
    return {
        "quantity": quantity, "unit": unit, "value": float(statistics.median(values)), "low": float(min(values)),
        "high": float(max(values)), "repeats": len(values), "rounds": [float(value) for value in values],
    }  # fmt: skip
