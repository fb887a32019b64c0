"""Budgets as users write them, and the slots per layer and KV head that they grant a sample.

On synthetic rows the papers' slots become the share that they are of the published prompts (`scaled_budget`): 4k slots
hold 43 % of a LongBench prompt of 9,500 tokens, and the whole of a synthetic row of 369, so that nothing would be
evicted there. ``scale=mini`` runs such rows and sets ``budget_slots=scaled``. The tasks of the testbed itself have no
other length than their own, so their budgets stay as they are written.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

from omegaconf import OmegaConf

from harness.config.experiments import CONF
from harness.errors import UserError

ShareOf = Literal["prompt", "prompt_and_new", "longest", "median", "so_far"]
BudgetSlots: TypeAlias = Literal["as_written", "scaled"]


@dataclass(frozen=True)
class Budget:
    """Either a number of slots or a share of a length; a dense cell has neither.

    ``share_of`` is the paper's own denominator: the sample's prompt, prompt plus ``max_new_tokens``, the longest
    prompt of the task, or its median prompt plus half of ``max_new_tokens`` (policies.md A-24). ``so_far`` is no
    paper's: a share of the prompt that grows with every token after it, so that it stays the same share. "Of the task"
    means all of its prompts, however few of them are run: the slots of a sample must not depend on how many other
    samples were asked for, since rows of the same cell from several sweeps stand beside each other.
    """

    slots: int | None = None
    share: float | None = None
    share_of: ShareOf = "prompt"

    @staticmethod
    def parse(text: object, share_of: ShareOf = "prompt") -> Budget:
        """``256`` and ``4k`` are slots (k = 1024), ``25%`` and ``0.25`` shares. Raises `UserError`."""
        written = str(text).strip().lower()
        if match := re.fullmatch(r"(\d+(?:\.\d+)?)(k?)", written):
            number = float(match[1]) * (1024 if match[2] else 1)
            if number >= 1 and number == int(number):
                return Budget(slots=int(number))
            if 0 < number < 1 and not match[2]:
                return Budget(share=number, share_of=share_of)  # type: ignore[arg-type]
        if match := re.fullmatch(r"(\d+(?:\.\d+)?)%", written):
            share = float(match[1]) / 100
            if 0 < share <= 1:
                return Budget(share=share, share_of=share_of)  # type: ignore[arg-type]
        raise UserError(
            f"budget={text} is not a budget: give slots per layer and KV head (256, 4k) or a share of the prompt "
            "above 0 and up to 100% (25%, 0.25)."
        )

    @property
    def is_of_task(self) -> bool:
        """Whether it is a share of a length of the whole task, for which all prompts of the task must be known."""
        return self.share is not None and self.share_of in ("longest", "median")

    @property
    def so_far(self) -> float:
        """`Request.so_far`: the share of all tokens that were fed to which it grows, 0 where it stays."""
        return self.share if self.share is not None and self.share_of == "so_far" else 0.0

    def slots_for(self, prompt_tokens: int, new_tokens: int, task_prompts: Sequence[int]) -> int:
        """Slots for one sample. ``task_prompts``: the lengths of all prompts of the task, in tokens; they are looked at
        only if `is_of_task`.

        Shares are rounded to the nearest slot, never below 1; those of the median, as in HashEvict's released code,
        up to a multiple of 8.
        """
        if self.slots is not None:
            return self.slots
        share = self.share or 0
        if self.share_of == "median":
            return 8 * math.ceil(round(share * (statistics.median(task_prompts) + new_tokens / 2)) / 8)
        if self.share_of == "longest":
            base = max(task_prompts)
        else:
            base = prompt_tokens + (new_tokens if self.share_of == "prompt_and_new" else 0)
        return max(1, math.floor(share * base + 0.5))

    @property
    def label(self) -> str:
        """As tables show it: ``256``, ``25%``, ``full``."""
        if self.slots is not None:
            return str(self.slots)
        return "full" if self.share is None else f"{self.share * 100:g}%"


FULL = Budget()


@cache
def published_estimates() -> Mapping[str, Mapping[str, Any]]:
    """``conf/estimates.yaml``: lengths of tasks, shapes and paces of models."""
    found: dict[str, dict[str, Any]] = OmegaConf.to_container(OmegaConf.load(CONF / "estimates.yaml"))  # type: ignore[assignment]
    return found


def published_length(task: str) -> tuple[int, int] | None:
    """Samples and mean prompt tokens of a task by its label, or of its folder; None where nothing is known."""
    known = published_estimates()["lengths"]
    for name in (task, task.partition("/")[0], task.partition("/")[0].removesuffix("_e")):
        if name in known:
            samples, tokens = known[name]
            return samples, tokens
    return None


def scaled_budget(budget: Budget, setting: BudgetSlots, task: str, synthetic: bool) -> Budget:
    """The budget of a cell on this task. ``setting``: of ``budget_slots``. ``synthetic``: whether its rows are.

    The share is rounded to whole percent, below 10 % to tenths.
    """
    published = published_length(task)
    if setting == "as_written" or budget.slots is None or not synthetic or published is None:
        return budget
    share = budget.slots / published[1]
    return Budget(share=min(1.0, max(0.001, round(share, 2 if share >= 0.1 else 3))))
