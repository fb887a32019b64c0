"""Teacher-forced runs and what is recorded of them: the input of every diagnostic.

`follow` runs a prompt and a given continuation; `TapeRecorder` watches the run and writes a `Tape`.
"""

from __future__ import annotations

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
from harness.engine.decode.look_ahead import look_ahead
from harness.engine.engine import Engine
from harness.engine.model_runner import ModelRunner
from harness.engine.requests import EngineError, Ledger, Prompting, Request
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
    """One layer's attention inputs and outputs, by position in the text, evicted tokens included. T: tokens fed."""

    queries: Tensor  # (H·G, T, D), rotated
    keys: Tensor  # (H, T, D), rotated
    values: Tensor  # (H, T, D)
    outputs: Tensor  # (H·G, T, D), attention outputs under eviction, before the output projection
    scaling: float
    softcap: float | None

    @property
    def group(self) -> int:
        """G: query heads per KV head."""
        return self.queries.shape[0] // self.keys.shape[0]


@dataclass(frozen=True)
class Tape:
    """The run of one request over ``tokens``: a prompt, then a continuation fed one token at a time.

    An evicted token never returns, so two numbers per layer, head and token describe the whole run. ``unseen_from``:
    the first pass whose queries do not see the token. ``left_at``: the first pass after which it is no longer held.
    They differ by one if eviction comes after attention, and are equal if it comes before. `NEVER`: tokens that stay.
    """

    tokens: tuple[int, ...]
    prompt_tokens: int
    passes: tuple[Pass, ...]
    unseen_from: Tensor  # (L, H, T) int32
    left_at: Tensor  # (L, H, T) int32
    vectors: tuple[Vectors, ...]  # one per layer; empty if not recorded
    logits: Tensor  # (T, vocabulary), fp32; (0, 0) if not recorded
    invalid: str = ""  # which invariant of the ledger this run broke, as a sentence

    @property
    def last_of_prompt(self) -> Pass:
        """The pass after which the whole prompt has been read."""
        return max((p for p in self.passes if p.phase == "prompt"), key=lambda p: p.stop)

    @property
    def fed_in(self) -> Tensor:
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
        fed_in = self.fed_in[queries].unsqueeze(-1)
        return self.unseen_from[layer, head] <= fed_in


