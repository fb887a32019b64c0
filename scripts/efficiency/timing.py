"""Cases that are compared, timed together: each prompt up to its first new token, then a token of each in turn.

Nothing can stop early. What else the machine does slows it for a second or two, and a step takes milliseconds: steps in
turn are slowed alike, and their ratio is of the cases.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import torch

from harness.config.compose import checked_config, compose_config
from harness.config.model import ModelSpec
from harness.config.policy_config import policy_from
from harness.engine.batch.evict import slots_enabled
from harness.engine.batch.token_filter import filter_prompts
from harness.engine.decode.logits import NextLogits
from harness.engine.decode.look_ahead import look_ahead
from harness.engine.model_runner import ModelRunner
from harness.engine.requests import Ledger, Prompting, Request
from policies import Policy
from scripts.bench.contenders import prompt
from scripts.efficiency.cases import CostCase

Case = TypeVar("Case")


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


def timed(runner: ModelRunner, cases: Sequence[CostCase], seed: int) -> list[Timing]:
    """Run each once. ``seed``: of their random tokens; a new prompt each time, so that nothing is found warm.

    All cases generate the same number of tokens. Every second turn is taken backwards, so that no case always comes
    after another.
    """
    with torch.inference_mode():
        runs = [TimedRun(runner, case, seed) for case in cases]
        with slots_enabled(runner.model):
            for turn in range(max(cases[0].new)):
                for run in in_turn(runs, turn):
                    run.step()
        return [run.timing() for run in runs]


def in_turn(cases: Sequence[Case], number: int) -> Sequence[Case]:
    """The order of turn ``number``: every second one backwards.

    Cases that are compared stand side by side in the list, and so do their times: whatever else the machine does slows
    both, and their ratio less than either.
    """
    return cases[::-1] if number % 2 else cases


class TimedRun:
    """One case whose prompt has been read, ready for its steps."""

    def __init__(self, runner: ModelRunner, case: CostCase, seed: int) -> None:
        self.runner, self.case, self.now = runner, case, _clock(runner.model.device)
        tokens = prompt(case.tokens, runner.config.vocab_size, seed)
        policy = policy_of(case.policy, case.setting, case.overrides)
        begun = self.now()
        (filtered,) = filter_prompts(runner.model, [Request(tokens, policy, case.budget, max(case.new) + 1)])
        with slots_enabled(runner.model):
            rows, prompting = [filtered.row], Prompting(case.regime, case.block)
            futures = look_ahead(runner, rows, prompting)  # KVzip repeats the prompt, which is a part of its price
            self.batch = runner.new_batch(rows, prompting)
            futures.attach_to(self.batch)
            collector = NextLogits.of(1)
            runner.read_prompts(self.batch, collector)
            self.token = int(collector.logits.argmax(-1))
        self.prefill = self.now() - begun
        self.steps: list[float] = []

    def step(self) -> None:
        """One new token."""
        begun = self.now()
        self.token = int(self.runner.step(self.batch, [[self.token]])[:, -1].argmax(-1))
        self.steps.append(self.now() - begun)

    def timing(self) -> Timing:
        """What was timed so far."""
        (ledger,) = self.runner.ledgers(self.batch)
        return Timing(self.prefill, {new: sum(self.steps[:new]) for new in self.case.new}, ledger)


def _clock(device: torch.device) -> Callable[[], float]:
    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return now
