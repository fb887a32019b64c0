"""The trained model as a transformers folder: weights, tokenizer, numbers, card."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

import tasks
from harness.errors import UserError
from scripts.testbed import arithmetic, network, optimisers, words
from scripts.testbed.card import card
from scripts.testbed.curriculum import Curriculum
from scripts.testbed.evaluate import evaluate
from scripts.testbed.five_gram import FiveGram
from scripts.testbed.training_loop import CHECKPOINT
from tasks.mini.material import material


def export(config: Mapping[str, Any], folder: Path) -> Path:
    """Writes ``folder``/export from the checkpoint, evaluates what was written, and adds its card.

    Weights are bfloat16; the numbers are measured after that rounding, in float32. Raises `UserError` where there is no
    checkpoint.
    """
    if not (folder / CHECKPOINT).is_file():
        raise UserError(
            f"There is nothing to export: {folder / CHECKPOINT} is not there. Train first (make testbed), or say where "
            "the checkpoint lies with out=<folder>."
        )
    plan = Curriculum.parse(config)
    model = network.build(config["model"], config["seed"])
    both = optimisers.Optimisers(model, config["optimisers"], arithmetic.chosen(config))
    step = optimisers.load(folder / CHECKPOINT, model, both)
    target = folder / "export"
    write(model, folder / words.FILE, target)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(target)
    shipped = LlamaForCausalLM.from_pretrained(target, dtype=torch.float32).to(config["device"])
    numbers = {
        "tokens": plan.done(step),
        "steps": step,
        "parameters": shipped.num_parameters(),
        "five_gram_perplexity": _five_gram(tokenizer, config["evaluation"]["windows"]),
        "dense": evaluate(shipped, tokenizer, **config["evaluation"]),
    }
    (target / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    (target / "MODEL_CARD.md").write_text(card(config, plan, numbers), encoding="utf-8")
    return target


def _five_gram(tokenizer: PreTrainedTokenizerFast, windows: int) -> float:
    novels = [tokenizer.encode(novel.text, add_special_tokens=False) for novel in material("train").novels]
    samples = tasks.build("book_perplexity", windows=windows).samples(tokenizer)
    return FiveGram(novels, len(tokenizer)).perplexity([tokenizer.encode(s.prompt)[: s.truncate_to] for s in samples])


def write(model: LlamaForCausalLM, tokenizer: Path, target: Path) -> None:
    """Weights as bfloat16 safetensors, configuration and tokenizer; ``model`` itself becomes bfloat16."""
    model.to(torch.bfloat16).save_pretrained(target)
    shutil.copy(tokenizer, target / words.FILE)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.config.max_position_embeddings,
    }
    (target / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