class TapeRecorder:
    """A watcher that records a batch of one row as a `Tape`. It changes no tensor.

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
        self._note_lost(self.unseen_from[work.index], work.positions[0].masked_fill(~work.mask.newest[0], -1))
        if self.vectors:
            chunk = work.query.shape[2]
            keys, values = (stored[0, :, -chunk:].clone() for stored in (work.keys, work.values))
            output = work.attend()[0].transpose(0, 1)
            self.chunks.setdefault(work.index, []).append((work.query[0].clone(), keys, values, output))
            self.scale[work.index] = (work.scaling, work.softcap)

    def evicted(self, work: LayerPass) -> None:
        """Which tokens are held now."""
        self._note_lost(self.left_at[work.index], work.layer.slot_positions[0])

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

    def _note_lost(self, gone: Tensor, present: Tensor) -> None:
        """Write this pass where a token has disappeared. ``present``: (H, n) positions, -1 = empty."""
        heads, length = gone.shape
        here = torch.zeros(heads, length + 1, dtype=torch.bool, device=gone.device)
        here.scatter_(1, torch.where(present >= 0, present, length).long(), True)
        fed = torch.arange(length, device=gone.device) < self.passes[-1].stop
        gone.masked_fill_(fed & ~here[:, :length] & (gone == NEVER), self.passes[-1].step)


def _stacked(by_layer: dict[int, Tensor]) -> Tensor:
    return torch.stack([by_layer[layer] for layer in sorted(by_layer)])


@torch.inference_mode()
def follow(
    model: PreTrainedModel, row: Request, continuation: Sequence[int], prompting: Prompting, watchers: Sequence[Watcher]
) -> Ledger:
    """One teacher-forced run: ``row.tokens``, then ``continuation`` one token at a time, so that eviction during decode
    is measured on the same tokens for every policy. Watchers see each pass and all its logits.

    In the one-shot regime every prompt token is predicted before the only eviction, whose effect shows in the
    continuation alone. Raises `EngineError` or `PolicyError` before anything is computed.
    """
    if row.question:
        raise EngineError("Diagnostics follow prompts that are read whole: leave prompt_split=context out.")
    runner = ModelRunner(model, watchers=watchers)
    whole = replace(row, max_new_tokens=len(continuation))
    batch = runner.new_batch([whole], prompting)
    with slots_enabled(model):
        look_ahead(runner, [whole], prompting).attach_to(batch)
        runner.read_prompts(batch, TokenLosses.of(1))  # this collector asks for the logits of every pass
        for token in continuation:
            runner.step(batch, [[token]])
    (ledger,) = runner.ledgers(batch)
    return ledger


Need = Literal["vectors", "logits", "dense", "ranks"]
OF_THE_TAPE: frozenset[Need] = frozenset({"vectors", "logits"})


def recorded(
    model: PreTrainedModel,
    row: Request,
    continuation: Sequence[int],
    prompting: Prompting,
    needs: frozenset[Need],
    others: Sequence[Watcher] = (),
) -> Tape:
    """The tape of one teacher-forced run, seen by ``others`` too. Raises the errors of `follow`."""
    recorder = TapeRecorder(vectors="vectors" in needs, logits="logits" in needs)
    ledger = follow(model, row, continuation, prompting, [recorder, *others])
    return recorder.tape([*row.tokens, *continuation], len(row.tokens), ledger.invalid)


class DenseRuns:
    """A model's runs without eviction, with which policies are compared: those of one prompt are run once for all.

    Only the newest prompt's are kept, each as large as `TapeRecorder` says. ``eos``: tokens that end an answer.
    """

    def __init__(self, model: PreTrainedModel, eos: Sequence[int] = ()) -> None:
        self.model, self.eos = model, eos
        self._prompt: tuple[int, ...] = ()
        self._answers: dict[tuple[int, Prompting], list[int]] = {}
        self._tapes: dict[tuple[tuple[int, ...], Prompting, frozenset[Need]], Tape] = {}

    def continuation(self, tokens: Sequence[int], new_tokens: int, prompting: Prompting) -> list[int]:
        """The greedy answer, at most ``new_tokens``: the tokens on which runs are compared."""
        self._turn_to(tokens)
        asked = new_tokens, prompting
        if asked not in self._answers and new_tokens:
            (outcome,) = Engine(self.model, self.eos).generate([Request(tokens, DENSE, 0, new_tokens)], prompting)
            self._answers[asked] = outcome.tokens
        return self._answers.get(asked, [])

    def tape(
        self, tokens: Sequence[int], continuation: Sequence[int], prompting: Prompting, needs: frozenset[Need]
    ) -> Tape:
        """The prompt and this continuation, with what ``needs`` names recorded."""
        self._turn_to(tokens)
        asked = tuple(continuation), prompting, needs & OF_THE_TAPE
        if asked not in self._tapes:
            self._tapes[asked] = recorded(self.model, Request(tokens, DENSE), continuation, prompting, needs)
        return self._tapes[asked]

    def _turn_to(self, tokens: Sequence[int]) -> None:
        if self._prompt != (prompt := tuple(tokens)):
            self._prompt, self._answers, self._tapes = prompt, {}, {}


@dataclass(frozen=True)
class DiagnosticInput:
    """``dense``: the run of the same tokens without eviction, or ``run`` itself if no diagnostic needs it. ``ranks``:
    rows of `harness.analysis.ranking_diagnostics.RankWatcher`.
    """

    run: Tape
    dense: Tape
    ranks: Sequence[tuple[object, ...]]


@dataclass(frozen=True)
class Diagnostic:
    """How to compute its tidy frame, how to shorten that for a terminal, and what must be recorded."""

    frame: Callable[[DiagnosticInput], pd.DataFrame]
    summary: Callable[[pd.DataFrame], pd.DataFrame]
    needs: frozenset[Need] = frozenset()
