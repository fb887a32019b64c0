"""The watcher that records a `Tape`. It reads tensors and changes none."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.diagnostics.tape import NEVER, Pass, Tape, Vectors
from harness.engine.cohort import Cohort
from harness.engine.layer_pass import LayerPass


class Taping:
    """Records the only row of a cohort.

    Memory for T tokens: 8 bytes per token, layer and KV head; with ``vectors`` queries, keys, values and outputs of
    all layers in the model's dtype; with ``logits`` T × vocabulary fp32. Everything stays on the model's device.
    """

    def __init__(self, vectors: bool, logits: bool) -> None:
        self.vectors, self.wants_logits = vectors, logits
        self.passes: list[Pass] = []
        self.unseen_from: dict[int, Tensor] = {}
        self.left_at: dict[int, Tensor] = {}
        self.chunks: dict[int, list[tuple[Tensor, Tensor, Tensor, Tensor]]] = {}
        self.scale: dict[int, tuple[float, float | None]] = {}
        self.logits: list[Tensor] = []

    def attended(self, work: LayerPass) -> None:
        """Which tokens the newest query saw, and the vectors of the chunk."""
        if work.index == 0:
            stop = work.cohort.lengths[0]
            start = stop - work.cohort.feed.widths[0]
            self.passes.append(Pass(len(self.passes), work.cohort.phase, start, stop))
        if work.index not in self.left_at:
            whole = (work.keys.shape[1], work.cohort.fed.shape[1])
            for gone in (self.unseen_from, self.left_at):
                gone[work.index] = torch.full(whole, NEVER, dtype=torch.int32, device=work.keys.device)
        self._lost(self.unseen_from[work.index], work.positions[0].masked_fill(~work.sight.newest[0], -1))
        if self.vectors:
            chunk = work.query.shape[2]
            keys, values = (stored[0, :, -chunk:].clone() for stored in (work.keys, work.values))
            output = work.attend()[0].transpose(0, 1)
            self.chunks.setdefault(work.index, []).append((work.query[0].clone(), keys, values, output))
            self.scale[work.index] = (work.scaling, work.softcap)

    def settled(self, work: LayerPass) -> None:
        """Which tokens are held now."""
        self._lost(self.left_at[work.index], work.layer.slot_positions[0])

    def predicted(self, cohort: Cohort, logits: Tensor) -> None:
        """The logits of the pass."""
        if self.wants_logits:
            self.logits.append(logits[0].float())

    def tape(self, tokens: Sequence[int], prompt_tokens: int, invalid: str) -> Tape:
        """Everything together, after the run."""
        return Tape(
            tokens=tuple(tokens),
            prompt_tokens=prompt_tokens,
            passes=tuple(self.passes),
            unseen_from=_stacked(self.unseen_from),
            left_at=_stacked(self.left_at),
            vectors=tuple(self._vectors(layer) for layer in sorted(self.chunks)),
            logits=torch.cat(self.logits) if self.logits else torch.zeros(0, 0),
            invalid=invalid,
        )

    def _vectors(self, layer: int) -> Vectors:
        queries, keys, values, outputs = (torch.cat(parts, 1) for parts in zip(*self.chunks[layer], strict=True))
        return Vectors(queries, keys, values, outputs, *self.scale[layer])

    def _lost(self, gone: Tensor, present: Tensor) -> None:
        """Note this pass for tokens that were there and are no longer. ``present``: (H, n) positions, -1 = empty."""
        heads, length = gone.shape
        there = torch.zeros(heads, length + 1, dtype=torch.bool, device=gone.device)
        there.scatter_(1, torch.where(present >= 0, present, length).long(), True)
        fed = torch.arange(length, device=gone.device) < self.passes[-1].stop
        gone.masked_fill_(fed & ~there[:, :length] & (gone == NEVER), self.passes[-1].step)


def _stacked(by_layer: dict[int, Tensor]) -> Tensor:
    return torch.stack([by_layer[layer] for layer in sorted(by_layer)])
