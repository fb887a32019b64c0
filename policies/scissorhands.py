"""Scissorhands, in HashEvict's reading: tokens that are attended to often stay (Liu et al. 2023; policies.md 3.11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.scorer import SlotState
from policies.view import CacheView, PolicyError


@dataclass(frozen=True)
class Scissorhands:
    """Score = share of the last ``history`` observations in which a slot's attention reached the uniform level 1/n.

    A chunk is one observation of the mean attention from the queries that could see the token, and n the slots that
    persist after it. Bits lie in a ring whose index is the length of the text, the same for all slots, so a decode step
    overwrites the step ``history`` earlier. Every token starts with an empty record. The original drops half of the
    buffer at once; here each step evicts one.
    """

    history: int = 400  # observations
    nonnegative: ClassVar[bool] = True
    layers_as_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.history < 1:
            raise PolicyError(f"scissorhands history={self.history} remembers nothing: give at least 1 observation.")

    @property
    def state(self) -> dict[str, SlotState]:
        """The ring, packed to bits (50 bytes for 400), and how often the slot was observed."""
        return {"ring": SlotState((-(-self.history // 8),), torch.uint8), "observations": SlotState()}

    def update(self, view: CacheView) -> dict[str, Tensor]:
        """Write one bit at the shared index. A NaN cannot be a bit, so it goes on in the count."""
        witnesses = (view.seen - view.positions).minimum(view.attention.rows("all")).clamp(min=1)
        mean = view.attention.received("all") / witnesses
        persisting = view.per_row(tuple(map(min, view.counts, view.budgets)))
        idle = view.attention.rows("all") == 0  # a row without tokens in this chunk observes nothing
        index = tuple(length % self.history for length in view.lengths)
        byte = view.per_row(tuple(i // 8 for i in index)).expand_as(mean).unsqueeze(-1)
        mask = view.per_row(tuple(1 << i % 8 for i in index)).to(torch.uint8)
        old = view.state["ring"].gather(-1, byte).squeeze(-1)
        new = torch.where(mean >= 1 / persisting.float(), old | mask, old & ~mask)
        new = torch.where(idle, old, new)
        seen = view.state["observations"] + (view.filled & ~idle)
        return {
            "ring": view.state["ring"].scatter(-1, byte, new.unsqueeze(-1)),
            "observations": seen.masked_fill(mean.isnan(), torch.nan),
        }

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N), in [0, 1]."""
        set_bits = bits_set_in_bytes(view.state["ring"]).sum(-1)
        return set_bits / view.state["observations"].clamp(1, self.history)


def bits_set_in_bytes(octets: Tensor) -> Tensor:
    """How many bits are 1 in each uint8, counted in pairs and nibbles."""
    octets = octets - ((octets >> 1) & 0x55)
    octets = (octets & 0x33) + ((octets >> 2) & 0x33)
    return (octets + (octets >> 4)) & 0x0F
