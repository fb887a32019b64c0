"""The engine: reads prompts in chunks, decodes with eviction in every step, and measures likelihoods under eviction.

A call goes through these steps:

1. `plan_sharing` groups the rows into batches; rows with the same prompt share its passes while they are dense, and
   all of them where only what follows differs.
2. `_read` feeds the prompts chunk by chunk (`_read_chunk`). Each pass calls the model once (`_compute`); its attention
   function, `harness.engine.batch.evict`, attends over the slots and evicts layer by layer.
3. `decode_batch` generates or feeds continuations, one token per row and pass.
4. The batch's statistics become one `Ledger` per row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from harness.engine.attention.model_parts import CacheRope, output_heads, rotation_of, slots_worth_a_pass
from harness.engine.batch.batch import Batch
from harness.engine.batch.evict import NAME as SLOT_ATTENTION
from harness.engine.batch.evict import slots_enabled
from harness.engine.batch.feed import Feed, Watcher
from harness.engine.batch.group import Phase
from harness.engine.batch.prefix_sharing import (
    PrefixBatch,
    PrefixGroup,
    SharingPlan,
    plan_sharing,
    readers_of_prompts,
)
from harness.engine.batch.simulated_blocks import Follower
from harness.engine.batch.token_filter import filter_prompts
from harness.engine.cuda_graphs import CudaGraphRunner
from harness.engine.decode.decode_batch import (
    ContinuousBatching,
    DecodeBatch,
    GreedySampler,
    RandomSampler,
    Sampler,
    TeacherForcing,
)
from harness.engine.decode.logits import LogitsCollector, NextLogits, TokenLosses
from harness.engine.decode.look_ahead import DenseFutures, look_ahead
from harness.engine.decode.merge import fork_batch
from harness.engine.requests import (
    SIMULATED,
    EngineError,
    Ledger,
    Prompting,
    Request,
    RequestOutput,
    reason_against,
    refuse_unsupported,
)
from policies import PolicyError

OnFed = Callable[[int], None]  # called after each pass with the number of tokens fed
Collector = TypeVar("Collector", bound=LogitsCollector)


class Observer:
    """Is told, while a call runs, what it has done. This one, the default, does nothing with it."""

    def fed(self, tokens: int) -> None:
        """A pass is over: tokens fed, those of a shared prompt counted for every row."""

    def ended(self, index: int, outcome: RequestOutput) -> None:
        """A row has its outcome. ``index``: of the row among the caller's. Each row is named once."""


UNOBSERVED = Observer()


