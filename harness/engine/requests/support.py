"""Which policy works in which prompt regime and on which model, and why not: asked before anything is computed.

The support matrix in the documentation is `reason_against` over all presets.
"""

from __future__ import annotations

from typing import Any

from harness.engine.requests.request import REGIMES, EngineError, Prompting
from policies import Policy
from policies.view import Fitted, ModelShape


def reason_against(policy: Policy, prompting: Prompting) -> str:
    """Why this combination is refused, as a sentence with the remedy; empty where it is supported."""
    regime, schedule = prompting.regime, policy.schedule
    if schedule.prompt == "after_prompt" and regime != "one_shot":
        return (
            f"Policy '{policy.name}' compresses once, after the prompt, so prompt={regime} would hold the whole prompt "
            "under the name of a budget: use prompt=one_shot."
        )
    by_token = regime == "token_fed" or (regime == "blocked" and prompting.block_size == 1)
    if schedule.evict_first and schedule.prompt == "each_block" and not by_token:
        return (
            f"Policy '{policy.name}' frees a slot before each token is attended, which is not defined for blocks "
            f"(prompt={regime}): use prompt=token_fed."
        )
    return ""


def reason_against_model(policy: Policy, shape: ModelShape) -> str:
    """Why this policy cannot work on a model of this shape, as a sentence with the remedy; empty where it can."""
    stage = getattr(policy, "prompt_stage", None)
    parts = [getattr(policy, name, None) for name in ("scorer", "allocator", "token_filter", "structure")]
    reasons = (
        part.reason_against_model(shape) for part in [*parts, stage and stage.scorer] if isinstance(part, Fitted)
    )
    return next(filter(None, reasons), "")


def natural_regime(policy: Policy, block_size: int) -> Prompting:
    """The first of blocked, one_shot, token_fed that the policy supports: what ``prompt=auto`` means."""
    for regime in REGIMES:
        prompting = Prompting(regime, block_size)
        if not reason_against(policy, prompting):
            return prompting
    raise EngineError(f"Policy '{policy.name}' works in no prompt regime: check its schedule.")


# Which models the engine runs honestly, told from their configuration alone.


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
