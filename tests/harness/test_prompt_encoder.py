"""From sample to tokens: LongBench's cut in the middle, chat formats with one beginning-of-text token, stop tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.config.model import ModelSpec
from harness.errors import UserError
from harness.runner.prompt_encoder import DATE, PromptEncoder, truncate_middle
from tasks.base import WHOLE_CONTEXT, Sample, TaskError

TEMPLATE = (
    "{{ bos_token }}[{{ date_string }}]{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TEXT = "It was a bright cold day in April, and the clocks were striking thirteen. " * 20


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = ModelSpec.parse({"path": "bundled/testbed"}).tokenizer()
    tokenizer.chat_template = TEMPLATE
    return tokenizer


class Numbers:
    """Tokens 0 to 9 are the words 0 to 9."""

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, tokens, skip_special_tokens: bool) -> str:
        return "".join(f" {token}" for token in tokens)


@pytest.mark.parametrize(("most", "left"), [(5, [0, 1, 8, 9]), (4, [0, 1, 8, 9]), (10, list(range(10)))])
def test_the_official_cut_keeps_both_halves(most, left):
    """tasks.md 2.3: an odd maximum keeps one token less."""
    text = "0 1 2 3 4 5 6 7 8 9"
    assert [int(word) for word in truncate_middle(Numbers(), text, most).split()] == left


def test_plain_prompts_are_the_tokenizers(tokenizer):
    sample = Sample("a", TEXT, answer_prefix="Answer:", chat=True, system="Be brief.")
    assert PromptEncoder(tokenizer).encode(sample) == tokenizer.encode(TEXT + "Answer:")


def test_chat_prompts_are_wrapped_once(tokenizer):
    sample = Sample("a", "Who?", answer_prefix=" It was", chat=True, system="Be brief.")
    said = tokenizer.decode(PromptEncoder(tokenizer, chat=True).encode(sample))
    assert said == f"{tokenizer.bos_token}[{DATE}]<system>Be brief.<user>Who?<assistant> It was"
    assert tokenizer.decode(PromptEncoder(tokenizer, chat=True).encode(replace(sample, chat=False, system=""))) == (
        f"{tokenizer.bos_token}Who? It was"
    )


@pytest.mark.parametrize(("double", "count"), [(False, 1), (True, 2)])
def test_the_beginning_of_text_stands_once_unless_asked(tokenizer, double, count):
    tokens = PromptEncoder(tokenizer, chat=True, double_bos=double).encode(Sample("a", "Who?", chat=True))
    assert tokens[:3].count(tokenizer.bos_token_id) == count


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("longest", [60, WHOLE_CONTEXT])
def test_what_is_too_long_is_cut_to_what_the_model_can_read(tokenizer, chat, longest):
    sample = Sample("a", TEXT, max_new_tokens=20, longest=longest, chat=True)
    tokens = PromptEncoder(tokenizer, chat=chat, context=128).encode(sample)
    assert len(tokens) <= min(128 - 20, longest + 30)
    assert len(tokens) >= min(128 - 20, longest) - 8
    said = tokenizer.decode(tokens, skip_special_tokens=True)
    assert "It was a bright" in said
    assert "striking thirteen." in said[-30:] or chat


def test_what_may_not_be_cut_is_left_alone(tokenizer):
    sample = Sample("a", TEXT, max_new_tokens=20)
    assert PromptEncoder(tokenizer, context=128).encode(sample) == tokenizer.encode(TEXT)


def test_a_context_with_no_room_ends(tokenizer):
    """The engine refuses the prompt afterwards, with a sentence."""
    sample = Sample("a", TEXT, max_new_tokens=200, longest=WHOLE_CONTEXT)
    assert len(PromptEncoder(tokenizer, context=128).encode(sample)) < 10


def test_stop_texts_are_their_last_token(tokenizer):
    newline = tokenizer.encode("\n", add_special_tokens=False)[-1]
    assert PromptEncoder(tokenizer).stops(Sample("a", "Who?", stop_tokens=("\n",))) == {newline}


def test_a_chat_format_that_is_not_there_is_refused():
    with pytest.raises(UserError, match=r"no chat format: set model\.chat=false"):
        PromptEncoder.for_model(ModelSpec.parse({"name": "testbed", "path": "bundled/testbed", "chat": True}))


# The question at the end of a prompt, which `prompt_split=context` holds back.

ASKED = Sample("a", f"{TEXT}\nWho was cold?", question="\nWho was cold?", answer_prefix=" It was", chat=True)


@pytest.mark.parametrize("chat", [False, True])
def test_the_question_is_everything_after_the_context(tokenizer, chat):
    encoder = PromptEncoder(tokenizer, chat=chat)
    tokens, context = encoder.encode(ASKED), encoder.context_tokens(ASKED)
    said = tokenizer.decode(tokens)
    before, after = tokenizer.decode(tokens[:context]), tokenizer.decode(tokens[context:])
    assert before + after == said
    assert before.endswith("thirteen. ")
    assert after == f"\nWho was cold?{'<assistant>' * chat} It was"


def test_a_token_with_characters_of_both_belongs_to_the_question(tokenizer):
    """Else the context would end with a letter of what is asked."""
    sample = Sample("a", "The clocks were striking thirteen", question="teen")
    encoder = PromptEncoder(tokenizer)
    tokens, context = encoder.encode(sample), encoder.context_tokens(sample)
    assert tokenizer.decode(tokens[context:]).endswith("teen")
    assert "The clocks were striking thirteen".startswith(tokenizer.decode(tokens[1:context]))


def test_the_middle_is_cut_out_of_the_context_alone(tokenizer):
    sample = replace(ASKED, longest=100)
    encoder = PromptEncoder(tokenizer, context=4096)
    tokens, context = encoder.encode(sample), encoder.context_tokens(sample)
    assert len(tokens) <= 100 + len(tokenizer.encode(" It was"))
    assert tokenizer.decode(tokens[context:]) == "\nWho was cold? It was"


@pytest.mark.parametrize("sample", [Sample("a", TEXT), replace(ASKED, longest=4)], ids=["none", "cut into"])
def test_a_prompt_without_its_question_cannot_be_split(tokenizer, sample):
    with pytest.raises(TaskError, match="Sample a has no question that ends its prompt as it is fed"):
        PromptEncoder(tokenizer, context=4096).context_tokens(sample)


def test_a_prompt_that_is_all_question_has_no_context(tokenizer):
    tokenizer = ModelSpec.parse({"path": "bundled/testbed"}).tokenizer()
    tokenizer.add_bos_token = False
    encoder = PromptEncoder(tokenizer)
    sample = Sample("a", "Who was cold?", question="Who was cold?")
    if encoder.encode(sample)[0] != tokenizer.bos_token_id:
        with pytest.raises(TaskError, match="Sample a is all question"):
            encoder.context_tokens(sample)
