"""How much each query head retrieves: how the attention of the answer's tokens falls on a needle.

Definitions of HeadKV (Fu et al. 2024; policies.md, 3.9). R counts copying: a head's most attended position lies in the
needle and holds the token that is being generated (Wu et al. 2024). R2 weighs attending: the mass of a head's top
positions that lie in the needle. The attention is that of the pass which generates the token.

Our needle is the sentence that hides a number under a key. HeadKV-R2's needles hold a chain of reasoning, which ours
do not: R2 here measures attention to the needle while answering, not reasoning about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from harness.errors import UserError
from tasks.base import Sample, Task
from tasks.niah import FORMS, KEYS

Kind = Literal["r", "r2"]
BLOCK = 512  # prompt tokens per pass: full attention matrices exist for so many rows at a time
CORRECT = 0.5  # a trial counts if its answer scores more (ROUGE-1 recall or F1 of 50 %; all or nothing for one number)


@dataclass(frozen=True)
class Trial:
    """A prompt, where its needle lies (tokens), and how many tokens may be generated."""

    tokens: tuple[int, ...]
    needle: range
    new_tokens: int


def trial(sample: Sample, tokenizer: Any, kind: Kind) -> Trial:
    """From a sample of the task niah. R2 decodes no more tokens than the answer has."""
    start, stop = needle_span(sample)
    encoded = tokenizer(sample.prompt, return_offsets_mapping=True)
    inside = [i for i, (a, b) in enumerate(encoded["offset_mapping"]) if a < stop and b > start]
    answer = len(tokenizer.encode(f" {sample.references[0]}", add_special_tokens=False))
    new_tokens = sample.max_new_tokens if kind == "r" else answer
    return Trial(tuple(encoded["input_ids"]), range(inside[0], inside[-1] + 1), new_tokens)


def needle_span(sample: Sample) -> tuple[int, int]:
    """Characters of the asked needle in the prompt. Raises `UserError` where a sample has none."""
    form, value = FORMS.get(str(sample.axes.get("form"))), sample.references[0] if sample.references else ""
    for key in KEYS if form else ():
        text = form.needle.format(k=key, v=value) if form else ""
        if (start := sample.prompt.find(text)) >= 0:
            return start, start + len(text)
    raise UserError(f"Sample {sample.id} hides no needle, which head profiles need: use task=niah.")


@torch.no_grad()
def run(model: PreTrainedModel, given: Trial, kind: Kind, stops: Sequence[int]) -> tuple[Tensor, list[int]]:
    """Greedy answer with eager attention: scores (L, H·G) fp32 on the host, and the tokens without the stop token."""
    text = list(given.tokens)
    cache = DynamicCache(config=model.config)
    for start in range(0, len(text) - 1, BLOCK):
        _forward(model, text[start : min(start + BLOCK, len(text) - 1)], cache)
    scores, answer = torch.zeros(0), list[int]()
    for _ in range(given.new_tokens):
        output = _forward(model, text[-1:], cache, output_attentions=True)
        token = int(output.logits[0, -1].argmax())
        if token in stops:
            break
        rows = [layer[0, :, -1].float().cpu() for layer in output.attentions]
        step = torch.stack([SCORES[kind](row, token, text, given.needle) for row in rows])
        scores = step if not len(scores) else scores + step
        text.append(token)
        answer.append(token)
    return scores, answer


def copied(row: Tensor, token: int, text: Sequence[int], needle: range) -> Tensor:
    """R, (H·G,): 1 / needle where the strongest position of ``row`` (H·G, n) is in the needle and holds ``token``."""
    first = len(text) - row.shape[-1]  # layers with a sliding window see only the end of the text
    best = row.argmax(-1) + first
    hits = [position in needle and text[position] == token for position in best.tolist()]
    return torch.tensor(hits, dtype=torch.float32) / len(needle)


def attended(row: Tensor, token: int, text: Sequence[int], needle: range) -> Tensor:
    """R2, (H·G,): attention of the top-|needle| positions of ``row`` (H·G, n) that lie in the needle, / |needle|."""
    first = len(text) - row.shape[-1]
    top = row.topk(min(len(needle), row.shape[-1]), dim=-1)
    inside = (top.indices + first >= needle.start) & (top.indices + first < needle.stop)
    return (top.values * inside).sum(-1) / len(needle)


SCORES: dict[Kind, Callable[[Tensor, int, Sequence[int], range], Tensor]] = {"r": copied, "r2": attended}


def measure(
    model: PreTrainedModel, tokenizer: Any, task: Task, samples: Sequence[Sample], kind: Kind, stops: Sequence[int]
) -> list[list[list[float]]]:
    """``scores[layer][head]``: one number for every trial that was answered correctly."""
    model.set_attn_implementation("eager")  # other implementations return no attention
    recorded = []
    for sample in samples:
        scores, answer = run(model, trial(sample, tokenizer, kind), kind, stops)
        scored = task.score(sample, tokenizer.decode(answer, skip_special_tokens=True))
        if answer and scored[task.metrics[0]] > CORRECT:
            recorded.append(scores)
    if not recorded:
        raise UserError(
            f"The model answered none of {len(samples)} needles correctly, so its heads cannot be profiled: "
            "use shorter prompts (task.lengths=[256]) or a model that finds needles."
        )
    table: list[list[list[float]]] = torch.stack(recorded, dim=-1).tolist()
    return table


def _forward(model: PreTrainedModel, tokens: Sequence[int], cache: DynamicCache, **options: Any) -> Any:
    fed = torch.tensor([list(tokens)], device=model.device)
    return model(input_ids=fed, past_key_values=cache, use_cache=True, logits_to_keep=1, **options)
