"""The engine: answers requests under eviction, and measures likelihoods under it.

A call goes through these steps:

1. `plan_sharing` groups the requests into batches; those with the same prompt share its passes while they are dense,
   and all of them where only what follows differs.
2. `ModelRunner` feeds each batch's prompts chunk by chunk, and evicts in every layer of every pass.
3. `DecodeBatch` generates or feeds continuations, one token per row and pass; rows of several batches join.
4. The batch's statistics become one `Ledger` per row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from harness.engine.attention.model_parts import slots_worth_a_pass
from harness.engine.batch.batch import Batch
from harness.engine.batch.evict import slots_enabled
from harness.engine.batch.feed import Watcher
from harness.engine.batch.prefix_sharing import (
    PrefixBatch,
    PrefixGroup,
    SharingPlan,
    plan_sharing,
    readers_of_prompts,
)
from harness.engine.batch.token_filter import filter_prompts
from harness.engine.cuda_graphs import CudaGraphRunner
from harness.engine.decode.decode_batch import ContinuousBatching
from harness.engine.decode.logits import LogitsCollector, NextLogits, TokenLosses
from harness.engine.decode.look_ahead import DenseFutures, look_ahead
from harness.engine.decode.merge import fork_batch
from harness.engine.model_runner import ModelRunner, OnFed
from harness.engine.requests import EngineError, Prompting, Request, RequestOutput

Collector = TypeVar("Collector", bound=LogitsCollector)


class Observer:
    """Is told, while a call runs, what it has done. This one, the default, does nothing with it."""

    def fed(self, tokens: int) -> None:
        """A pass is over: tokens fed, those of a shared prompt counted for every row."""

    def ended(self, index: int, outcome: RequestOutput) -> None:
        """A row has its outcome. ``index``: of the row among the caller's. Each row is named once."""


UNOBSERVED = Observer()


class Engine:
    """Answers requests, each with its policy and budget, by one transformers model, which stays unchanged.

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
        self.runner = ModelRunner(model, eos_token_ids, watchers, graphs)
        self.model = self.runner.model
        self.share_prompts = share_prompts and not watchers
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
        self.runner.refuse(rows, prompting)
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
        self.runner.refuse(rows, prompting)
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
                    logits = self.runner.read_questions(batch, logits, observer.fed)
                    keep(batching.add(self.runner.decode_batch(batch, [start + index for index in indices], logits)))
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
        self.runner.refuse(rows, prompting)
        outcomes: dict[int, RequestOutput] = {}
        with slots_enabled(self.model):
            for indices, batch, collector in self._read(rows, prompting, observer.fed, TokenLosses.of):
                for index, ledger, nll in zip(indices, self.runner.ledgers(batch), collector.nll(), strict=True):
                    outcomes[index] = RequestOutput(ledger, nll=nll)
                    observer.ended(index, outcomes[index])
        return [outcomes[index] for index in range(len(rows))]

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
        futures = look_ahead(self.runner, rows, prompting)
        for indices in plan.alone:
            batch = self.runner.new_batch([rows[index] for index in indices], prompting)
            futures.attach_to(batch)
            collector = new_collector(len(indices))
            self.runner.read_prompts(batch, collector, observe)
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
        layers, device = self.runner.config.num_hidden_layers, self.model.device
        prompts = [rows[index] for index in group.prompts]
        prefix = PrefixBatch(prompts, group.chunks(rows, prompting), prompting, layers, device)
        readers = [rows[index] for branch in group.branches for index in branch.rows]
        self.runner.prepare(prefix, readers)  # it carries the states of their policies
        for branch in group.branches:
            batch = self.runner.prepare(Batch([rows[index] for index in branch.rows], prompting, layers, device))
            futures.attach_to(batch)
            prefix.add_fork(batch, branch.prompts, branch.after)
        collector = new_collector(len(prompts))
        for number in range(max(len(plan) for plan in prefix.chunks)):
            self.runner.read_chunk(prefix, number, collector)
            observe(sum(prefix.feed.widths[prompt] for _, own in prefix.sharing_batches() for prompt in own))
            branches = [branch for branch in group.branches if branch.after == number]
            for fork, branch in zip(prefix.forks_after.pop(number, ()), branches, strict=True):
                fork.batch.finish()
                own_collector = collector.forked(branch.prompts)
                self.runner.read_prompts(fork.batch, own_collector, observe)
                yield branch.rows, fork.batch, own_collector
