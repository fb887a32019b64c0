"""H2O: heavy hitters by accumulated attention (Zhang et al. 2023; KeyDiff A.1; policies.md, 3.4).

``h2o/keydiff`` protects nothing, the only reading that explains the published scores near 2 (A-03);
``h2o/original`` protects the newest half of the budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from policies.scorer import AttentionRows, Stateless
from policies.view import CacheView, attention_of


@dataclass(frozen=True)
class H2O(Stateless):
    """Score = sum over all queries so far of the attention a slot received, averaged over the query group.

    No decay and no normalisation by age; an evicted token's sum is lost for ever.
    """

    rows: ClassVar[AttentionRows] = "all"
    has_state = True
    nonnegative = True

    def update(self, view: CacheView) -> Tensor:
        """(R, H, N): acc_new = acc_old + column sums of the chunk; new slots start from 0."""
        assert view.state is not None
        return view.state + attention_of(view)

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N): the accumulator."""
        assert view.state is not None
        return view.state
