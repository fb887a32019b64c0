"""The diagnostic ``survivors``: what it stores is the whole history of the cache, and its text is the text."""

from __future__ import annotations

import pytest
from diagnostics.runs import BLOCKS, LENGTH, frames

from harness.analysis.token_diagnostics import STAYS, pieces, survivors_summary
from harness.config.model import ModelSpec
from harness.engine.requests import Prompting


@pytest.mark.parametrize("name", ["keydiff", "random", "dense"])
@pytest.mark.parametrize("feed", [BLOCKS, Prompting("one_shot")], ids=["blocks", "one shot"])
def test_the_tokens_held_after_every_step_follow_from_it(name, feed):
    found = frames(name, 33, "survivors", "kept", prompting=feed, continuation=[5, 6, 7])
    survivors, kept = found["survivors"], found["kept"]
    for step, part in kept.groupby("step"):
        stays = (survivors["left_at"] == STAYS) | (survivors["left_at"] > step)
        held = survivors[(survivors["fed_in"] <= step) & stays]
        places = ["layer", "head", "position"]
        assert held[places].to_numpy().tolist() == part[places].sort_values(places).to_numpy().tolist()
        phases = survivors.loc[survivors["fed_in"] == step, "phase"]
        assert set(phases) == set(part["phase"])


def test_the_window_lets_go_in_the_order_of_the_text():
    survivors = frames("window", 10, "survivors")["survivors"]
    first = survivors[(survivors["layer"] == 0) & (survivors["head"] == 0)]
    assert first["position"].tolist() == list(range(LENGTH))
    # Blocks of 8 and ten slots: after block b the last ten of 8 b + 8 tokens are there.
    expected = [min(step for step in range(5) if place < 8 * step + 8 - 10) for place in range(30)]
    assert first["left_at"].tolist() == expected + [STAYS] * 10


def test_the_summary_counts_tokens_by_the_heads_that_hold_them():
    table = survivors_summary(frames("window", 10, "survivors")["survivors"])
    assert table.to_dict("list") == {"heads": [6, 0], "tokens": [10, LENGTH - 10]}


@pytest.mark.parametrize("text", ["The needle is 09623.\n", "naïve — “quoted” 漢字 🙂 end", "a  b\n\n\tc"])
def test_the_pieces_of_a_text_are_the_text(text):
    tokenizer = ModelSpec.parse({"name": "testbed", "path": "bundled/testbed", "dtype": "float32"}).tokenizer()
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    found = pieces(tokenizer, tokens)
    assert len(found) == len(tokens)
    assert "".join(found) == text
    assert not any("\ufffd" in piece for piece in found)


class Leading:
    """A tokenizer that drops the space in front of what it decodes, as SentencePiece's do."""

    words = (" once", " upon", " a", " time")

    def decode(self, tokens, **_):
        return "".join(self.words[token] for token in tokens).lstrip()


def test_spaces_at_the_start_of_a_word_are_not_lost():
    assert pieces(Leading(), [0, 1, 2, 3]) == ["once", " upon", " a", " time"]
