"""Continuations: their tokens are those that lm-evaluation-harness would score, and a sample's rows stay together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.config.model import ModelSpec
from harness.engine.engine import Engine
from harness.engine.requests import Prompting, Request
from harness.integrations.lm_eval import KVReplica
from harness.runner.memory import Footprint
from harness.runner.plan import Job, Plan
from harness.runner.prompt_encoder import PromptEncoder, split_continuations
from harness.runner.samples import likeliest, likelihoods
from policies import DENSE
from tasks.base import Likelihood, Sample, TaskError

SPEC = ModelSpec("testbed", "bundled/testbed")
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
PROMPTS = ["It was the best of", "It was the best of ", "Answer:\n\n", "Who? ", "(A) one\n(B) two\nAnswer:"]
TEXTS = (" times", "times", " 12345", "12345", " a longer continuation, of two clauses.", "\n")


@pytest.fixture(scope="module")
def wording():
    return PromptEncoder.for_model(SPEC)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_prompt_and_continuations_have_the_tokens_that_lm_eval_gives_them(prompt, wording):
    lm = KVReplica(policy="dense")
    sample = Sample("a", prompt, continuations=TEXTS)
    tokens, continuations = split_continuations(sample, wording)
    for text, given in zip(TEXTS, continuations, strict=True):
        assert (tokens, given) == lm._encode_pair(prompt, text)


def test_the_start_of_the_answer_is_part_of_the_prompt(wording):
    whole = split_continuations(Sample("a", "Who? It was ", continuations=TEXTS), wording)
    assert split_continuations(Sample("a", "Who?", answer_prefix=" It was ", continuations=TEXTS), wording) == whole


@pytest.mark.parametrize(("ends", "said"), [(" ", ""), ("\n", "\n")])
def test_in_a_chat_the_prompt_is_the_wrapped_message_up_to_what_the_continuation_changes(ends, said):
    """A template that ends in a blank would otherwise leave a word without its space, or without any token."""
    tokenizer = SPEC.tokenizer()
    tokenizer.chat_template = TEMPLATE.replace("<assistant>", f"<assistant>{ends}")
    sample = Sample("a", "Who? ", chat=True, continuations=("me", "you"))
    prompt, continuations = split_continuations(sample, PromptEncoder(tokenizer, chat=True))
    assert tokenizer.decode(prompt) == f"{tokenizer.bos_token}<user>Who? <assistant>{said}"
    for text, given in zip(sample.continuations, continuations, strict=True):
        assert tokenizer.decode(prompt + given) == f"{tokenizer.bos_token}<user>Who? <assistant>{ends}{text}"


def test_a_continuation_without_tokens_is_refused(wording):
    with pytest.raises(TaskError, match=r"^The continuation '' adds no token to the prompt of sample a"):
        split_continuations(Sample("a", "Who?", continuations=("me", "")), wording)
    with pytest.raises(TaskError, match=r"^The continuation 'x' adds no token to its context"):
        KVReplica(policy="dense")._loglikelihood_tokens([(("Who?", "x"), [5, 6], [])])


def test_likelihoods_are_the_sums_of_what_the_model_says(wording):
    """Against a plain forward pass of transformers over prompt and continuation."""
    import torch

    model = SPEC.load("cpu")
    sample = Sample("a", "It was the best of", continuations=(" times", " all the men in the world"))
    prompt, continuations = split_continuations(sample, wording)
    rows = [Request(prompt, DENSE, 0, len(given), continuation=given) for given in continuations]
    found = likelihoods(Engine(model).follow(rows, Prompting("blocked", 4)))
    for each, given in zip(found, continuations, strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + given])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        assert each.tokens == len(given)
        assert each.nats == pytest.approx(sum(float(logits[i, token]) for i, token in enumerate(given)), abs=1e-4)
        assert each.greedy == (logits.argmax(-1).tolist() == list(given))


def test_the_likeliest_is_the_one_with_most_nats_and_the_first_of_equals():
    sample = Sample("a", "", continuations=("x", "y", "z"))
    found = [Likelihood(-3.0, 1, False), Likelihood(-2.0, 9, False), Likelihood(-2.0, 1, True)]
    assert likeliest(sample, found) == "y"


def test_the_rows_of_a_sample_stay_together_whatever_memory_there_is():
    cell = replace(KVReplica(policy="dense").cell)
    rows = tuple(Request([3] * 40, DENSE, 0, n, continuation=[4] * n) for n in (1, 5, 2))
    jobs = tuple(Job(cell, Sample(name, ""), rows) for name in "abc")
    work = Plan(SPEC, (cell,), jobs, 0, SPEC.shape(), Footprint.of(SPEC.config(), "float32"))
    assert [len(wave) for wave in work.waves(0)] == [1, 1, 1]
    (everything,) = work.batches(2**40)
    assert sum(len(job.rows) for job in everything) == 9
    assert everything[0].row is rows[1]  # the longest tells of its slots
    assert work.tokens == 3 * (3 * 40 + 1 + 5 + 2)
