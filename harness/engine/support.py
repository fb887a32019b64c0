"""Which policy works in which prompt regime and on which model, and why not: asked before anything is computed.

The support matrix in the documentation is `reason_against` over all presets.
"""

from __future__ import annotations

from harness.engine.rows import REGIMES, EngineError, Prompting
from policies import Policy
from policies.shape import Fitted, ModelShape


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
