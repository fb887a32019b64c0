"""The tape: what it says was seen and held is what the cache's tensors say; recording changes nothing."""

from __future__ import annotations

import pytest
import torch
from diagnostics.runs import BLOCKS, LENGTH, model, policy, tape
from engine.tiny import prompt

from harness.analysis.ranking_diagnostics import RankWatcher
from harness.analysis.recording import TapeRecorder, follow
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request, reason_against

FEEDS = [BLOCKS, Prompting("token_fed"), Prompting("one_shot")]
NAMES = ["window", "h2o", "keydiff", "snapkv", "pyramidkv", "hashevict", "buzz", "oracle"]
DEFINED = [(name, feed) for name in NAMES for feed in FEEDS if not reason_against(policy(name), feed)]


class Positions:
    """Everything held after each pass, as plain sets."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, int, int], set[int]] = {}

    def attended(self, work) -> None:
        self.step = work.batch.passes - 1

    def evicted(self, work) -> None:
        for head, row in enumerate(work.layer.slot_positions[0]):
            self.held[self.step, work.index, head] = {p for p in row.tolist() if p >= 0}

    def predicted(self, batch, logits) -> None:
        pass


@pytest.mark.parametrize(("name", "feed"), DEFINED, ids=str)
def test_it_holds_what_the_cache_holds(name, feed):
    watcher, recorder = Positions(), TapeRecorder(vectors=False, logits=False)
    row = Request(prompt(LENGTH), policy(name), 34)
    with torch.inference_mode():
        follow(model(), row, [3, 4, 5], feed, [watcher, recorder])
    recorded = recorder.tape([*row.tokens, 3, 4, 5], LENGTH, "")
    for moment in recorded.passes:
        held = recorded.held_after(moment)
        for (step, layer, head), wanted in watcher.held.items():
            if step == moment.step:
                assert set(held[layer, head].nonzero().flatten().tolist()) == wanted


@pytest.mark.parametrize("name", ["h2o", "keydiff", "caote_tova"])
@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_attention_over_what_it_says_was_seen_gives_the_recorded_output(name, kind):
    recorded = tape(name, 12, kind=kind)
    for layer, vectors in enumerate(recorded.vectors):
        for query_head in range(len(vectors.queries)):
            head = query_head // vectors.group
            logits = vectors.queries[query_head] @ vectors.keys[head].T * vectors.scaling
            if vectors.softcap:
                logits = vectors.softcap * torch.tanh(logits / vectors.softcap)
            hidden = recorded.evicted_for(layer, head, slice(0, LENGTH)) | torch.ones_like(logits).triu(1).bool()
            output = logits.masked_fill(hidden, -torch.inf).softmax(-1) @ vectors.values[head]
            torch.testing.assert_close(output, vectors.outputs[query_head], atol=1e-5, rtol=1e-4)


def test_watching_changes_no_output():
    watchers = [TapeRecorder(vectors=True, logits=True), RankWatcher()]
    row = Request(prompt(LENGTH), policy("caote_h2o"), 12, 6)
    plain = Engine(model()).generate([row], BLOCKS)
    assert Engine(model(), watchers=watchers).generate([row], BLOCKS) == plain
    assert watchers[1].rows
    watched = Engine(model(), watchers=[TapeRecorder(vectors=True, logits=True)]).perplexity([row], BLOCKS)
    assert watched == Engine(model()).perplexity([row], BLOCKS)


def test_a_forced_run_of_the_models_own_tokens_is_its_generation():
    row = Request(prompt(LENGTH), policy("keydiff"), 12, 6)
    (outcome,) = Engine(model()).generate([row], BLOCKS)
    recorded = tape("keydiff", 12, continuation=outcome.tokens)
    assert recorded.logits[LENGTH - 1 : -1].argmax(-1).tolist() == outcome.tokens
    assert recorded.invalid == ""
