"""Texts whose likelihood after a prompt is asked: from a sample to tokens, and from outcomes back to likelihoods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.engine.rows import Outcome
from harness.samples.wording import Wording
from tasks.base import Likelihood, Sample, TaskError


def split(sample: Sample, wording: Wording) -> tuple[list[int], list[list[int]]]:
    """The tokens of a sample's prompt, and those of each of its continuations.

    As lm-evaluation-harness splits them: blanks at the end of the prompt belong to the continuation, prompt and
    continuation are encoded together, and the continuation is what stands after as many tokens as the prompt has by
    itself. So both have the tokens that they have in running text. In a chat format the prompt is the message as the
    model's template wraps it, up to the first token that a continuation changes. Raises `TaskError` for a
    continuation that adds no token.
    """
    wrapped = sample.chat and wording.chat
    bare, blank = (sample, "") if wrapped else _without_trailing_blank(sample)
    prompt = wording.encoded(bare)
    texts = [replace(bare, answer_prefix=bare.answer_prefix + blank + text) for text in sample.continuations]
    wholes = [wording.encoded(text) for text in texts]
    if wrapped:
        prompt = prompt[: min(_alike(prompt, whole) for whole in wholes)]
    continuations = [whole[len(prompt) :] for whole in wholes]
    for text, given in zip(sample.continuations, continuations, strict=True):
        if not given:
            raise TaskError(no_tokens(text, f"the prompt of sample {sample.id}"))
    return prompt, continuations


def no_tokens(text: str, after: str) -> str:
    """The sentence about a continuation whose likelihood nobody can tell."""
    return (
        f"The continuation {text!r} adds no token to {after}, so that it has no likelihood: give another text, or put "
        "a blank between them."
    )


def likelihoods(outcomes: Sequence[Outcome]) -> list[Likelihood]:
    """Of each continuation, in order."""
    return [Likelihood(-sum(outcome.nll), len(outcome.nll), outcome.greedy) for outcome in outcomes]


def likeliest(sample: Sample, found: Sequence[Likelihood]) -> str:
    """The continuation with the largest likelihood, all tokens together; the first of equals."""
    return max(zip(sample.continuations, found, strict=True), key=lambda pair: pair[1].nats)[0]


def _without_trailing_blank(sample: Sample) -> tuple[Sample, str]:
    """The sample without the blanks that end its prompt, and those blanks."""
    if sample.answer_prefix:
        bare = sample.answer_prefix.rstrip()
        return replace(sample, answer_prefix=bare), sample.answer_prefix[len(bare) :]
    bare = sample.prompt.rstrip()
    return replace(sample, prompt=bare), sample.prompt[len(bare) :]


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens with which both begin."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
