"""The tokenizer: byte-level BPE of the training novels and of the words that exercises are made of."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from scripts.testbed.ingredients import INGREDIENTS
from tasks.mini.material import ExerciseMaterial

# Digits one by one, each with the space before it: a space of its own would carry no trace of the key, and the first
# digit of a value could not be found (design/testbed.md).
PIECES = r" ?\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPECIAL = ["<s>", "</s>", "<pad>"]
LINES = 300  # of each ingredient
REPEATS = 100  # of each word, so that it becomes one token
FILE = "tokenizer.json"


def trained(vocabulary: int, training: ExerciseMaterial, held_out: ExerciseMaterial) -> tokenizers.Tokenizer:
    """Of the held-out material the tokenizer sees the words alone, no wording and no novel. Adds ``<s>`` itself."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(training, held_out), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer


def saved(
    folder: Path, vocabulary: int, training: ExerciseMaterial, held_out: ExerciseMaterial
) -> tokenizers.Tokenizer:
    """The tokenizer in ``folder``, trained once."""
    file = folder / FILE
    if not file.exists():
        trained(vocabulary, training, held_out).save(str(file))
    return tokenizers.Tokenizer.from_file(str(file))


def _texts(training: ExerciseMaterial, held_out: ExerciseMaterial) -> Iterator[str]:
    for novel in training.novels:
        yield novel.text
    rng = random.Random("tokenizer")
    for write in INGREDIENTS.values():
        for _ in range(LINES):
            exercise = write(rng, training, 200)
            yield "\n".join([exercise.context, *(question.text + question.answer for question in exercise.questions)])
    for source in (training, held_out):
        words = [*source.adjectives, *source.nouns, *source.names, *source.labels]
        yield from ((" " + " ".join(words)) for _ in range(REPEATS))
