"""The seam to transformers: an attention function under a name of ours, switched on for the length of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from harness.engine.cohort import Cohort
from harness.engine.layer_pass import LayerPass
from harness.engine.rows import EngineError
from harness.engine.settle import evict_first, settle

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
    work = LayerPass.of(cohort, module.layer_idx, query, key, value, scaling, softcap)
    work, spared = evict_first(work)
    output = work.attend()
    settle(work, spared)
    return output, None


@contextmanager
def slots_enabled(model: PreTrainedModel) -> Iterator[None]:
    """Within this block the model attends through `slot_attention`; afterwards it is as it was."""
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
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
