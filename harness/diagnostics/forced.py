"""A run whose tokens are all given: the prompt in its regime, then tokens fed one by one as decode steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from transformers import PreTrainedModel

from harness.engine.hearing import Losses
from harness.engine.hook import slots_enabled
from harness.engine.ledger import Ledger
from harness.engine.rows import Outcome, Prompting, Row
from harness.engine.run import Engine
from harness.engine.watch import Watcher
from policies import DENSE


class Forced(Engine):
    """`Engine.perplexity` with a continuation: eviction in decode is measured on tokens that are the same for all.

    In the one-shot regime every prompt token is predicted before the only eviction; what eviction does shows in the
    continuation alone.
    """

    @torch.inference_mode()
    def watch(self, row: Row, continuation: Sequence[int], prompting: Prompting) -> Ledger:
        """Feed ``row.tokens``, then every token of ``continuation``; watchers see each pass and all its logits."""
        whole = replace(row, max_new_tokens=len(continuation))
        cohort = self.cohort([whole], prompting)
        with slots_enabled(self.model):
            self.look_ahead([whole], prompting).show(cohort)
            self.read_prompts(cohort, Losses.of(1))  # who listens for losses asks for all logits
            for token in continuation:
                self.step(cohort, [[token]])
        (ledger,) = self.ledgers(cohort)
        return ledger


def follow(
    model: PreTrainedModel, row: Row, continuation: Sequence[int], prompting: Prompting, watchers: Sequence[Watcher]
) -> Ledger:
    """One watched run. Raises `EngineError` or `PolicyError` before anything is computed."""
    return Forced(model, watchers=watchers).watch(row, continuation, prompting)


def dense_continuation(
    model: PreTrainedModel, tokens: Sequence[int], new_tokens: int, eos: Sequence[int], prompting: Prompting
) -> list[int]:
    """What the model says without eviction, at most ``new_tokens``: the tokens on which runs are compared."""
    if not new_tokens:
        return []
    (outcome,) = Engine(model, eos).generate([Row(tokens, DENSE, 0, new_tokens)], prompting)
    assert isinstance(outcome, Outcome)
    return outcome.tokens
