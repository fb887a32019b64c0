"""Three kinds of tokenizers: the testbed's, byte-pair encoding with a marker, and whole words with unknowns."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import tokenizers
from tokenizers import models, pre_tokenizers, processors, trainers

from tasks.haystack import novels

ROOT = Path(__file__).parents[2]


class Fast:
    """The methods that tasks use, of a tokenizer of the library ``tokenizers``."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.backend = backend

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return self.backend.encode(text, add_special_tokens=add_special_tokens).ids


def _trained(model, trainer, splitter, marker: str) -> Fast:
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = splitter
    backend.train_from_iterator([novels()[0].text[:60_000]], trainer)
    identifier = backend.token_to_id(marker)
    backend.post_processor = processors.TemplateProcessing(single=f"{marker} $A", special_tokens=[(marker, identifier)])
    return Fast(backend)


@lru_cache
def three() -> dict[str, Fast]:
    special = ["<s>", "<unk>"]
    bpe = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    words = trainers.WordLevelTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    return {
        "testbed": Fast(tokenizers.Tokenizer.from_file(str(ROOT / "harness/testbed/tokenizer.json"))),
        "bytes and pairs": _trained(models.BPE(), bpe, pre_tokenizers.ByteLevel(), "<s>"),
        "whole words": _trained(models.WordLevel(unk_token="<unk>"), words, pre_tokenizers.Whitespace(), "<s>"),
    }
