"""The dense run of a prompt, recorded so that the oracle can look ahead."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

from harness.engine.cohort import Cohort
from harness.engine.layer_pass import LayerPass


class Recorder:
    """A watcher of a dense run: what each slot receives in each pass, by layer and place in the text.

    Memory: passes × L × R × H × (T + new) fp32 numbers; meant for short prompts and small models.
    """

    def __init__(self) -> None:
        self.passes: dict[int, list[Tensor]] = defaultdict(list)  # by layer: (R, H, T + new) per pass

    def attended(self, work: LayerPass) -> None:
        """One layer of one pass."""
        received = work.attention_of(slice(None)).received("all")
        length = work.cohort.fed.shape[1]
        place = torch.where(work.positions >= 0, work.positions, length).long()
        by_place = received.new_zeros(*received.shape[:2], length + 1)
        self.passes[work.index].append(by_place.scatter_(-1, place, received)[..., :-1])

    def settled(self, work: LayerPass) -> None:
        """Nothing is evicted in a dense run."""

    def predicted(self, cohort: Cohort, logits: Tensor) -> None:
        """Logits are not needed."""

    def future(self) -> dict[int, Tensor]:
        """By layer: (passes, R, H, T + new), what each place receives in all passes after this one."""
        return {layer: _after(torch.stack(passes)) for layer, passes in self.passes.items()}


def _after(passes: Tensor) -> Tensor:
    return passes.sum(0) - passes.cumsum(0)
