"""``generate``: one prompt through a transformers model that is loaded already, under a policy and a budget."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from harness.config import plugins
from harness.config.budget import FULL, Budget, ShareOf
from harness.config.cell import as_user_errors, reason_against_budget
from harness.config.experiments import option_names
from harness.config.model import ModelSpec, eos_token_ids
from harness.config.policy_config import policy_from, preset
from harness.config.settings import Count, Seed
from harness.config.type_check import check_value
from harness.engine.engine import Engine
from harness.engine.requests import (
    REGIMES,
    Ledger,
    Prompting,
    RepeatPrompt,
    Request,
    Split,
    natural_regime,
    reason_against,
    reason_against_model,
)
from harness.errors import UserError
from harness.runner.prompt_encoder import PromptEncoder
from policies import Policy, nearest
from policies.scorer import Scorer
from tasks.base import Sample
from tasks.sampled import Sampling


@dataclass(frozen=True)
class Generation:
    """The generated text, and what the cache held in fact (``ledger``: slots, bytes, evictions)."""

    text: str  # without special tokens
    tokens: tuple[int, ...]  # the generated ones, without the stop token
    prompt_tokens: int
    policy: str
    slots: int  # the budget, per layer and KV head; 0 for a dense policy
    prompting: Prompting
    ledger: Ledger


@dataclass(frozen=True)
class _LoadedModel(ModelSpec):
    """A model that is loaded already, with its own configuration and tokenizer."""

    model: Any = None
    loaded_tokenizer: Any = None

    def config(self) -> Any:
        return self.model.config

    def tokenizer(self) -> Any:
        return self.loaded_tokenizer


@as_user_errors()
def generate(
    model: PreTrainedModel,
    tokenizer: Any,
    prompt: str,
    policy: str | Policy | Scorer = "keydiff",
    budget: str | float = "25%",
    *,
    budget_of: str = "prompt",
    max_new_tokens: int = 64,
    prompt_regime: str = "auto",
    block_size: int = 128,
    chat: bool = False,
    question: str = "",
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
) -> Generation:
    """Continuation of ``prompt`` by your own model, whose cache holds no more than ``budget`` allows.

    ``policy``: a preset's name or an object as in `harness.api.run.run`. ``budget``: slots per layer and KV head
    (``256``) or a share (``"25%"``) of the prompt; of the prompt with ``max_new_tokens`` under
    ``budget_of="prompt_and_new"``, and one that grows with the answer under ``"so_far"``. ``max_new_tokens`` and
    ``block_size`` are tokens; ``prompt_regime`` is ``blocked``, ``one_shot``, ``token_fed`` or ``auto`` (the first of
    them that the policy supports). ``chat`` wraps the prompt as one user message in the tokenizer's chat format.
    ``question``: text that follows the prompt and is fed once the prompt has been compressed, which then cannot depend
    on it. ``temperature`` above 0 draws tokens, among the fewest whose probabilities reach ``top_p``; ``seed`` decides
    the draws. The model stays on its device and unchanged.
    Nothing is stored.

    A promise that was broken (a policy that keeps too much, scores that are no numbers) is a warning, and the sentence
    is in ``ledger.invalid``. Raises `UserError` for what cannot work, with the reason.
    """
    for name, given, kind in (("model", model, PreTrainedModel), ("tokenizer", tokenizer, PreTrainedTokenizerBase)):
        if not isinstance(given, kind):
            raise UserError(f"{name}= takes a {name} of transformers that is loaded, not {type(given).__name__}.")
    check_value(str, prompt, "prompt")
    check_value(ShareOf, budget_of, "budget_of")
    check_value(str, prompt_regime, "prompt_regime")
    check_value(Count, max_new_tokens, "max_new_tokens")
    check_value(Count, block_size, "block_size")
    check_value(bool, chat, "chat")
    check_value(str, question, "question")
    check_value(float, temperature, "temperature")
    check_value(float, top_p, "top_p")
    check_value(Seed, seed, "seed")
    drawn = Sampling(temperature=temperature, top_p=top_p, seed=seed)
    name = getattr(model.config, "_name_or_path", "") or type(model).__name__
    spec = _LoadedModel(name, name, model=model, loaded_tokenizer=tokenizer)
    chosen = _policy(policy, spec)
    prompting = _prompting(chosen, prompt_regime, block_size, "context" if question else "whole")
    if chat and getattr(tokenizer, "chat_template", None) is None:
        raise UserError(f"The tokenizer of {name} has no chat format: leave chat=True out.")
    encoder, sample = PromptEncoder(tokenizer, chat), Sample("prompt", prompt + question, question=question, chat=chat)
    tokens = encoder.encode(sample)
    context = encoder.context_tokens(sample) if question else len(tokens)
    parsed = FULL if chosen.is_dense else Budget.parse(budget, budget_of)  # type: ignore[arg-type]
    slots = 0 if chosen.is_dense else parsed.slots_for(len(tokens), max_new_tokens, [len(tokens)])
    reasons = (
        reason_against(chosen, prompting),
        reason_against_model(chosen, spec.shape()),
        "" if chosen.is_dense else reason_against_budget(chosen, slots),
    )
    if reason := next(filter(None, reasons), ""):
        raise UserError(reason)
    was_training = model.training
    try:
        engine = Engine(model, eos_token_ids(model))
        request = Request(
            tokens[:context],
            chosen,
            slots,
            max_new_tokens,
            question=tokens[context:],
            temperature=drawn.temperature,
            top_p=drawn.top_p,
            seed=drawn.seed,
            repeat=encoder.repeat_prompt(sample) if chosen.repeats else RepeatPrompt(),
            so_far=parsed.so_far,
        )
        (outcome,) = engine.generate([request], prompting)
    finally:
        model.train(was_training)
    if outcome.ledger.invalid:
        warnings.warn(outcome.ledger.invalid, stacklevel=3)
    text = tokenizer.decode(outcome.tokens, skip_special_tokens=True)
    return Generation(text, tuple(outcome.tokens), len(tokens), chosen.name, slots, prompting, outcome.ledger)


def _policy(policy: str | Policy | Scorer, model: ModelSpec) -> Policy:
    if not isinstance(policy, str):
        return policy_from(plugins.register_object(policy), model)
    if policy not in option_names("policy"):
        raise UserError(f"There is no policy called '{policy}'. {nearest(policy, option_names('policy'))}")
    return policy_from(preset(policy), model)


def _prompting(policy: Policy, regime: str, block_size: int, split: Split) -> Prompting:
    if regime == "auto":
        return natural_regime(policy, block_size, split)
    known = {name: name for name in REGIMES}
    if regime not in known:
        raise UserError(f"There is no prompt regime '{regime}'. {nearest(regime, [*REGIMES, 'auto'])}")
    return Prompting(known[regime], block_size, split)