class Engine:
    """Runs rows through one transformers model, which stays unchanged.

    Rows with the same prompt share the passes in which all of them are dense (`harness.engine.batch.prefix_sharing`),
    and rows that differ only in what follows the prompt share all of it, evictions included, unless there are watchers
    or ``share_prompts`` is false. Repeated passes are recorded and replayed by ``graphs``, if given
    (`harness.engine.cuda_graphs`). Neither changes results.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        eos_token_ids: Iterable[int] = (),
        watchers: Sequence[Watcher] = (),
        share_prompts: bool = True,
        graphs: CudaGraphRunner | None = None,
    ) -> None:
        self.model = model.eval()
        self.config = model.config.get_text_config()
        self.stops = frozenset(eos_token_ids)
        self.watchers = watchers
        self.share_prompts = share_prompts and not watchers
        self.graphs = graphs
        self.slots_worth_a_pass = slots_worth_a_pass(model)

    @torch.inference_mode()
    def generate(
        self,
        rows: Sequence[Request],
        prompting: Prompting,
        observer: Observer = UNOBSERVED,
        waves: Sequence[int] = (),
    ) -> list[RequestOutput]:
        """Continuation of every row, greedy or drawn, at most ``max_new_tokens`` each; the stop token is not returned.

        ``waves``: how many rows, in their order, read their prompts together; all of them if not given. Rows of a later
        wave take the places of finished ones, so that two waves at most are held at one time.

        Rows are independent: what a row yields does not depend on its company (up to the rounding of batched matrix
        products). Raises `EngineError` or `PolicyError` before anything is computed.
        """
        self._refuse(rows, prompting)
        return self._decode(rows, prompting, observer, waves)

    @torch.inference_mode()
    def follow(
        self,
        rows: Sequence[Request],
        prompting: Prompting,
        observer: Observer = UNOBSERVED,
        waves: Sequence[int] = (),
    ) -> list[RequestOutput]:
        """Likelihood of every row's ``continuation`` after its prompt, with its policy acting in between and in decode.

        `RequestOutput.nll` are nats per token of the continuation. Waves and errors as in `generate`.
        """
        if not all(row.continuation for row in rows):
            raise EngineError("A continuation has no tokens: its likelihood after the prompt is nothing to ask for.")
        rows = [replace(row, max_new_tokens=len(row.continuation)) for row in rows]
        self._refuse(rows, prompting)
        return self._decode(rows, prompting, observer, waves)

    def _decode(
        self, rows: Sequence[Request], prompting: Prompting, observer: Observer, waves: Sequence[int]
    ) -> list[RequestOutput]:
        filtered = filter_prompts(self.model, rows)
        outcomes: dict[int, RequestOutput] = {}
        batching = ContinuousBatching(observer.fed, self.slots_worth_a_pass)

        def keep(ended: Iterable[tuple[int, RequestOutput]]) -> None:
            for index, outcome in ended:
                outcomes[index] = filtered[index].with_both_passes(outcome)
                observer.ended(index, outcomes[index])

        with slots_enabled(self.model):
            for start, stop in itertools.pairwise([0, *itertools.accumulate(waves or [len(rows)])]):
                wave = [each.row for each in filtered[start:stop]]
                for indices, batch, logits in self._read_once(wave, prompting, observer.fed):
                    logits = self.read_questions(batch, logits, observer.fed)
                    keep(batching.add(self.decode_batch(batch, [start + index for index in indices], logits)))
                if stop < len(rows):
                    keep(batching.make_room())
            keep(batching.drain())
        return [outcomes[index] for index in range(len(rows))]

    @torch.inference_mode()
    def perplexity(
        self, rows: Sequence[Request], prompting: Prompting, observer: Observer = UNOBSERVED
    ) -> list[RequestOutput]:
        """Negative log likelihood, nats, of every prompt token but the first, each predicted under eviction.

        In the ``one_shot`` regime nothing is ever predicted after an eviction: the figure is dense.
        """
        self._refuse(rows, prompting)
        outcomes: dict[int, RequestOutput] = {}
        with slots_enabled(self.model):
            for indices, batch, collector in self._read(rows, prompting, observer.fed, TokenLosses.of):
                for index, ledger, nll in zip(indices, self.ledgers(batch), collector.nll(), strict=True):
                    outcomes[index] = RequestOutput(ledger, nll=nll)
                    observer.ended(index, outcomes[index])
        return [outcomes[index] for index in range(len(rows))]

    def new_batch(self, rows: Sequence[Request], prompting: Prompting) -> Batch:
        """Rows that advance in lockstep from their first token; equal policies must be neighbours."""
        self._refuse(rows, prompting)
        kind = Follower if prompting.regime == SIMULATED else Batch
        return self._prepared(kind(rows, prompting, self.config.num_hidden_layers, self.model.device))

    def read_prompts(self, batch: Batch, collector: LogitsCollector, observe: OnFed = UNOBSERVED.fed) -> None:
        """Feed what is left of every prompt. Call `look_ahead` before, where a policy needs it."""
        for number in range(batch.passes, max(len(plan) for plan in batch.chunks)):
            if batch.leader is not None:
                self._read_chunk(batch.leader, number, NextLogits.of(len(batch.leader.rows)))
            self._read_chunk(batch, number, collector)
            observe(sum(batch.feed.widths))
        batch.leader = None
        batch.statistics.close_prompt(batch.cache)

    def read_questions(self, batch: Batch, logits: Tensor, observe: OnFed = UNOBSERVED.fed) -> Tensor:
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

    def look_ahead(self, rows: Sequence[Request], prompting: Prompting) -> DenseFutures:
        """The recorded dense runs that the oracle's rows look ahead in; empty where no row needs any."""
        return look_ahead(self, rows, prompting)

    def _sampler(self, row: Request) -> Sampler:
        if row.continuation:
            return TeacherForcing(row)
        kind = RandomSampler if row.temperature > 0 else GreedySampler
        return kind(row, self.stops | row.stops)

    def _refuse(self, rows: Sequence[Request], prompting: Prompting) -> None:
        refuse_unsupported(self.config, max((row.positions for row in rows), default=0))
        for row in rows:
            if reason := reason_against(row.policy, prompting):
                raise PolicyError(reason)

    def _read(
        self,
        rows: Sequence[Request],
        prompting: Prompting,
        observe: OnFed,
        new_collector: Callable[[int], Collector],
    ) -> Iterator[tuple[Sequence[int], Batch, Collector]]:
        """Batches whose prompts are read, with the caller's indices of their rows and the collected logits.

        The caller enters `slots_enabled`: what a generator enters is left before the caller has decoded all rows.
        """
        plan = plan_sharing(rows, prompting) if self.share_prompts else SharingPlan.by_policy(rows)
        futures = self.look_ahead(rows, prompting)
        for indices in plan.alone:
            batch = self.new_batch([rows[index] for index in indices], prompting)
            futures.attach_to(batch)
            collector = new_collector(len(indices))
            self.read_prompts(batch, collector, observe)
            yield indices, batch, collector
        for group in plan.prefix_groups:
            yield from self._read_prefix_group(group, rows, prompting, futures, observe, new_collector)

    def _read_once(
        self, rows: Sequence[Request], prompting: Prompting, observe: OnFed
    ) -> Iterator[tuple[Sequence[int], Batch, Tensor]]:
        """As `_read`, with the logits (R, vocabulary) that follow the prompts. Rows that differ only in what follows
        the prompt go through it as one row."""
        readers = readers_of_prompts(rows) if self.share_prompts else [[index] for index in range(len(rows))]
        first = [rows[own[0]] for own in readers]
        for indices, batch, collector in self._read(first, prompting, observe, NextLogits.of):
            own = [readers[index] for index in indices]
            if all(len(each) == 1 for each in own):
                yield [index for (index,) in own], batch, collector.logits
                continue
            pairs = [(row, index) for row, each in enumerate(own) for index in each]
            forked, order = fork_batch(batch, [[rows[index] for index in each] for each in own])
            pairs = [pairs[number] for number in order]
            observe(sum(len(rows[index].tokens) for each in own for index in each[1:]))
            yield [index for _, index in pairs], forked, collector.logits[[row for row, _ in pairs]]

    def _read_prefix_group(
        self, group: PrefixGroup, rows: Sequence[Request], prompting: Prompting, futures: DenseFutures,
        observe: OnFed, new_collector: Callable[[int], Collector],
    ) -> Iterator[tuple[Sequence[int], Batch, Collector]]:  # fmt: skip
        layers, device = self.config.num_hidden_layers, self.model.device
        prompts = [rows[index] for index in group.prompts]
        prefix = PrefixBatch(prompts, group.chunks(rows, prompting), prompting, layers, device)
        readers = [rows[index] for branch in group.branches for index in branch.rows]
        self._prepared(prefix, readers)  # it carries the states of their policies
        for branch in group.branches:
            batch = self._prepared(Batch([rows[index] for index in branch.rows], prompting, layers, device))
            futures.attach_to(batch)
            prefix.add_fork(batch, branch.prompts, branch.after)
        collector = new_collector(len(prompts))
        for number in range(max(len(plan) for plan in prefix.chunks)):
            self._read_chunk(prefix, number, collector)
            observe(sum(prefix.feed.widths[prompt] for _, own in prefix.sharing_batches() for prompt in own))
            branches = [branch for branch in group.branches if branch.after == number]
            for fork, branch in zip(prefix.forks_after.pop(number, ()), branches, strict=True):
                fork.batch.finish()
                own_collector = collector.forked(branch.prompts)
                self.read_prompts(fork.batch, own_collector, observe)
                yield branch.rows, fork.batch, own_collector

    def _prepared(self, batch: Batch, readers: Sequence[Request] = ()) -> Batch:
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

    def _read_chunk(self, batch: Batch, number: int, collector: LogitsCollector) -> None:
        spans = [plan[number] if number < len(plan) else (0, 0) for plan in batch.chunks]
        pieces = [row.tokens[start:stop] for row, (start, stop) in zip(batch.rows, spans, strict=True)]
        feed = Feed.right_aligned(pieces, [start for start, _ in spans], batch.device)
        wanted = collector.wants(batch, number)
        logits = self._forward(batch, feed, "prompt", collector.logits_to_keep if wanted or batch.watchers else None)
        if wanted:
            collector.collect(batch, number, logits)

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
