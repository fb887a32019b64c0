"""A policy is a composition: scorer × value correction × protection × schedule."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from policies.caote import Correction
from policies.parts import Protect, Schedule
from policies.scorer import AttentionRows, Scorer
from policies.selection import keep_best, priorities
from policies.view import CacheView, PolicyError


@dataclass(frozen=True)
class Policy:
    """One eviction policy. Frozen, without tensors: the engine holds all state.

    ``scorer = None`` is the dense policy, which never evicts and ignores the budget.
    """

    name: str
    scorer: Scorer | None = None
    correction: Correction | None = None
    protect: Protect = field(default_factory=Protect)
    schedule: Schedule = field(default_factory=Schedule)

    def __post_init__(self) -> None:
        if self.correction is not None and (self.scorer is None or not self.scorer.nonnegative):
            raise PolicyError(
                f"Policy '{self.name}' puts {type(self.correction).__name__} over a scorer whose scores can be "
                "negative; value corrections need an attention mass (h2o, tova or snapkv)."
            )

    @property
    def is_dense(self) -> bool:
        """Whether nothing is ever evicted."""
        return self.scorer is None or (self.schedule.prompt == "never" and self.schedule.decode == "never")

    @property
    def rows(self) -> AttentionRows:
        """Query rows per chunk whose attention the engine must deliver."""
        return 0 if self.scorer is None else self.scorer.rows

    @property
    def has_state(self) -> bool:
        """Whether one fp32 number per slot is carried."""
        return self.scorer is not None and self.scorer.has_state

    def check_budget(self, budget: int) -> None:
        """Raise `PolicyError` where the budget (slots per layer and KV head) cannot hold what is protected."""
        needed = max(1, self.protect.smallest_budget())
        if budget < needed:
            raise PolicyError(
                f"A budget of {budget} slots is smaller than the {needed} that policy '{self.name}' protects "
                f"(sinks={self.protect.sinks}, recent={self.protect.recent:g}): "
                f"raise the budget to at least {needed} or lower policy.protect."
            )

    def update(self, view: CacheView) -> Tensor:
        """(R, H, N) fp32: the scorer's state after this chunk."""
        assert self.scorer is not None
        return self.scorer.update(view)

    def scores(self, view: CacheView) -> Tensor:
        """(R, H, N) fp32, larger = keep, after the value correction."""
        assert self.scorer is not None
        base = self.scorer.score(view)
        return base if self.correction is None else self.correction.correct(base, view)

    def keep(self, view: CacheView) -> tuple[Tensor, Tensor]:
        """The slots that stay, (R, H, N) bool, and whether a row met a score that is not a number, (R,) bool."""
        scores = self.scores(view)
        broken = (torch.isnan(scores) & view.filled).flatten(1).any(-1)
        ranked = priorities(scores, view, self.protect.sink_mask(view), self.protect.recent_mask(view))
        return keep_best(ranked, view), broken


DENSE = Policy("dense", schedule=Schedule(prompt="never", decode="never"))
