"""What a scorer is: a pure function from one layer's cache to one number per slot, larger = keep."""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol

from torch import Tensor

from policies.view import CacheView

AttentionRows = int | Literal["all"]


class Scorer(Protocol):
    """A frozen dataclass. ``rows`` says how much attention it reads, so that the engine computes no more than that."""

    @property
    def rows(self) -> AttentionRows:
        """Last query rows of the chunk whose attention, averaged over the group, is summed per slot; 0 = none."""
        ...

    @property
    def has_state(self) -> bool:
        """Whether one fp32 number per slot is carried from chunk to chunk."""
        ...

    @property
    def nonnegative(self) -> bool:
        """Whether scores are a non-negative mass, as value corrections such as CAOTE require."""
        ...

    def update(self, view: CacheView) -> Tensor:
        """(R, H, N) fp32: the state after this chunk. Called for every chunk, only where ``has_state``."""
        ...

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N) fp32, larger = keep. Values at empty slots are ignored."""
        ...


class Stateless:
    """Defaults for scorers that read nothing but the current cache."""

    rows: ClassVar[AttentionRows] = 0
    has_state = False
    nonnegative = False

    def update(self, view: CacheView) -> Tensor:
        """Never called: there is no state."""
        raise NotImplementedError
