"""Blocks that are simulated beside one dense pass, which is how eviction is often evaluated.

A leader reads each prompt densely. Every row follows it: it holds what its policy would have kept after each block, but
the tokens of all blocks are computed as if nothing had ever been evicted, because in each layer the row takes its
leader's attention output. What a policy loses between this and ``blocked`` is what such an evaluation hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from harness.engine.batch.batch import Batch
from harness.engine.batch.layer_pass import LayerPass
from harness.engine.requests import Prompting, Request
from policies import DENSE


class Leader(Batch):
    """Dense rows, one for each prompt, which remember their attention outputs of the current pass."""

    @property
    def defers_eviction(self) -> bool:
        """Never: attention's output is remembered layer by layer."""
        return False

    def attend(self, work: LayerPass) -> Tensor:
        """(R, m, H·G, D), kept for the followers."""
        if work.index == 0:
            self.outputs: list[Tensor] = []
        self.outputs.append(super().attend(work))
        return self.outputs[-1]


class Follower(Batch):
    """Rows whose prompts are read after a leader's, pass by pass; they decode by themselves."""

    def __init__(self, rows: Sequence[Request], prompting: Prompting, layers: int, device: torch.device) -> None:
        super().__init__(rows, prompting, layers, device)
        keys = [(row.policy.logit_scale, tuple(row.tokens)) for row in rows]
        first = dict(zip(keys, rows, strict=True))
        prompts = sorted(first, key=lambda key: key[0])  # leaders under the same policy must be neighbours
        self.leader = Leader([_dense(first[key]) for key in prompts], prompting, layers, device)
        self.source = torch.tensor([prompts.index(key) for key in keys], device=device)

    @property
    def defers_eviction(self) -> bool:
        """Not while attention's output comes from the leader."""
        return super().defers_eviction and self.leader is None

    def attend(self, work: LayerPass) -> Tensor:
        """The leader's attention output while prompts are read."""
        return super().attend(work) if self.leader is None else self.leader.outputs[work.index][self.source]


def _dense(row: Request) -> Request:
    dense = replace(DENSE, rope=row.policy.rope, logit_scale=row.policy.logit_scale)
    return replace(row, policy=dense, budget=0, max_new_tokens=0)
