"""H2O: heavy hitters by accumulated attention (Zhang et al. 2023; KeyDiff A.1; policies.md, 3.4).

``h2o/keydiff`` protects nothing, the only reading that explains the published scores near 2 (A-03);
``h2o/original`` protects the newest half of the budget; ``h2o/coldcompress`` takes the mean per observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from torch import Tensor

from policies.scorer import SlotState
from policies.view import CacheView, PolicyError

Accumulate = Literal["sum", "mean"]


@dataclass(frozen=True)
class H2O:
    """Score = attention that a slot received from all queries so far, averaged over the query group.

    ``sum`` neither decays nor normalises by age; ``mean`` divides by the number of observations, where a prompt chunk
    is one observation of the mean over the queries that saw the token, and every decode step is one more. What an
    evicted token had received is lost.
    """

    accumulate: Accumulate = "sum"
    nonnegative: ClassVar[bool] = True
    layers_as_rows: ClassVar[bool] = True
    same_state_for_all_budgets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.accumulate not in get_args(Accumulate):
            raise PolicyError(f"h2o accumulate='{self.accumulate}' is not one of sum, mean.")

    @property
    def state(self) -> Mapping[str, SlotState]:
        """The accumulator, and for means the number of observations."""
        accumulator = {"received": SlotState()}
        return accumulator if self.accumulate == "sum" else accumulator | {"observations": SlotState()}

    def update(self, view: CacheView) -> Mapping[str, Tensor]:
        """acc_new = acc_old + column sums of the chunk; new slots start from 0."""
        received = view.attention.received("all")
        if self.accumulate == "sum":
            return {"received": view.state["received"] + received}
        witnesses = (view.seen - view.positions).minimum(view.attention.rows("all")).clamp(min=1)
        observed = view.filled & (view.attention.rows("all") > 0)  # a row that feeds nothing observes nothing
        return {
            "received": view.state["received"] + received / witnesses,
            "observations": view.state["observations"] + observed,
        }

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N): the accumulator, or the mean."""
        if self.accumulate == "sum":
            return view.state["received"]
        return view.state["received"] / view.state["observations"].clamp(min=1)
