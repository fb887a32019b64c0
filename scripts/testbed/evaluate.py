"""What a model can do, dense: every task of the mini suite, needles and book perplexity, on held-out material."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import mean
from typing import Any

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

import tasks
from harness.runner.prompt_encoder import truncate_at_stops
from tasks.base import Sample, Task
from tasks.mini.suite import MINI_SUITE

Numbers = dict[str, dict[str, float]]  # task, then length (tokens) or "all"


def evaluate(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, lengths: list[int], repeats: int, windows: int
) -> Numbers:
    """Means of each task's headline metric by length, greedy, in the model's own precision, full cache.

    ``repeats``: samples for each length; `niah` takes as many for each fifth of the haystack's depths, rounded up.
    """
    model.eval()
    found: Numbers = {}
    for kind in MINI_SUITE:
        task = tasks.build(kind.name, lengths=lengths, repeats=repeats)
        found[kind.name] = _by_length(model, tokenizer, task)
    needles = tasks.build("niah", lengths=lengths, repeats=math.ceil(repeats / 5))
    found[needles.name] = _by_length(model, tokenizer, needles)
    found["book_perplexity"] = {"1024": _perplexity(model, tokenizer, windows)}
    return found


def _by_length(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, task: Task) -> dict[str, float]:
    scores: dict[str, list[float]] = defaultdict(list)
    for sample in task.samples(tokenizer):
        score = task.score(sample, _answer(model, tokenizer, sample))[task.metrics[0]]
        scores[str(sample.axes["length"])].append(score)
    return {length: round(mean(values), 4) for length, values in scores.items()}


@torch.no_grad()
def _answer(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, sample: Sample) -> str:
    ids = torch.tensor([tokenizer.encode(sample.prompt)], device=model.device)
    limits: dict[str, Any] = {"max_new_tokens": sample.max_new_tokens, "do_sample": False, "pad_token_id": 2}
    if sample.until:
        limits |= {"stop_strings": list(sample.until), "tokenizer": tokenizer}
    made = model.generate(ids, attention_mask=torch.ones_like(ids), **limits)[0, ids.shape[1] :]
    return truncate_at_stops(tokenizer.decode(made, skip_special_tokens=True), sample.until)


@torch.no_grad()
def _perplexity(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, windows: int) -> float:
    """Of the windows of `book_perplexity`: e to the mean negative log-likelihood of a token."""
    losses = []
    for sample in tasks.build("book_perplexity", windows=windows).samples(tokenizer):
        ids = torch.tensor([tokenizer.encode(sample.prompt)[: sample.truncate_to]], device=model.device)
        losses.append(model(ids, labels=ids).loss.item())
    return round(math.exp(mean(losses)), 2)
