"""The model card: what a model is, how it was made, and the numbers measured on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.testbed.curriculum import Curriculum


def card(config: Mapping[str, Any], plan: Curriculum, numbers: Mapping[str, Any]) -> str:
    """Markdown."""
    shape = config["model"]
    stages = "\n".join(
        f"| {stage.length} | {stage.steps * stage.sequences * stage.length / 1e6:.1f} M | {entry['mixture']} |"
        for stage, entry in zip(plan.stages, config["stages"], strict=True)
    )
    mixtures = "\n".join(f"* **{name}**: {_mixture(shares)}" for name, shares in config["mixtures"].items())
    lengths = sorted({int(length) for row in numbers["dense"].values() for length in row})
    head = "| task | " + " | ".join(map(str, lengths)) + " |\n" + "|---" * (len(lengths) + 1) + "|"
    rows = "\n".join(
        f"| `{task}` | " + " | ".join(_cell(row.get(str(length))) for length in lengths) + " |"
        for task, row in numbers["dense"].items()
    )
    return f"""# {config["name"]}

A Llama-architecture language model of {numbers["parameters"] / 1e6:.2f} million parameters that retrieves from its
context. It exists to tell eviction policies apart, not to write. Written by `scripts.train_testbed`.

| | |
|---|---|
| shape | hidden {shape["hidden_size"]}, {shape["num_hidden_layers"]} layers, {shape["num_attention_heads"]} query \
heads, {shape["num_key_value_heads"]} KV heads, head dim {shape["head_dim"]}, feed-forward \
{shape["intermediate_size"]}, tied embeddings |
| tokenizer | byte-level BPE of {shape["vocab_size"]}, digits one by one, the leading space attached to the first |
| weights | bfloat16 safetensors |
| trained on | {numbers["tokens"] / 1e6:.1f} M of {plan.tokens / 1e6:.1f} M planned tokens, seed {config["seed"]} |
| licence | Apache-2.0; training text in the public domain (US), transcriptions CC0 |

## How it was made
{_origin(config["start_from"])}

Seven novels (`tasks/books_train`) and exercises of the mini suite (`tasks/mini`) with training words and wordings; held
out are the novels of `tasks/books` and the words and wordings listed under `test` in `tasks/mini/splits.yaml` and
`tasks/mini/wordings.yaml`. The five wordings of `niah` are not held out; its key words are. Lists of random vocabulary
items, which teach induction, may contain any word.

| length | tokens | mixture |
|---|---|---|
{stages}

Mixtures, in shares of exercises (`scripts/testbed/ingredients.py`):

{mixtures}

## What it can do (dense, greedy, float32; headline metric of each task by prompt length)
{head}
{rows}

`book_perplexity` is e to the mean loss per token; a 5-gram model with the same tokenizer, training novels and windows
has {numbers["five_gram_perplexity"]:.1f}. Samples: {config["evaluation"]["repeats"]} per task and length.

## What may be concluded from it
Whether a policy keeps what a question needs, under a budget that is really enforced. Not how large the effect is in a
model of billions of parameters: its heads are few, its sinks and key geometry are its own.
"""


def _origin(start_from: str | None) -> str:
    if start_from is None:
        return "From scratch."
    return f"Continued from the weights of `{start_from}`; what those have seen is not held out."


def _mixture(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:g}" for name, share in shares.items())


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
