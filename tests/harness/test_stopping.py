"""Texts that end a generation."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config.model import ModelSpec
from harness.runner.prompt_encoder import StopTexts, truncate_at_stops

TOKENIZER = ModelSpec("testbed", "bundled/testbed").tokenizer()
WORDS = TOKENIZER.encode("It was — “näïve” — a\n\nQuestion: what’s the 日本 end?\n", add_special_tokens=False)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    texts=st.lists(st.sampled_from(["\n\n", " the", "Question:", "日", "— a", "e", "no such text"]), min_size=1),
)
def test_a_generation_ends_with_the_token_that_completes_a_text(seed, texts):
    """Said token by token, it ends exactly where the whole text first holds one of them, in whatever tokens."""
    draw = random.Random(seed)
    tokens = [draw.choice(WORDS) for _ in range(40)]
    until = StopTexts(tuple(texts), TOKENIZER)
    ends = [n for n in range(1, 41) if until(tokens[:n])]
    said = [TOKENIZER.decode(tokens[:n], skip_special_tokens=True) for n in range(1, 41)]
    first = next((n for n, text in enumerate(said, 1) if any(stop in text for stop in texts)), None)
    assert (ends[0] if ends else None) == first


def test_what_stands_before_every_stop_is_left():
    assert truncate_at_stops("one. two\nthree", ("\n", ".")) == "one"
    assert truncate_at_stops("one", ("\n",)) == "one"
    assert truncate_at_stops("\none", ("\n",)) == ""
    assert truncate_at_stops("one", ()) == "one"
