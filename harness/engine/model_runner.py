"""Runs passes of the model over batches: prompts chunk by chunk, questions, single steps of decode.

A pass calls the model once (`_compute`). In each layer its attention function, `harness.engine.batch.evict`, attends
over the batch's slots and lets the policies evict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel

from harness.engine.attention.model_parts import CacheRope, output_heads, rotation_of
from harness.engine.batch.batch import Batch
from harness.engine.batch.evict import NAME as SLOT_ATTENTION
from harness.engine.batch.feed import Feed, Watcher
from harness.engine.batch.group import Phase
from harness.engine.batch.simulated_blocks import Follower
from harness.engine.cuda_graphs import CudaGraphRunner
from harness.engine.decode.decode_batch import DecodeBatch, GreedySampler, RandomSampler, Sampler, TeacherForcing
from harness.engine.decode.logits import LogitsCollector, NextLogits
from harness.engine.requests import (
    SIMULATED,
    EngineError,
    Ledger,
    Prompting,
    Request,
    reason_against,
    refuse_unsupported,
)
from policies import PolicyError

OnFed = Callable[[int], None]  # called after each pass with the number of tokens fed


def unobserved(tokens: int) -> None:
    """An `OnFed` that does nothing with it."""


class ModelRunner:
    """Runs batches through one transformers model, which stays unchanged.

    Repeated passes are recorded and replayed by ``graphs``, if given (`harness.engine.cuda_graphs`). The caller enters
    `harness.engine.batch.evict.slots_enabled` around everything that runs a pass.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        eos_token_ids: Iterable[int] = (),
        watchers: Sequence[Watcher] = (),
        graphs: CudaGraphRunner | None = None,
    ) -> None:
        self.model = model.eval()
        self.config = model.config.get_text_config()
        self.stops = frozenset(eos_token_ids)
        self.watchers = watchers
        self.graphs = graphs

    def refuse(self, rows: Sequence[Request], prompting: Prompting) -> None:
        """Raise `EngineError` or `PolicyError` where the model or a policy does not work with the prompting."""
        refuse_unsupported(self.config, max((row.positions for row in rows), default=0))
        for row in rows:
            if reason := reason_against(row.policy, prompting):
                raise PolicyError(reason)

    def new_batch(self, rows: Sequence[Request], prompting: Prompting) -> Batch:
        """Rows that advance in lockstep from their first token; equal policies must be neighbours."""
        self.refuse(rows, prompting)
        kind = Follower if prompting.regime == SIMULATED else Batch
        return self.prepare(kind(rows, prompting, self.config.num_hidden_layers, self.model.device))

    def prepare(self, batch: Batch, readers: Sequence[Request] = ()) -> Batch:
        """The batch with the engine's watchers, and what its policies read of the model. ``readers``: whose policies
        these are; the batch's own rows if not given."""
        batch.watchers = self.watchers
        self._open_model(batch, readers or batch.rows)
        if batch.rows[0].policy.rope == "cache":
            widest = max(stop - start for plan in batch.chunks for start, stop in plan)
            longest = max(row.total_tokens for row in batch.rows)
            batch.rope = CacheRope(self.model, longest + widest)  # rows that wait are padded beyond the longest text
            if batch.leader is not None:
                batch.leader.rope = batch.rope
        return batch

    def read_prompts(self, batch: Batch, collector: LogitsCollector, observe: OnFed = unobserved) -> None:
        """Feed what is left of every prompt. Call `look_ahead` before, where a policy needs it."""
        for number in range(batch.passes, max(len(plan) for plan in batch.chunks)):
            if batch.leader is not None:
                self.read_chunk(batch.leader, number, NextLogits.of(len(batch.leader.rows)))
            self.read_chunk(batch, number, collector)
            observe(sum(batch.feed.widths))
        batch.leader = None
        batch.statistics.close_prompt(batch.cache)

    def read_chunk(self, batch: Batch, number: int, collector: LogitsCollector) -> None:
        """Feed each row's chunk with this number, if it has one, and hand on the logits that are wanted."""
        spans = [plan[number] if number < len(plan) else (0, 0) for plan in batch.chunks]
        pieces = [row.tokens[start:stop] for row, (start, stop) in zip(batch.rows, spans, strict=True)]
        feed = Feed.right_aligned(pieces, [start for start, _ in spans], batch.device)
        wanted = collector.wants(batch, number)
        logits = self._forward(batch, feed, "prompt", collector.logits_to_keep if wanted or batch.watchers else None)
        if wanted:
            collector.collect(batch, number, logits)

    def read_questions(self, batch: Batch, logits: Tensor, observe: OnFed = unobserved) -> Tensor:
        """Feed what rows hold back of their prompts (`Request.question`) now that the rest has been compressed.

        ``logits`` (R, vocabulary) follow the prompts; those that follow the questions are returned. Rows that feed
        single tokens wait until the others are through: what evicts before attention does so in passes of width 1.
        """
        plans = [row.question_pieces(batch.prompting) for row in batch.rows]
        by_token = [row.feeds_by_token(batch.prompting) for row in batch.rows]
        for turn in (False, True):
            own = [plan if single == turn else [] for plan, single in zip(plans, by_token, strict=True)]
            for number in range(max(map(len, own))):
                pieces = [plan[number] if number < len(plan) else () for plan in own]
                after = self.step(batch, pieces)[:, -1]
                fed = torch.tensor([len(piece) > 0 for piece in pieces], device=after.device)
                logits = torch.where(fed.unsqueeze(-1), after, logits)
                observe(sum(batch.feed.widths))
        return logits

    def decode_batch(self, batch: Batch, indices: Sequence[int], logits: Tensor) -> DecodeBatch:
        """A batch whose prompts are read, ready to generate or to feed its rows' continuations.

        ``indices``: of its rows among the caller's; ``logits`` (R, vocabulary): those that follow the prompts. The
        batch must not be used any more.
        """
        return DecodeBatch.start(self, batch, indices, logits, [self._sampler(row) for row in batch.rows])

    def step(self, batch: Batch, pieces: Sequence[Sequence[int]]) -> Tensor:
        """One decode pass in which every row feeds its piece of text. Returns logits (R, 1, vocabulary)."""
        return self._forward(batch, Feed.right_aligned(pieces, batch.lengths, batch.device), "decode", 1)

    def ledgers(self, batch: Batch) -> list[Ledger]:
        """The ledgers of a batch's rows as they stand."""
        return batch.statistics.ledgers(batch.cache, batch.lengths, [group.rows for group in batch.groups])

    def _sampler(self, row: Request) -> Sampler:
        if row.continuation:
            return TeacherForcing(row)
        kind = RandomSampler if row.temperature > 0 else GreedySampler
        return kind(row, self.stops | row.stops)

    def _open_model(self, batch: Batch, readers: Sequence[Request]) -> None:
        """Let policies read the rotary table and the output projection, where they ask for them."""
        foreseen = [row.policy.foresees for row in readers if row.policy.foresees is not None]
        if foreseen:
            longest = max(row.total_tokens for row in readers) + max(foreseen)
            names = ", ".join(sorted({row.policy.name for row in readers if row.policy.foresees is not None}))
            batch.rotation = rotation_of(
                self.model, longest, f"policy '{names}' cannot take the rotation off its queries: choose another policy"
            )
        if any(row.policy.reads_output for row in readers):
            batch.output_heads = partial(output_heads, self.model)

    def _forward(self, batch: Batch, feed: Feed, phase: Phase, logits_to_keep: int | None) -> Tensor:
        """One pass over all layers, evictions included. Returns logits (R, m or logits_to_keep, vocabulary).

        ``logits_to_keep=None`` skips the output head: (R, 0, vocabulary). Raises `EngineError` outside of
        `slots_enabled`, where the model would attend to everything and evict nothing.
        """
        if self.model.config._attn_implementation != SLOT_ATTENTION:
            raise EngineError("A pass was begun while the model attends by itself: enter slots_enabled(model) first.")
        batch.begin(feed, phase)
        compute = partial(self._compute, batch, logits_to_keep)
        logits = compute() if self.graphs is None else self.graphs.run(batch, logits_to_keep, compute)
        batch.finish()
        for watcher in batch.watchers:
            watcher.predicted(batch, logits)
        return logits

    def _compute(self, batch: Batch, logits_to_keep: int | None) -> Tensor:
        """The device's part of a pass: from the batch's feed and slots to logits and new slots."""
        inputs = {
            "input_ids": batch.feed.tokens,
            "position_ids": _rotary_positions(batch, batch.feed),
            "past_key_values": batch.cache,
            "use_cache": True,
            "batch": batch,  # for `slot_attention`
        }
        logits: Tensor
        if logits_to_keep is None:
            hidden = self.model.get_decoder()(**inputs).last_hidden_state
            logits = hidden.new_empty(len(hidden), 0, self.config.vocab_size)
        else:
            logits = self.model(**inputs, logits_to_keep=logits_to_keep).logits
        batch.evict_deferred()
        return logits


def _rotary_positions(batch: Batch, feed: Feed) -> Tensor:
    """(R, m): positions at which the model rotates; 0, the identity, where the engine rotates by cache positions."""
    positions = feed.positions.clamp(min=0).long()
    return positions if batch.rope is None else torch.zeros_like(positions)
