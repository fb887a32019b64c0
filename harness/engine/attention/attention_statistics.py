"""The statistics that a policy may ask of a pass: computed for its rows only, when asked, and once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from harness.engine.attention.attend import column_sums, strongest_head
from harness.engine.attention.mask import AttentionMask
from policies.view import AttentionRows


@dataclass(frozen=True)
class AttentionStatistics:
    """`policies.view.Attention` over some rows of a pass. Policies over the same rows share what is ``known``."""

    fetch: Callable[[], Tensor]  # the queries (R, H·G, m, D), put together where they are needed
    keys: Tensor  # (R, H, N, D)
    positions: Tensor  # (R, H, N) int32
    sight: AttentionMask
    asking: Tensor  # (R, m) int32, -1 = padding
    scaling: float
    softcap: float | None
    known: dict[Hashable, Tensor] = field(default_factory=dict)
    place: Hashable = None  # which rows of the pass these are
    given: Tensor | None = None  # (R, H, G, N): what a single token gave to each slot, where that is known already

    @property
    def query(self) -> Tensor:
        """(R, H·G, m, D)."""
        return self.fetch()

    def received(self, last_rows: AttentionRows) -> Tensor:
        """(R, H, N)."""
        return self._once("received", last_rows, lambda: self.received_by_head(last_rows).mean(2))

    def received_by_head(self, last_rows: AttentionRows) -> Tensor:
        """(R, H, G, N)."""
        return self._once("by head", last_rows, lambda: self._sums(last_rows, None))

    def received_from(self, queries: Tensor, asked: Tensor) -> Tensor:
        """(R, H, G, N). A place without a query attends to everything and counts for nothing."""
        present = (asked >= 0)[:, None, :, None]
        places = self.positions.unsqueeze(2)
        visible = (places >= 0) & (places <= asked[:, None, :, None]) | ~present
        sight = AttentionMask(asked >= 0, self.positions[:, :1, :0] >= 0, explicit=visible)
        return column_sums(queries, self.keys, sight, "all", self.scaling, self.softcap)

    def received_within(self, distance: Tensor) -> Tensor:
        """(R, H, N). Probabilities stay those of the whole row: the distance selects what is counted."""
        near = self.asking[:, None, :, None] - self.positions.unsqueeze(2) < distance.unsqueeze(-1)
        return self._sums("all", near).mean(2)

    def strongest(self, last_rows: int) -> Tensor:
        """(R, N)."""

        def mean() -> Tensor:
            total = strongest_head(self.query, self.keys, self.sight, last_rows, self.scaling, self.softcap)
            return total / self.rows(last_rows).squeeze(-1).clamp(min=1)

        return self._once("strongest", last_rows, mean)

    def queries(self, last_rows: AttentionRows) -> Tensor:
        """(R, H·G, m, D), right-aligned."""
        return self.query if last_rows == "all" else self.query[:, :, -last_rows:]

    def rows(self, last_rows: AttentionRows) -> Tensor:
        """(R, 1, 1)."""
        counted = self.sight.valid if last_rows == "all" else self.sight.valid[:, -last_rows:]
        return counted.sum(-1).view(-1, 1, 1)

    def _sums(self, last_rows: AttentionRows, counted: Tensor | None) -> Tensor:
        if self.given is not None and counted is None:
            return self.given
        return column_sums(self.query, self.keys, self.sight, last_rows, self.scaling, self.softcap, counted)

    def _once(self, name: str, last_rows: AttentionRows, compute: Callable[[], Tensor]) -> Tensor:
        key = (self.place, name, last_rows)
        if key not in self.known:
            self.known[key] = compute()
        return self.known[key]


@dataclass(frozen=True)
class ForkedStatistics:
    """The statistics of rows that leave a shared pass: ``source`` (R,) says which shared row each of them has been."""

    shared: AttentionStatistics
    source: Tensor

    def received(self, last_rows: AttentionRows) -> Tensor:
        """(R, H, N)."""
        return self.shared.received(last_rows)[self.source]

    def received_by_head(self, last_rows: AttentionRows) -> Tensor:
        """(R, H, G, N)."""
        return self.shared.received_by_head(last_rows)[self.source]

    def strongest(self, last_rows: int) -> Tensor:
        """(R, N)."""
        return self.shared.strongest(last_rows)[self.source]

    def queries(self, last_rows: AttentionRows) -> Tensor:
        """(R, H·G, m, D)."""
        return self.shared.queries(last_rows)[self.source]

    def rows(self, last_rows: AttentionRows) -> Tensor:
        """(R, 1, 1)."""
        return self.shared.rows(last_rows)[self.source]

    def received_from(self, queries: Tensor, asked: Tensor) -> Tensor:
        """(R, H, G, N)."""
        return self._own().received_from(queries, asked)

    def received_within(self, distance: Tensor) -> Tensor:
        """(R, H, N)."""
        return self._own().received_within(distance)

    def _own(self) -> AttentionStatistics:
        """With tensors of their own, for what depends on more than the pass."""
        shared, source = self.shared, self.source
        return AttentionStatistics(
            fetch=partial(shared.query.index_select, 0, source),
            keys=shared.keys[source],
            positions=shared.positions[source],
            sight=shared.sight.of(source),
            asking=shared.asking[source],
            scaling=shared.scaling,
            softcap=shared.softcap,
        )
