"""The driver: prompts in chunks, shared while rows are dense; greedy decode with eviction per step; perplexity."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from harness.engine.attention.cache_rope import CacheRope
from harness.engine.batch.batch import Batch
from harness.engine.batch.feed import Feed, Watcher
from harness.engine.batch.group import Phase
from harness.engine.batch.hook import slots_enabled
from harness.engine.batch.prefix_sharing import PrefixBatch, PrefixGroup, SharingPlan, plan_sharing
from harness.engine.batch.simulated_blocks import Follower
from harness.engine.batch.token_filter import filter_prompts
from harness.engine.cuda_graphs import CudaGraphRunner
from harness.engine.decode.decode_batch import ContinuousBatching, DecodeBatch, GreedySampler, Sampler, TeacherForcing
from harness.engine.decode.logits import LogitsCollector, NextLogits, TokenLosses
from harness.engine.decode.oracle import Hindsight, look_ahead
from harness.engine.requests.ledger import Ledger
from harness.engine.requests.request import SIMULATED, EngineError, Prompting, Request, RequestOutput
from harness.engine.requests.support import reason_against, refuse_unsupported
from policies import PolicyError

Observer = Callable[[int], None]  # told after each pass how many tokens were fed
Heard = TypeVar("Heard", bound=LogitsCollector)


def _ignore(tokens: int) -> None:
    """The default observer."""


class Engine:
    """Runs rows through one transformers model, which stays unchanged.

    Rows with the same prompt share the passes in which all of them are dense (`harness.engine.batch.prefix_sharing`), unless
    somebody watches or ``share_prompts`` is false; passes that repeat are recorded where ``repeats`` says how
    (`harness.engine.cuda_graphs`). What comes out is the same.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        eos_token_ids: Iterable[int] = (),
        watchers: Sequence[Watcher] = (),
        share_prompts: bool = True,
        repeats: CudaGraphRunner | None = None,
    ) -> None:
        self.model = model.eval()
        self.config = model.config.get_text_config()
        self.stops = frozenset(eos_token_ids)
        self.watchers = watchers
        self.share_prompts = share_prompts and not watchers
        self.repeats = repeats

    @torch.inference_mode()
    def generate(
        self, rows: Sequence[Request], prompting: Prompting, observe: Observer = _ignore, waves: Sequence[int] = ()
    ) -> list[RequestOutput]:
        """Greedy continuation of every row, at most ``max_new_tokens`` each; the stop token is not returned.

        ``waves``: how many rows, in their order, read their prompts together; all of them if not given. Rows of a later
        wave take the places of finished ones, so that those of two waves at most are held at one time.

        Rows are independent: what a row yields does not depend on its company (up to the rounding of batched matrix
        products). Raises `EngineError` or `PolicyError` before anything is computed.
        """
        self._refuse(rows, prompting)
        return self._spoken(rows, prompting, observe, waves)

    @torch.inference_mode()
    def follow(
        self, rows: Sequence[Request], prompting: Prompting, observe: Observer = _ignore, waves: Sequence[int] = ()
    ) -> list[RequestOutput]:
        """Likelihood of every row's ``continuation`` after its prompt, with its policy acting in between and in decode.

        `Outcome.nll` are nats per token of the continuation. Waves and errors as in `generate`.
        """
        if not all(row.continuation for row in rows):
            raise EngineError("A continuation has no tokens: its likelihood after the prompt is nothing to ask for.")
        rows = [replace(row, max_new_tokens=len(row.continuation)) for row in rows]
        self._refuse(rows, prompting)
        return self._spoken(rows, prompting, observe, waves)

    def _spoken(
        self, rows: Sequence[Request], prompting: Prompting, observe: Observer, waves: Sequence[int]
    ) -> list[RequestOutput]:
        filtered = filter_prompts(self.model, rows)
        outcomes: dict[int, RequestOutput] = {}
        places = ContinuousBatching(observe)
        for start, stop in itertools.pairwise([0, *itertools.accumulate(waves or [len(rows)])]):
            wave = [each.row for each in filtered[start:stop]]
            for indices, cohort, heard in self._read(wave, prompting, observe, NextLogits.of):
                talk = self.talk(cohort, [start + index for index in indices], heard.following)
                outcomes |= dict(places.take(talk, is_last=stop == len(rows)))
        outcomes |= dict(places.clear())
        return [each.charged(outcomes[index]) for index, each in enumerate(filtered)]

    @torch.inference_mode()
    def perplexity(
        self, rows: Sequence[Request], prompting: Prompting, observe: Observer = _ignore
    ) -> list[RequestOutput]:
        """Negative log likelihood, nats, of every prompt token but the first, each predicted under eviction.

        In the ``one_shot`` regime nothing is ever predicted after an eviction: the figure is dense.
        """
        self._refuse(rows, prompting)
        outcomes: dict[int, RequestOutput] = {}
        for indices, cohort, heard in self._read(rows, prompting, observe, TokenLosses.of):
            for index, ledger, nll in zip(indices, self.ledgers(cohort), heard.nll(), strict=True):
                outcomes[index] = RequestOutput(ledger, nll=nll)
        return [outcomes[index] for index in range(len(rows))]

    def cohort(self, rows: Sequence[Request], prompting: Prompting) -> Batch:
        """Rows that advance in lockstep from their first token; equal policies must be neighbours."""
        self._refuse(rows, prompting)
        kind = Follower if prompting.regime == SIMULATED else Batch
        return self._watched(kind(rows, prompting, self.config.num_hidden_layers, self.model.device))

    def read_prompts(self, cohort: Batch, heard: LogitsCollector, observe: Observer = _ignore) -> None:
        """Feed what is left of every prompt. Call `look_ahead` before, where a policy needs it."""
        for number in range(cohort.passes, max(len(plan) for plan in cohort.chunks)):
            if cohort.leader is not None:
                self._read_chunk(cohort.leader, number, NextLogits.of(len(cohort.leader.rows)))
            self._read_chunk(cohort, number, heard)
            observe(sum(cohort.feed.widths))
        cohort.leader = None
        cohort.tally.close_prompt(cohort.cache)

    def talk(self, cohort: Batch, places: Sequence[int], following: Tensor) -> DecodeBatch:
        """What the rows of a cohort say, or feed of given continuations, once their prompts are read.

        ``places``: of its rows among the caller's; ``following`` (R, vocabulary): the logits after the prompts. The
        cohort may not be used any more.
        """
        speakers: list[Sampler] = [
            TeacherForcing(row) if row.continuation else GreedySampler(row, self.stops | row.stops)
            for row in cohort.rows
        ]
        return DecodeBatch.begun(self, cohort, places, following, speakers)

    def step(self, cohort: Batch, pieces: Sequence[Sequence[int]]) -> Tensor:
        """One pass in which every row feeds its piece of generated text. Returns logits (R, 1, vocabulary)."""
        return self._forward(cohort, Feed.right_aligned(pieces, cohort.lengths, cohort.device), "decode", 1)

    def ledgers(self, cohort: Batch) -> list[Ledger]:
        """The accounts of a cohort's rows as they stand."""
        return cohort.tally.ledgers(cohort.cache, cohort.lengths, [group.rows for group in cohort.groups])

    def look_ahead(self, rows: Sequence[Request], prompting: Prompting) -> Hindsight:
        """The dense runs that the oracle's rows look back from; nothing where no row asks."""
        return look_ahead(self, rows, prompting)

    def _refuse(self, rows: Sequence[Request], prompting: Prompting) -> None:
        refuse_unsupported(self.config, max((row.total_tokens for row in rows), default=0))
        for row in rows:
            if reason := reason_against(row.policy, prompting):
                raise PolicyError(reason)

    def _read(
        self, rows: Sequence[Request], prompting: Prompting, observe: Observer, nothing_heard: Callable[[int], Heard]
    ) -> Iterator[tuple[Sequence[int], Batch, Heard]]:
        """Cohorts whose prompts are read, with the caller's indices of their rows and what was heard."""
        shared = plan_sharing(rows, prompting) if self.share_prompts else SharingPlan.by_policy(rows)
        with slots_enabled(self.model):
            hindsight = self.look_ahead(rows, prompting)
            for indices in shared.alone:
                cohort = self.cohort([rows[index] for index in indices], prompting)
                hindsight.show(cohort)
                heard = nothing_heard(len(indices))
                self.read_prompts(cohort, heard, observe)
                yield indices, cohort, heard
            for family in shared.families:
                yield from self._read_family(family, rows, prompting, hindsight, observe, nothing_heard)

    def _read_family(
        self, family: PrefixGroup, rows: Sequence[Request], prompting: Prompting, hindsight: Hindsight, observe: Observer,
        nothing_heard: Callable[[int], Heard],
    ) -> Iterator[tuple[Sequence[int], Batch, Heard]]:  # fmt: skip
        layers, device = self.config.num_hidden_layers, self.model.device
        trunk = PrefixBatch(
            [rows[index] for index in family.prompts], family.chunks(rows, prompting), prompting, layers, device
        )
        self._watched(trunk)
        for branch in family.branches:
            cohort = self._watched(Batch([rows[index] for index in branch.rows], prompting, layers, device))
            hindsight.show(cohort)
            trunk.expect(cohort, branch.prompts, branch.after)
        heard = nothing_heard(len(family.prompts))
        for number in range(max(len(plan) for plan in trunk.chunks)):
            self._read_chunk(trunk, number, heard)
            observe(sum(trunk.feed.widths[prompt] for _, prompts in trunk.aboard() for prompt in prompts))
            for leaving, branch in zip(
                trunk.departures.pop(number, ()), (b for b in family.branches if b.after == number), strict=True
            ):
                leaving.cohort.finish()
                own = heard.handed_on(branch.prompts)
                self.read_prompts(leaving.cohort, own, observe)
                yield branch.rows, leaving.cohort, own

    def _watched(self, cohort: Batch) -> Batch:
        cohort.watchers = self.watchers
        if cohort.rows[0].policy.rope == "cache":
            widest = max(stop - start for plan in cohort.chunks for start, stop in plan)
            longest = max(row.total_tokens for row in cohort.rows)
            cohort.rope = CacheRope(self.model, longest + widest)  # rows that wait are padded beyond the longest text
            if cohort.leader is not None:
                cohort.leader.rope = cohort.rope
        return cohort

    def _read_chunk(self, cohort: Batch, number: int, heard: LogitsCollector) -> None:
        spans = [plan[number] if number < len(plan) else (0, 0) for plan in cohort.chunks]
        pieces = [row.tokens[start:stop] for row, (start, stop) in zip(cohort.rows, spans, strict=True)]
        feed = Feed.right_aligned(pieces, [start for start, _ in spans], cohort.device)
        asks = heard.asks(cohort, number)
        logits = self._forward(cohort, feed, "prompt", heard.logits_to_keep if asks or cohort.watchers else None)
        if asks:
            heard.hear(cohort, number, logits)

    def _forward(self, cohort: Batch, feed: Feed, phase: Phase, logits_to_keep: int | None) -> Tensor:
        """One pass over all layers, evictions included. Returns logits (R, m or logits_to_keep, vocabulary), without
        the output head where there is nothing to keep: (R, 0, vocabulary)."""
        cohort.begin(feed, phase)
        compute = partial(self._compute, cohort, logits_to_keep)
        logits = compute() if self.repeats is None else self.repeats.run(cohort, logits_to_keep, compute)
        cohort.finish()
        for watcher in cohort.watchers:
            watcher.predicted(cohort, logits)
        return logits

    def _compute(self, cohort: Batch, logits_to_keep: int | None) -> Tensor:
        """What a pass does on the device, from the cohort's feed and slots to logits and slots."""
        given = {
            "input_ids": cohort.feed.tokens,
            "position_ids": _rotated_at(cohort, cohort.feed),
            "past_key_values": cohort.cache,
            "use_cache": True,
            "cohort": cohort,
        }
        logits: Tensor
        if logits_to_keep is None:
            hidden = self.model.get_decoder()(**given).last_hidden_state
            logits = hidden.new_empty(len(hidden), 0, self.config.vocab_size)
        else:
            logits = self.model(**given, logits_to_keep=logits_to_keep).logits
        cohort.settle()
        return logits


def _rotated_at(cohort: Batch, feed: Feed) -> Tensor:
    """(R, m): the positions at which the model rotates; 0, where the rotation is the identity, for cache positions."""
    positions = feed.positions.clamp(min=0).long()
    return positions if cohort.rope is None else torch.zeros_like(positions)
