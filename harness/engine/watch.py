"""Watching a run: what diagnostics may look at, without touching it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from harness.engine.cohort import Cohort
    from harness.engine.layer_pass import LayerPass


class Watcher(Protocol):
    """Called in every layer of every pass. A watcher reads; it changes nothing."""

    def attended(self, work: LayerPass) -> None:
        """After attention and before eviction: slots and chunk, ``work.attention_of(group)`` for statistics."""
        ...

    def settled(self, work: LayerPass) -> None:
        """After eviction: ``work.layer.slot_positions`` says what is held now."""
        ...

    def predicted(self, cohort: Cohort, logits: Tensor) -> None:
        """After all layers: (R, 1 or m, vocabulary), right-aligned with ``cohort.feed``."""
        ...
