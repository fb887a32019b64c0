"""Budgets as users write them, and the slots per layer and KV head that they grant a sample."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.errors import UserError

ShareOf = Literal["prompt", "prompt_and_new", "longest", "median"]


@dataclass(frozen=True)
class Budget:
    """Either a number of slots or a share of a length; a dense cell has neither.

    ``share_of`` is the paper's own denominator: the sample's prompt, prompt plus ``max_new_tokens``, the longest
    prompt of the task, or its median prompt plus half of ``max_new_tokens`` (policies.md A-24). "Of the task" means all
    of its prompts, however few of them are run: the slots of a sample must not depend on how many other samples
    were asked for, since rows of the same cell from several sweeps stand beside each other.
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
