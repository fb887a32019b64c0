"""GemFilter's first pass: run the model up to one layer, keep no cache, and choose the prompt tokens to read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from harness.engine.attention.attend import attend
from harness.engine.attention.mask import AttentionMask
from harness.engine.requests import Ledger, Request, RequestOutput
from policies import DENSE

NAME = "kvreplica_up_to_a_layer"  # of the attention function of the first pass


@dataclass(frozen=True)
class Filtered:
    """A row as the second pass reads it, and as the caller gave it."""

    row: Request
    original: Request

    def with_both_passes(self, outcome: RequestOutput) -> RequestOutput:
        """The outcome with the ledger of both passes: the budget, the tokens left out, and the prompt that was read.

        ``slots_peak`` is the whole prompt: in the first pass one layer at a time attends to all of it.
        """
        if self.original.policy.token_filter is None:
            return outcome
        dropped = len(self.original.tokens) - len(self.row.tokens)
        ledger: Ledger = replace(
            outcome.ledger,
            slots_requested=self.original.budget,
            slots_peak=max(outcome.ledger.slots_peak, len(self.original.tokens)),
            tokens_evicted=outcome.ledger.tokens_evicted + dropped,
            coverage=len(self.row.tokens) / len(self.original.tokens),
            policy_calls=int(dropped > 0),
            tokens_reread=len(self.original.tokens) if dropped else 0,  # by the layers up to the one that filters
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


class _Reached(Exception):  # noqa: N818, it is a signal and not an error
    """Ends a forward pass once its layer has been seen."""


@contextmanager
def layer_reached(model: PreTrainedModel, layer: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """A pass over a prompt that ends at a layer. The list then holds that layer's query (R, H·G, T, D) and keys
    (R, H, T, D); the layers before attend causally over everything and keep nothing."""
    found: list[tuple[Tensor, Tensor]] = []

    def attend_until(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **kwargs: Any
    ) -> Any:
        if module.layer_idx == layer:
            found.append((query, key))
            raise _Reached
        tokens = torch.ones(query.shape[0], query.shape[2], dtype=torch.bool, device=query.device)
        causal = AttentionMask(tokens, tokens[:, None, :0], plain=True)
        return attend(query, key, value, causal, scaling, kwargs.get("softcap")), None

    AttentionInterface.register(NAME, attend_until)
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield found
    except _Reached:
        pass
    finally:
        model.set_attn_implementation(before)
