"""Which models the engine runs honestly, told from their configuration alone."""

from __future__ import annotations

from typing import Any

from harness.engine.rows import EngineError


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
