"""The seam to transformers: an attention function under a name of ours, switched on for the length of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from harness.engine.attention.attend import attend
from harness.engine.attention.mask import AttentionMask
from harness.engine.batch.batch import Batch
from harness.engine.batch.evict import evict, evict_first, select_early
from harness.engine.batch.layer_pass import LayerPass
from harness.engine.requests.request import EngineError

GLANCE = "kvreplica_glance"
NAME = "kvreplica_slots"  # a name without a mask function: transformers then builds no mask for it


def slot_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    softcap: float | None = None,
    cohort: Batch | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend, then let the cohort's policies evict. ``cohort`` arrives as an extra keyword of the model call.

    ``query`` (R, H·G, m, D), already rotated; ``key`` and ``value`` are what `SlotLayer.update` returned.
    """
    if cohort is None:
        raise EngineError("The slot attention was called outside of the engine: use Engine.generate instead.")
    if kwargs.get("s_aux") is not None:
        raise EngineError("This model adds learned attention sinks to the softmax, which the engine does not compute.")
    return attend_and_evict(cohort, module.layer_idx, query, key, value, scaling, softcap), None


def attend_and_evict(
    cohort: Batch, layer: int, query: Tensor, keys: Tensor, values: Tensor, scaling: float, softcap: float | None
) -> Tensor:
    """One layer's attention output (R, m, H·G, D). It has evicted, or will with all others when the pass ends."""
    if cohort.fold is not None:
        output = cohort.fold.attend(query, keys, values, scaling, softcap)
        if cohort.fold.early:
            select_early(LayerPass.of(cohort, layer, query, keys, values, scaling, softcap), cohort.fold)
        return output
    work = LayerPass.of(cohort, layer, query, keys, values, scaling, softcap)
    work, spared = evict_first(work)
    output = cohort.attend(work)
    evict(work, spared)
    return output


@contextmanager
def slots_enabled(model: PreTrainedModel) -> Iterator[None]:
    """Within this block the model attends through `slot_attention`; afterwards it is as it was."""
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


class _Reached(Exception):  # noqa: N818, it is a signal and not an error
    """Ends a forward pass once its layer has been seen."""


@contextmanager
def layer_reached(model: PreTrainedModel, layer: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """A pass over a prompt that ends at a layer. The list then holds that layer's query (R, H·G, T, D) and keys
    (R, H, T, D); the layers before attend causally over everything and keep nothing."""
    found: list[tuple[Tensor, Tensor]] = []

    def glance(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **kwargs: Any) -> Any:
        if module.layer_idx == layer:
            found.append((query, key))
            raise _Reached
        length = query.shape[2]
        everyone = torch.ones(query.shape[0], length, dtype=torch.bool, device=query.device)
        causal = AttentionMask(everyone, everyone[:, None, :0], plain=True)
        return attend(query, key, value, causal, scaling, kwargs.get("softcap")), None

    AttentionInterface.register(GLANCE, glance)
    before = model.config._attn_implementation
    model.set_attn_implementation(GLANCE)
    try:
        yield found
    except _Reached:
        pass
    finally:
        model.set_attn_implementation(before)


AttentionInterface.register(NAME, slot_attention)
