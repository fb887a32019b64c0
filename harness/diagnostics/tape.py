"""What one teacher-forced run leaves behind: the material that diagnostics are computed from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NEVER = torch.iinfo(torch.int32).max


@dataclass(frozen=True)
class Pass:
    """One forward pass: a prompt block or a decode step. ``start`` and ``stop`` are positions of its tokens."""

    step: int
    phase: str  # prompt | decode
    start: int
    stop: int


@dataclass(frozen=True)
class Vectors:
    """One layer's attention, every token at its place in the text, evicted ones included. T: tokens fed."""

    queries: Tensor  # (H·G, T, D), rotated
    keys: Tensor  # (H, T, D), rotated
    values: Tensor  # (H, T, D)
    outputs: Tensor  # (H·G, T, D), what attention gave under eviction, before the output projection
    scaling: float
    softcap: float | None

    @property
    def group(self) -> int:
        """G: query heads per KV head."""
        return self.queries.shape[0] // self.keys.shape[0]


@dataclass(frozen=True)
class Tape:
    """One row's run over ``tokens``: a prompt, and behind it tokens fed one by one.

    A token never returns once it has gone, so two numbers per layer, head and token say everything. ``unseen_from``:
    the first pass whose queries do not see the token. ``left_at``: the first pass after which it is no longer held.
    They differ by one where eviction comes after attention, and are equal where it comes before. `NEVER` stands for
    tokens that stay.
    """

    tokens: tuple[int, ...]
    prompt_tokens: int
    passes: tuple[Pass, ...]
    unseen_from: Tensor  # (L, H, T) int32
    left_at: Tensor  # (L, H, T) int32
    vectors: tuple[Vectors, ...]  # one per layer; none where they were not asked for
    logits: Tensor  # (T, vocabulary), fp32; (0, 0) where they were not asked for
    invalid: str = ""  # the sentence that says which promise of the ledger this run broke

    @property
    def last_of_prompt(self) -> Pass:
        """The pass after which the whole prompt has been read."""
        return max((p for p in self.passes if p.phase == "prompt"), key=lambda p: p.stop)

    @property
    def asked_in(self) -> Tensor:
        """(T,) int32: the pass that fed each token."""
        sizes = torch.tensor([p.stop - p.start for p in self.passes], device=self.left_at.device)
        steps = torch.arange(len(self.passes), dtype=torch.int32, device=self.left_at.device)
        return steps.repeat_interleave(sizes)

    def held_after(self, moment: Pass) -> Tensor:
        """(L, H, T) bool: the tokens that each head holds after a pass."""
        fed = torch.arange(self.left_at.shape[-1], device=self.left_at.device) < moment.stop
        return fed & (self.left_at > moment.step)

    def evicted_for(self, layer: int, head: int, queries: slice) -> Tensor:
        """(t, T) bool: earlier tokens that KV head ``head`` no longer shows to these query tokens."""
        asked_in = self.asked_in[queries].unsqueeze(-1)
        return self.unseen_from[layer, head] <= asked_in
