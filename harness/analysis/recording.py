"""What one teacher-forced run leaves behind: the material that diagnostics are computed from."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.analysis.ranking_diagnostics import RankWatcher

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd
import torch
from torch import Tensor
from transformers import PreTrainedModel

from harness.engine.batch.batch import Batch
from harness.engine.batch.evict import slots_enabled
from harness.engine.batch.feed import Watcher
from harness.engine.batch.layer_pass import LayerPass
from harness.engine.decode.logits import TokenLosses
from harness.engine.engine import Engine
from harness.engine.requests import Ledger, Prompting, Request, RequestOutput
from policies import DENSE

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


# The watcher that records a `Tape`. It reads tensors and changes none.


class Taping:
    """Records the only row of a batch.

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
            stop = work.batch.lengths[0]
            start = stop - work.batch.feed.widths[0]
            self.passes.append(Pass(len(self.passes), work.batch.phase, start, stop))
        if work.index not in self.left_at:
            whole = (work.keys.shape[1], work.batch.fed.shape[1])
            for gone in (self.unseen_from, self.left_at):
                gone[work.index] = torch.full(whole, NEVER, dtype=torch.int32, device=work.keys.device)
        self._lost(self.unseen_from[work.index], work.positions[0].masked_fill(~work.mask.newest[0], -1))
        if self.vectors:
            chunk = work.query.shape[2]
            keys, values = (stored[0, :, -chunk:].clone() for stored in (work.keys, work.values))
            output = work.attend()[0].transpose(0, 1)
            self.chunks.setdefault(work.index, []).append((work.query[0].clone(), keys, values, output))
            self.scale[work.index] = (work.scaling, work.softcap)

    def evicted(self, work: LayerPass) -> None:
        """Which tokens are held now."""
        self._lost(self.left_at[work.index], work.layer.slot_positions[0])

    def predicted(self, batch: Batch, logits: Tensor) -> None:
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


# A run whose tokens are all given: the prompt in its regime, then tokens fed one by one as decode steps.


class Forced(Engine):
    """`Engine.perplexity` with a continuation: eviction in decode is measured on tokens that are the same for all.

    In the one-shot regime every prompt token is predicted before the only eviction; what eviction does shows in the
    continuation alone.
    """

    @torch.inference_mode()
    def watch(self, row: Request, continuation: Sequence[int], prompting: Prompting) -> Ledger:
        """Feed ``row.tokens``, then every token of ``continuation``; watchers see each pass and all its logits."""
        whole = replace(row, max_new_tokens=len(continuation))
        batch = self.new_batch([whole], prompting)
        with slots_enabled(self.model):
            self.look_ahead([whole], prompting).attach_to(batch)
            self.read_prompts(batch, TokenLosses.of(1))  # who listens for losses asks for all logits
            for token in continuation:
                self.step(batch, [[token]])
        (ledger,) = self.ledgers(batch)
        return ledger


def follow(
    model: PreTrainedModel, row: Request, continuation: Sequence[int], prompting: Prompting, watchers: Sequence[Watcher]
) -> Ledger:
    """One watched run. Raises `EngineError` or `PolicyError` before anything is computed."""
    return Forced(model, watchers=watchers).watch(row, continuation, prompting)


def dense_continuation(
    model: PreTrainedModel, tokens: Sequence[int], new_tokens: int, eos: Sequence[int], prompting: Prompting
) -> list[int]:
    """What the model says without eviction, at most ``new_tokens``: the tokens on which runs are compared."""
    if not new_tokens:
        return []
    (outcome,) = Engine(model, eos).generate([Request(tokens, DENSE, 0, new_tokens)], prompting)
    assert isinstance(outcome, RequestOutput)
    return outcome.tokens


# What a diagnostic is computed from, and what it has to ask for.


Need = Literal["vectors", "logits", "dense", "ranks"]


@dataclass(frozen=True)
class DiagnosticInput:
    """The policy's run, the dense run of the same tokens (the policy's own where nothing needed another), and the
    scores that were compared on the way."""

    run: Tape
    dense: Tape
    ranks: RankWatcher


@dataclass(frozen=True)
class Diagnostic:
    """A tidy frame from the evidence, the short table that a terminal shows of it, and what must be recorded."""

    frame: Callable[[DiagnosticInput], pd.DataFrame]
    summary: Callable[[pd.DataFrame], pd.DataFrame]
    needs: frozenset[Need] = frozenset()
