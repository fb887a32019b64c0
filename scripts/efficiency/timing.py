"""One case, timed: the prompt up to its first new token, then a token a step with nothing that could stop early."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from harness.config.compose import checked_config, compose_config
from harness.config.model import ModelSpec
from harness.config.policy_config import policy_from
from harness.engine.batch.evict import slots_enabled
from harness.engine.batch.token_filter import filter_prompts
from harness.engine.decode.logits import NextLogits
from harness.engine.engine import Engine
from harness.engine.requests import Ledger, Prompting, Request
from policies import Policy
from scripts.bench.contenders import prompt
from scripts.efficiency.cases import CostCase


@dataclass(frozen=True)
class Timing:
    """Seconds: of the prompt, and of the first so many new tokens after it; and what the cache held in the end."""

    prefill: float
    decode: dict[int, float]
    ledger: Ledger


@cache
def policy_of(name: str, setting: str = "", overrides: tuple[str, ...] = ()) -> Policy:
    """The preset with one setting of its structure (``recovery=0.7``), if any is given, and these overrides."""
    settings = [f"policy.structure.{setting}"] if setting else []
    config = checked_config(compose_config([f"policy={name}", *settings, *overrides]))
    return policy_from(config["policy"], ModelSpec.parse(config["model"]), [])


def timed(engine: Engine, case: CostCase, seed: int) -> Timing:
    """Run it once. ``seed``: of the random tokens; a new prompt each time, so that nothing is found warm."""
    tokens = prompt(case.tokens, engine.config.vocab_size, seed)
    longest = max(case.new)
    asked = Request(tokens, policy_of(case.policy, case.setting, case.overrides), case.budget, longest + 1)
    now = _clock(engine.model.device)
    with torch.inference_mode():
        begun = now()
        (filtered,) = filter_prompts(engine.model, [asked])
        with slots_enabled(engine.model):
            rows, prompting = [filtered.row], Prompting(case.regime, case.block)
            futures = engine.look_ahead(rows, prompting)  # KVzip repeats the prompt, which is a part of its price
            batch = engine.new_batch(rows, prompting)
            futures.attach_to(batch)
            collector = NextLogits.of(1)
            engine.read_prompts(batch, collector)
            token = int(collector.logits.argmax(-1))
            read = now()
            marks: dict[int, float] = {}
            for step in range(1, longest + 1):
                token = int(engine.step(batch, [[token]])[:, -1].argmax(-1))
                if step in case.new:
                    marks[step] = now() - read
        (ledger,) = engine.ledgers(batch)
    return Timing(read - begun, marks, ledger)


def _clock(device: torch.device) -> Callable[[], float]:
    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return now
