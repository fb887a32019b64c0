"""The oracle: hindsight as a reference line. No policy can be run like this; it shows what a budget could still win."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from policies.scorer import Stateless
from policies.view import CacheView, PolicyError


@dataclass(frozen=True)
class Oracle(Stateless):
    """Score = attention that a slot receives from all *later* queries of the dense run of the same prompt.

    Later prompt chunks and the dense run's own greedy continuation count; averaged over the query group, summed. It is
    greedy hindsight: optimal for attention mass kept per head, not for the answer.
    """

    nonnegative: ClassVar[bool] = True

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N)."""
        if view.future is None:
            raise PolicyError("The oracle needs the dense run of its prompt: set policy.hindsight=true.")
        return view.future
