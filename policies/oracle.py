"""The oracle: hindsight as a baseline. No real policy can see the future; it shows how much a budget can still gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from policies.scorer import Stateless
from policies.view import CacheView, PolicyError


@dataclass(frozen=True)
class Oracle(Stateless):
    """Score = attention that a slot receives from all *later* queries of the dense run of the same prompt.

    Queries of later prompt chunks and of the dense run's greedy continuation count: averaged over the query group,
    summed over queries. This is optimal for the attention mass that each head keeps, not for the answer.
    """

    nonnegative: ClassVar[bool] = True

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N)."""
        if view.future is None:
            raise PolicyError("The oracle needs the dense run of its prompt: set policy.hindsight=true.")
        return view.future
