"""The seam to transformers: an attention function under a name of ours, switched on for the length of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from harness.engine.attention import attend
from harness.engine.cohort import Cohort
from harness.engine.layer_pass import LayerPass
from harness.engine.rows import EngineError
from harness.engine.settle import choose_early, evict_first, settle
from harness.engine.sight import Sight

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
    cohort: Cohort | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend, then let the cohort's policies evict. ``cohort`` arrives as an extra keyword of the model call.

    ``query`` (R, H·G, m, D), already rotated; ``key`` and ``value`` are what `SlotLayer.update` returned.
    """
    if cohort is None:
        raise EngineError("The slot attention was called outside of the engine: use Engine.generate instead.")
    if kwargs.get("s_aux") is not None:
        raise EngineError("This model adds learned attention sinks to the softmax, which the engine does not compute.")
    return attended_and_settled(cohort, module.layer_idx, query, key, value, scaling, softcap), None


def attended_and_settled(
    cohort: Cohort, layer: int, query: Tensor, keys: Tensor, values: Tensor, scaling: float, softcap: float | None
) -> Tensor:
    """One layer's attention output (R, m, H·G, D). It has evicted, or will with all others when the pass ends."""
    if cohort.fold is not None:
        output = cohort.fold.attend(query, keys, values, scaling, softcap)
        if cohort.fold.early:
            choose_early(LayerPass.of(cohort, layer, query, keys, values, scaling, softcap), cohort.fold)
        return output
    work = LayerPass.of(cohort, layer, query, keys, values, scaling, softcap)
    work, spared = evict_first(work)
    output = cohort.attend(work)
    settle(work, spared)
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
        causal = Sight(everyone, everyone[:, None, :0], plain=True)
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


def sliding_window_of(config: Any) -> int | None:
    """The smallest sliding window of any layer, tokens, or None where all layers see everything."""
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if window is None or getattr(config, "use_sliding_window", True) is False:
        return None
    return window if kinds is None or any("sliding" in kind or "chunked" in kind for kind in kinds) else None


def refuse_unsupported(config: Any, longest: int) -> None:
    """Raise `EngineError` for models or lengths that the engine cannot run honestly. ``longest``: tokens."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    foreign = kinds - {"full_attention", "sliding_attention"}
    if foreign:
        raise EngineError(
            f"Model type '{config.model_type}' has layers of kind {', '.join(sorted(foreign))}, which keep no plain "
            "K/V cache: choose a model whose layers all use full attention."
        )
    window = sliding_window_of(config)
    if window is not None and longest > window:
        raise EngineError(
            f"Model type '{config.model_type}' has sliding-window layers of {window} tokens and this run needs "
            f"{longest}: such layers evict by themselves, so a budget would mean nothing. "
            f"Keep prompt + generation within {window} tokens, or choose a model without sliding windows."
        )
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and longest > positions:
        raise EngineError(
            f"A prompt with its generation needs {longest} positions, but the model was made for {positions}: "
            "shorten the task (task.lengths, task.length) or choose a model with a longer context."
        )


AttentionInterface.register(NAME, slot_attention)
