"""The driver: prompts in chunks, greedy decode with eviction per step, teacher-forced perplexity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from harness.engine.cohort import Cohort
from harness.engine.hindsight import Recorder
from harness.engine.hook import refuse_unsupported, slots_enabled
from harness.engine.rope import CacheRope
from harness.engine.rows import EngineError, Outcome, Prompting, Row
from harness.engine.step import Feed
from harness.engine.support import reason_against
from harness.engine.token_filter import Filtered, filter_prompts
from harness.engine.watch import Watcher
from policies import DENSE, PolicyError

Observer = Callable[[int], None]  # told after each pass how many tokens were fed


def _ignore(tokens: int) -> None:
    """The default observer."""


class Engine:
    """Runs cohorts of rows through one transformers model, which stays unchanged."""

    def __init__(
        self, model: PreTrainedModel, eos_token_ids: Iterable[int] = (), watchers: Sequence[Watcher] = ()
    ) -> None:
        self.model = model.eval()
        self.config = model.config.get_text_config()
        self.stops = frozenset(eos_token_ids)
        self.watchers = watchers

    @torch.inference_mode()
    def generate(self, rows: Sequence[Row], prompting: Prompting, observe: Observer = _ignore) -> list[Outcome]:
        """Greedy continuation of every row, at most ``max_new_tokens`` each; the stop token is not returned.

        Rows are independent: what a row yields does not depend on its company (up to the rounding of batched matrix
        products). Raises `EngineError` or `PolicyError` before anything is computed.
        """
        filtered = self._filtered(rows, prompting)
        order, cohort = self._cohort([each.row for each in filtered], prompting)
        with slots_enabled(self.model):
            self._look_ahead(cohort)
            produced = self._decode(cohort, self._read_prompts(cohort, observe), observe)
        ledgers = cohort.tally.ledgers(cohort.cache, cohort.lengths)
        outcomes = [
            Outcome(ledger, [token for token in tokens if token not in self.stops])
            for ledger, tokens in zip(ledgers, produced, strict=True)
        ]
        return [each.charged(o) for each, o in zip(filtered, _in_callers_order(outcomes, order), strict=True)]

    @torch.inference_mode()
    def perplexity(self, rows: Sequence[Row], prompting: Prompting, observe: Observer = _ignore) -> list[Outcome]:
        """Negative log likelihood, nats, of every prompt token but the first, each predicted under eviction.

        The token after a chunk is predicted before the chunk's eviction (A-21), with everything that survived the
        earlier ones. In the ``one_shot`` regime nothing is ever predicted after an eviction: the figure is dense.
        """
        order, cohort = self._cohort(rows, prompting)
        losses: list[list[Tensor]] = [[] for _ in order]

        def collect(feed: Feed, logits: Tensor) -> None:
            for index, width in enumerate(feed.widths):
                stop = cohort.lengths[index]
                truth = cohort.rows[index].tokens[stop - width + 1 : stop + 1]
                if truth:
                    begin = feed.width - width
                    predicted = logits[index, begin : begin + len(truth)].float()
                    target = torch.tensor(truth, device=logits.device)
                    losses[index].append(F.cross_entropy(predicted, target, reduction="none"))

        with slots_enabled(self.model):
            self._look_ahead(cohort)
            self._read_prompts(cohort, observe, collect)
        ledgers = cohort.tally.ledgers(cohort.cache, cohort.lengths)
        outcomes = [
            Outcome(ledger, nll=torch.cat(parts).tolist() if parts else [])
            for ledger, parts in zip(ledgers, losses, strict=True)
        ]
        return _in_callers_order(outcomes, order)

    def _filtered(self, rows: Sequence[Row], prompting: Prompting) -> list[Filtered]:
        """Rows whose policy filters tokens, after their first pass; the others as they are."""
        refuse_unsupported(self.config, max(row.total_tokens for row in rows))
        for row in rows:
            if reason := reason_against(row.policy, prompting):
                raise PolicyError(reason)
        return filter_prompts(self.model, rows)

    def _cohort(self, rows: Sequence[Row], prompting: Prompting) -> tuple[list[int], Cohort]:
        """Rows sorted so that equal policies are neighbours, and the order to undo it."""
        refuse_unsupported(self.config, max(row.total_tokens for row in rows))
        seen = {policy: index for index, policy in enumerate(dict.fromkeys(row.policy for row in rows))}
        order = sorted(range(len(rows)), key=lambda index: seen[rows[index].policy])
        cohort = Cohort([rows[index] for index in order], prompting, self.config.num_hidden_layers, self.model.device)
        if len({row.policy.rope for row in rows}) > 1:
            raise EngineError(
                "Rows with absolute positions and rows with positions inside the cache cannot share a run."
            )
        cohort.watchers = self.watchers
        if rows[0].policy.rope == "cache":
            cohort.rope = CacheRope(self.model, max(row.total_tokens for row in rows))
        return order, cohort

    def _read_prompts(
        self, cohort: Cohort, observe: Observer, collect: Callable[[Feed, Tensor], None] | None = None
    ) -> list[int]:
        """Feed every prompt; returns each row's greedy token after its last chunk."""
        following = [0] * len(cohort.rows)
        for number in range(max(len(plan) for plan in cohort.chunks)):
            spans = [plan[number] if number < len(plan) else (0, 0) for plan in cohort.chunks]
            pieces = [row.tokens[start:stop] for row, (start, stop) in zip(cohort.rows, spans, strict=True)]
            feed = Feed.of(pieces, [start for start, _ in spans], cohort.device)
            logits = self._forward(cohort, feed, "prompt", 1 if collect is None else 0)
            if collect is not None:
                collect(feed, logits)
            ends = [index for index, plan in enumerate(cohort.chunks) if number == len(plan) - 1]
            if ends:
                greedy = logits[:, -1].argmax(-1).tolist()
                for index in ends:
                    following[index] = greedy[index]
            observe(sum(feed.widths))
        cohort.tally.close_prompt(cohort.cache)
        return following

    def _decode(self, cohort: Cohort, pending: list[int], observe: Observer) -> list[list[int]]:
        """Greedy decode from each row's first generated token; rows end at a stop token or at their limit."""
        produced: list[list[int]] = [[] for _ in cohort.rows]
        wants = [row.max_new_tokens > 0 for row in cohort.rows]
        while any(wants):
            pieces: list[list[int]] = []
            for index, token in enumerate(pending):
                if wants[index]:
                    produced[index].append(token)
                    finished = len(produced[index]) == cohort.rows[index].max_new_tokens
                    wants[index] = not finished and token not in self.stops
                pieces.append([token] if wants[index] else [])
            if any(wants):
                feed = Feed.of(pieces, cohort.lengths, cohort.device)
                pending = self._forward(cohort, feed, "decode", 1)[:, -1].argmax(-1).tolist()
                observe(sum(feed.widths))
        return produced

    def _look_ahead(self, cohort: Cohort) -> None:
        """Where the oracle takes part: the dense run of the same prompts in the same chunks, recorded."""
        if not any(row.policy.hindsight for row in cohort.rows):
            return
        recorder = Recorder()
        dense = [replace(row, policy=replace(DENSE, rope=row.policy.rope), budget=0) for row in cohort.rows]
        ahead = Cohort(dense, cohort.prompting, cohort.layers, cohort.device, cohort.chunks)
        ahead.rope, ahead.watchers = cohort.rope, (recorder,)
        self._decode(ahead, self._read_prompts(ahead, _ignore), _ignore)
        cohort.future = recorder.future()

    def _forward(self, cohort: Cohort, feed: Feed, phase: str, logits_to_keep: int) -> Tensor:
        """One pass over all layers, evictions included. Returns logits (R, m or logits_to_keep, vocabulary)."""
        cohort.begin(feed, phase)  # type: ignore[arg-type]
        output = self.model(
            input_ids=feed.tokens,
            position_ids=_rotated_at(cohort, feed),
            past_key_values=cohort.cache,
            use_cache=True,
            logits_to_keep=logits_to_keep,
            cohort=cohort,
        )
        cohort.finish()
        logits: Tensor = output.logits
        for watcher in cohort.watchers:
            watcher.predicted(cohort, logits)
        return logits


def _rotated_at(cohort: Cohort, feed: Feed) -> Tensor:
    """(R, m): the positions at which the model rotates; 0, where the rotation is the identity, for cache positions."""
    positions = feed.positions.clamp(min=0).long()
    return positions if cohort.rope is None else torch.zeros_like(positions)


def _in_callers_order(outcomes: list[Outcome], order: list[int]) -> list[Outcome]:
    placed: list[Outcome | None] = [None] * len(order)
    for outcome, index in zip(outcomes, order, strict=True):
        placed[index] = outcome
    return [outcome for outcome in placed if outcome is not None]
