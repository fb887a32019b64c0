"""The attention statistics that a policy may read of a pass: computed on first use, for its rows only, and once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from harness.engine.attention.attend import column_sums, probabilities, strongest_head
from harness.engine.attention.mask import AttentionMask
from policies.view import AttentionRows

Computed = tuple[Hashable, str, AttentionRows]  # rows of the pass, name of the statistic, last query rows


@dataclass(frozen=True)
class AttentionStatistics:
    """`policies.view.Attention` over some rows of a pass. What is ``computed`` is shared.

    `policies.view.Attention` says what each statistic is; the docstrings here give shapes.
    """

    fetch: Callable[[], Tensor]  # the queries (R, H·G, m, D), put together on first use
    keys: Tensor  # (R, H, N, D)
    positions: Tensor  # (R, H, N) int32
    mask: AttentionMask
    query_positions: Tensor  # (R, m) int32, -1 = padding
    scaling: float
    softcap: float | None
    computed: dict[Computed, Tensor] = field(default_factory=dict)
    rows_of_pass: Hashable = None  # which rows of the pass these are
    sums: Tensor | None = None  # (R, H, G, N): what all rows of the chunk gave each slot, where it is known

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
        """(R, H, G, N)."""
        return column_sums(queries, self.keys, self._mask_of(asked), "all", self.scaling, self.softcap)

    def probabilities_from(self, queries: Tensor, asked: Tensor) -> Tensor:
        """(R, H, G, w, N)."""
        return probabilities(queries, self.keys, self._mask_of(asked), self.scaling, self.softcap)

    def received_within(self, distance: Tensor) -> Tensor:
        """(R, H, N). Probabilities stay those of the whole row: the distance selects what is counted."""
        near = self.query_positions[:, None, :, None] - self.positions.unsqueeze(2) < distance.unsqueeze(-1)
        return self._sums("all", near).mean(2)

    def strongest(self, last_rows: int) -> Tensor:
        """(R, N)."""

        def mean() -> Tensor:
            total = strongest_head(self.query, self.keys, self.mask, last_rows, self.scaling, self.softcap)
            return total / self.rows(last_rows).squeeze(-1).clamp(min=1)

        return self._once("strongest", last_rows, mean)

    def queries(self, last_rows: AttentionRows) -> Tensor:
        """(R, H·G, m, D), right-aligned."""
        return self.query if last_rows == "all" else self.query[:, :, -last_rows:]

    def rows(self, last_rows: AttentionRows) -> Tensor:
        """(R, 1, 1)."""
        counted = self.mask.valid if last_rows == "all" else self.mask.valid[:, -last_rows:]
        return counted.sum(-1).view(-1, 1, 1)

    def _mask_of(self, asked: Tensor) -> AttentionMask:
        """For earlier queries. A missing one (``asked`` = -1) attends to everything and counts for nothing."""
        present = (asked >= 0)[:, None, :, None]
        slots = self.positions.unsqueeze(2)
        visible = (slots >= 0) & (slots <= asked[:, None, :, None]) | ~present
        return AttentionMask(asked >= 0, self.positions[:, :1, :0] >= 0, explicit=visible)

    def _sums(self, last_rows: AttentionRows, counted: Tensor | None) -> Tensor:
        if self.sums is not None and counted is None and (last_rows == "all" or self.mask.chunk <= last_rows):
            return self.sums
        return column_sums(self.query, self.keys, self.mask, last_rows, self.scaling, self.softcap, counted)

    def _once(self, name: str, last_rows: AttentionRows, compute: Callable[[], Tensor]) -> Tensor:
        key = (self.rows_of_pass, name, last_rows)
        if key not in self.computed:
            self.computed[key] = compute()
        return self.computed[key]


@dataclass(frozen=True)
class ForkedStatistics:
    """The statistics of rows that fork off a shared pass: ``source`` (R,) says which shared row each of them was."""

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

    def probabilities_from(self, queries: Tensor, asked: Tensor) -> Tensor:
        """(R, H, G, w, N)."""
        return self._own().probabilities_from(queries, asked)

    def received_within(self, distance: Tensor) -> Tensor:
        """(R, H, N)."""
        return self._own().received_within(distance)

    def _own(self) -> AttentionStatistics:
        """Statistics over copied tensors, for what is not the same for all rows of a prompt."""
        shared, source = self.shared, self.source
        return AttentionStatistics(
            fetch=partial(shared.query.index_select, 0, source),
            keys=shared.keys[source],
            positions=shared.positions[source],
            mask=shared.mask.of(source),
            query_positions=shared.query_positions[source],
            scaling=shared.scaling,
            softcap=shared.softcap,
        )
