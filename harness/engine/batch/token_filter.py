"""The first of GemFilter's two passes: run the model up to one layer, keep no cache, choose the tokens to re-read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from harness.engine.batch.hook import layer_reached
from harness.engine.requests.ledger import Ledger
from harness.engine.requests.request import Request, RequestOutput
from policies import DENSE


@dataclass(frozen=True)
class Filtered:
    """A row as the second pass reads it, and what the first one left out."""

    row: Request
    asked: Request

    def charged(self, outcome: RequestOutput) -> RequestOutput:
        """The outcome with the ledger of both passes: the budget, the tokens left out, and the prompt that was read.

        ``slots_peak`` is the whole prompt: in the first pass one layer at a time attends to all of it.
        """
        if self.asked.policy.token_filter is None:
            return outcome
        dropped = len(self.asked.tokens) - len(self.row.tokens)
        ledger: Ledger = replace(
            outcome.ledger,
            slots_requested=self.asked.budget,
            slots_peak=max(outcome.ledger.slots_peak, len(self.asked.tokens)),
            tokens_evicted=outcome.ledger.tokens_evicted + dropped,
            coverage=len(self.row.tokens) / len(self.asked.tokens),
            policy_calls=int(dropped > 0),
        )
        return replace(outcome, ledger=ledger)


def filter_prompts(model: PreTrainedModel, rows: Sequence[Request]) -> list[Filtered]:
    """Every row as the engine should run it: rows whose policy filters tokens become dense rows of what stays."""
    return [Filtered(_filtered(model, row), row) for row in rows]


def _filtered(model: PreTrainedModel, row: Request) -> Request:
    token_filter = row.policy.token_filter
    if token_filter is None:
        return row
    kept = list(range(len(row.tokens)))
    if row.budget < len(kept):
        layer = token_filter.layer_of(model.config.get_text_config().num_hidden_layers)
        query, keys = _at_layer(model, torch.tensor([list(row.tokens)], device=model.device), layer)
        kept = token_filter.choose(query, keys, row.budget)
    return replace(row, tokens=[row.tokens[index] for index in kept], policy=DENSE, budget=0)


def _at_layer(model: PreTrainedModel, tokens: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """Rotated query of the last token (H·G, D) and keys of all tokens (H, T, D) at a layer; later layers never run."""
    with layer_reached(model, layer) as found:
        model(input_ids=tokens, use_cache=False, past_key_values=None, logits_to_keep=1)
    query, keys = found[0]
    return query[0, :, -1], keys[0]
