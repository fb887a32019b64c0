"""What the ledger needs, counted while a batch runs: read from the cache's tensors, on their device."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from harness.engine.cache.slot_layer import SlotCache
from harness.engine.requests import Ledger, LedgerLimits, Request


class CacheStatistics:
    """Running maxima per row, (R,) int64 tensors that are written in place, so that a replayed pass counts too.

    No method but `ledgers` waits for the device.
    """

    _PER_ROW = ("peak", "kept", "surplus", "deficit", "slots_now", "slots_max", "is_nan", "coverage")

    def __init__(
        self,
        rows: Sequence[Request],
        chunks: Sequence[Sequence[tuple[int, int]]],
        layers: int,
        device: torch.device,
    ) -> None:
        def zeros(dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(len(rows), dtype=dtype, device=device)

        self.rows, self.chunks, self.layers = rows, chunks, layers
        self.peak, self.kept, self.surplus, self.deficit = zeros(), zeros(), zeros(), zeros()
        self.slots_now, self.slots_max = zeros(), zeros()
        self.is_nan = zeros(torch.bool)
        self.calls = [0] * len(rows)
        self.coverage = zeros(torch.float32)

    def merge_from(self, parts: Sequence[CacheStatistics], origins: Sequence[tuple[int, int]]) -> None:
        """Continue the counts of other batches: ``origins`` gives for each row its part and its row there."""
        starts = [0, *itertools.accumulate(len(part.rows) for part in parts)]
        index = torch.tensor([starts[part] + row for part, row in origins], device=self.peak.device)
        for name in self._PER_ROW:
            setattr(self, name, torch.cat([getattr(part, name) for part in parts])[index])
        self.calls = [parts[part].calls[row] for part, row in origins]

    def attended(self, seen: Tensor) -> None:
        """``seen`` (R, H): slots that the newest token of the chunk attends to, the chunk included."""
        torch.maximum(self.peak, seen.amax(-1), out=self.peak)

    def selected(self, kept: Tensor, targets: Tensor) -> None:
        """After a selection: slots ``kept`` (R, H) against the allowed ``targets`` (R, 1, 1)."""
        difference = kept - targets.squeeze(-1)
        torch.maximum(self.surplus, difference.amax(-1), out=self.surplus)
        torch.minimum(self.deficit, difference.amin(-1), out=self.deficit)

    def called(self, rows: slice, over: Sequence[bool], is_nan: Tensor, layers: int = 1) -> None:
        """A policy selected for these rows in so many layers. ``over`` (r): those beyond their budget; ``is_nan`` (r,)
        bool: those with a score that is not a number."""
        self.is_nan[rows] |= is_nan
        for row, binding in zip(range(rows.start, rows.stop), over, strict=True):
            self.calls[row] += binding * layers

    def evicted(self, held: Tensor) -> None:
        """After the eviction in one layer, or in all: the slots (R, H) that are in use now."""
        torch.maximum(self.kept, held.amax(-1), out=self.kept)
        self.slots_now += held.sum(-1)

    def close_step(self) -> None:
        """After all layers of a pass."""
        torch.maximum(self.slots_max, self.slots_now, out=self.slots_max)
        self.slots_now.zero_()

    def close_prompt(self, cache: SlotCache) -> None:
        """After the last prompt chunk: the share of prompt tokens that some layer and head still holds."""
        longest = max(len(row.tokens) for row in self.rows)
        seen = torch.zeros(len(self.rows), longest + 1, dtype=torch.bool, device=self.peak.device)
        for layer in cache.layers:
            positions = layer.slot_positions.flatten(1).long()  # (R, H·fill)
            seen.scatter_(1, torch.where(positions >= 0, positions, longest), True)
        lengths = torch.tensor([len(row.tokens) for row in self.rows], device=seen.device)
        self.coverage = seen[:, :longest].sum(-1) / lengths

    def ledgers(self, cache: SlotCache, lengths: Sequence[int], groups: Sequence[slice]) -> list[Ledger]:
        """One ledger per row, with the first limit it violates.

        ``lengths``: tokens each row was fed; ``groups``: the rows of each policy.
        """
        held = torch.stack([layer.held() for layer in cache.layers])  # (L, R, H)
        self.heads = held.shape[2]
        # Divided here and not on the device: a GPU multiplies by the reciprocal, and its means differ in the last bit.
        final = [total / (self.layers * self.heads) for total in held.sum((0, 2)).tolist()]
        slot_bytes = cache.layers[0].slot_bytes
        carried = cache.carried_bytes(groups)
        columns = zip(
            self.rows, self.chunks, lengths, final, self.calls,
            self.peak.tolist(), self.kept.tolist(), self.surplus.tolist(), self.deficit.tolist(),
            self.slots_max.tolist(), self.is_nan.tolist(), self.coverage.tolist(), carried, strict=True,
        )  # fmt: skip
        return [
            self._ledger(
                row, plan, fed, mean, calls, peak, kept, surplus + deficit, slots, nan, cover, more, slot_bytes
            )
            for row, plan, fed, mean, calls, peak, kept, surplus, deficit, slots, nan, cover, more in columns
        ]

    def _ledger(
        self, row: Request, plan: Sequence[tuple[int, int]], fed: int, mean: float, calls: int, peak: int, kept: int,
        surplus: int, slots: int, is_nan: bool, coverage: float, carried: int, slot_bytes: int,
    ) -> Ledger:  # fmt: skip
        limits = LedgerLimits(
            persists=row.capacity,
            widest_chunk=max(*(stop - start for start, stop in plan), len(row.question)),
            total_tokens=fed,
            must_evict=_must_evict(row, fed),
            uniform=row.policy.uniform,
            slots=row.capacity * self.layers * self.heads if row.policy.keeps_to_budget else None,
        )
        return Ledger(
            slots_requested=-1 if row.policy.is_dense else row.budget,
            slots_kept_max=kept,
            slots_kept_mean=mean,
            slots_peak=peak,
            kv_bytes=slots * slot_bytes,
            state_bytes=slots * sum(kind.nbytes for kind in row.policy.state.values()) + carried,
            tokens_evicted=fed - mean,
            coverage=coverage,
            policy_calls=calls,
            tokens_reread=row.tokens_reread,
            invalid=limits.first_violation(peak, kept, surplus, calls, fed - mean, is_nan, slots),
        )


def _must_evict(row: Request, fed: int) -> bool:
    """Whether a row that was fed so many tokens, its prompt included, cannot have kept all of them."""
    if row.policy.is_dense:
        return False
    in_prompt = row.policy.schedule.prompt != "never" and len(row.tokens) > row.budget
    return in_prompt or (row.policy.schedule.decode != "never" and fed > row.budget_at(fed) + row.policy.slack)
