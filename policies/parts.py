"""The parts a policy is composed of besides its scorer: what is protected, and when eviction happens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from policies.rounding import as_written
from policies.view import CacheView, PolicyError

PromptSchedule = Literal["each_block", "after_prompt", "never"]
DecodeSchedule = Literal["each_step", "never"]


@dataclass(frozen=True)
class Protect:
    """Slots that no score can evict.

    ``sinks``: the first tokens of the sequence. ``recent``: the newest tokens, an absolute number or, between 0 and
    1, a share of the budget, rounded down (KeyDiff Table 11; policies.md A-09).
    """

    sinks: int = 0  # tokens
    recent: float = 0  # tokens, or a share of the budget

    def __post_init__(self) -> None:
        if self.sinks < 0 or self.recent < 0:
            raise PolicyError(f"protect.sinks={self.sinks} and protect.recent={self.recent} must be 0 or more tokens.")
        if self.recent > 1 and self.recent != int(self.recent):
            raise PolicyError(f"protect.recent={self.recent} must be whole tokens (1, 2, …) or a share below 1.")

    def recent_slots(self, budget: int) -> int:
        """The protected recent window, in tokens, under a budget of so many slots."""
        return math.floor(as_written(self.recent) * budget) if self.recent < 1 else int(self.recent)

    def smallest_budget(self) -> int:
        """Slots needed to hold what is protected; a share of the budget always fits beside the sinks it leaves."""
        return self.sinks + (0 if self.recent < 1 else int(self.recent))

    def sink_mask(self, view: CacheView) -> Tensor:
        """(R, H, N) bool: positions 0 … sinks - 1."""
        return view.filled & (view.positions < self.sinks)

    def recent_mask(self, view: CacheView) -> Tensor:
        """(R, H, N) bool: the newest positions. They were never evicted, so places in the text count slots too."""
        window = view.per_row(tuple(self.recent_slots(budget) for budget in view.budgets))
        return view.filled & (view.positions >= view.seen - window)


@dataclass(frozen=True)
class Schedule:
    """When eviction happens: after each prompt block, once after the prompt, or never; and in decode.

    ``evict_first``: single tokens find their slot freed before they are attended (order "evict, append, attend" of
    policies.md 1.2, HashEvict Algorithm 1); otherwise they are appended and attended first, and evicted after.
    """

    prompt: PromptSchedule = "each_block"
    decode: DecodeSchedule = "each_step"
    evict_first: bool = False

    def __post_init__(self) -> None:
        if self.prompt not in get_args(PromptSchedule):
            raise PolicyError(f"schedule.prompt='{self.prompt}' is not one of {', '.join(get_args(PromptSchedule))}.")
        if self.decode not in get_args(DecodeSchedule):
            raise PolicyError(f"schedule.decode='{self.decode}' is not one of {', '.join(get_args(DecodeSchedule))}.")
