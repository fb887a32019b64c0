"""What one would write with transformers alone: dense passes and steps, and a plain loop for KeyDiff in blocks.

The loop (`blocked`): a `DynamicCache`, the model's own attention, and after each block a top-k and a gather in every
layer. It keeps no ledger, breaks ties as topk pleases, and takes one row.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from harness.engine.attention.model_parts import head_width


@torch.inference_mode()
def dense_pass(model: PreTrainedModel, tokens: Tensor) -> None:
    """All prompts (R, T) in one pass."""
    model(tokens, logits_to_keep=1)


@torch.inference_mode()
def dense_steps(model: PreTrainedModel, rows: int, length: int, steps: int) -> None:
    """Greedy steps of so many rows after prompts of ``length`` tokens, whose keys and values are zeros here."""
    config, cache = model.config, DynamicCache(config=model.config)
    shape = (rows, config.num_key_value_heads, length, head_width(config))
    for index in range(config.num_hidden_layers):
        held = torch.zeros(shape, dtype=model.dtype, device=model.device)
        cache.update(held, held, index)
    tokens = torch.ones(rows, 1, dtype=torch.long, device=model.device)
    for _ in range(steps):
        tokens = model(input_ids=tokens, past_key_values=cache, logits_to_keep=1).logits.argmax(-1)
        tokens.tolist()


@torch.inference_mode()
def blocked(model: PreTrainedModel, tokens: Tensor, block: int, budget: int | None) -> Tensor:
    """(1, T) prompt tokens in; the last logits out. ``budget=None`` evicts nothing."""
    cache = DynamicCache(config=model.config)
    for start in range(0, tokens.shape[1], block):
        chunk = tokens[:, start : start + block]
        held, width = cache.get_seq_length(), chunk.shape[1]
        mask = torch.ones(1, 1, width, held + width, dtype=torch.bool, device=tokens.device).tril(held)
        logits = model(
            input_ids=chunk,
            position_ids=torch.arange(start, start + width, device=tokens.device)[None],
            past_key_values=cache,
            attention_mask=mask,
            logits_to_keep=1,
        ).logits
        if budget is not None:
            for layer in cache.layers:
                _keep_distinctive(layer, budget)
    last: Tensor = logits
    return last


def _keep_distinctive(layer: object, budget: int) -> None:
    keys: Tensor = layer.keys  # type: ignore[attr-defined]
    if keys.shape[2] <= budget:
        return
    anchor = F.normalize(keys, dim=-1).mean(2, keepdim=True)
    score = -F.cosine_similarity(keys, anchor, dim=-1)
    index = score.topk(budget, dim=-1).indices.sort(-1).values[..., None].expand(-1, -1, -1, keys.shape[-1])
    layer.keys = keys.gather(2, index)  # type: ignore[attr-defined]
    layer.values = layer.values.gather(2, index)  # type: ignore[attr-defined]


class Still(CacheLayerMixin):
    """A layer that shows the same N + B slots in every pass and stores nothing."""

    is_sliding = False

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Slots of zeros."""
        shape = (*key_states.shape[:2], self.slots, key_states.shape[-1])
        self.keys, self.values = key_states.new_zeros(shape), value_states.new_zeros(shape)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """The slots; the new keys and values are ignored."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """Slots before the chunk; transformers asks for it and makes no use of it here."""
        return self.slots

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """All slots."""
        return self.slots, 0

    def get_max_length(self) -> int:
        """All slots."""
        return self.slots


@torch.inference_mode()
def model_alone(model: PreTrainedModel, tokens: Tensor, block: int, slots: int, passes: int) -> None:
    """So many blocks through the model itself: its layers and attention over ``slots`` slots, and no cache to keep."""
    cache = Cache(layers=[Still(slots) for _ in range(model.config.num_hidden_layers)])
    mask = torch.ones(1, 1, block, slots, dtype=torch.bool, device=tokens.device).tril(slots - block)
    for _ in range(passes):
        model(
            input_ids=tokens[:, :block],  # (R, B)
            position_ids=torch.arange(block, device=tokens.device)[None],
            past_key_values=cache,
            attention_mask=mask,
            logits_to_keep=1,
        )
