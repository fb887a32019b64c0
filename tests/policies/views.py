"""Small cache views for worked examples: one row, one head, slots in order of position."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from policies import CacheView


class Received:
    """An attention whose column sums are given, whatever rows are asked for."""

    def __init__(self, sums: torch.Tensor | None) -> None:
        self.sums = sums

    def received(self, last_rows: object) -> torch.Tensor:
        assert self.sums is not None, "this example gives no attention"
        return self.sums


@dataclass(frozen=True)
class Given:
    """An attention made of what an example says: column sums (R, H, N), their band, queries (R, H·G, m, D), rows."""

    sums: torch.Tensor | None = None
    band: torch.Tensor | None = None
    asked: torch.Tensor | None = None
    chunk: int = 1

    def received(self, last_rows: object) -> torch.Tensor:
        return self.sums

    def received_within(self, distance: torch.Tensor) -> torch.Tensor:
        return self.band

    def queries(self, last_rows: object) -> torch.Tensor:
        return self.asked

    def rows(self, last_rows: object) -> torch.Tensor:
        return torch.tensor([[[self.chunk]]])


def view(
    slots: int = 0,
    *,
    keys: object = None,
    values: object = None,
    sums: object = None,
    state: object = None,
    positions: object = None,
    budget: int = 1,
    length: int | None = None,
) -> CacheView:
    """A (1, 1, n, D) view from nested lists; what an example does not mention is zero."""
    given = next((x for x in (positions, sums, state) if x is not None), None)
    n = slots or (len(given) if given is not None else len(keys if keys is not None else values))
    place = torch.tensor(list(range(n)) if positions is None else positions, dtype=torch.int32).view(1, 1, n)
    filled = int((place >= 0).sum())

    def four(numbers: object) -> torch.Tensor:
        return torch.zeros(1, 1, n, 2) if numbers is None else torch.tensor(numbers).float().view(1, 1, n, -1)

    def three(numbers: object) -> torch.Tensor | None:
        return None if numbers is None else torch.tensor(numbers).float().view(1, 1, n)

    return CacheView(
        keys=four(keys),
        values=four(values),
        positions=place,
        attention=Received(three(sums)),
        state={"received": three(state)},
        counts=(filled,),
        lengths=(int(place.max()) + 1 if length is None else length,),
        budgets=(budget,),
        is_full=filled == n,
    )


def kept(policy, shown: CacheView) -> list[int]:
    """Positions that the policy keeps, ascending."""
    mask, _ = policy.keep(shown)
    return sorted(shown.positions[mask].tolist())
