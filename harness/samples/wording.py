"""From a sample to the tokens that a model reads: cut in the middle, chat format, start of the answer.

The order is LongBench's (tasks.md 2.3): fill, cut, wrap, encode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tasks.base import Sample

DATE = "26 Jul 2024"  # for templates that name the day (Llama 3.1), or results would change with it


@dataclass(frozen=True)
class Wording:
    """How one model is spoken to. ``context``: positions it has, tokens; None where its configuration does not say."""

    tokenizer: Any
    chat: bool = False  # whether samples that want a chat format get the tokenizer's
    double_bos: bool = False  # the second beginning-of-text token of AdaKV's released code
    context: int | None = None

    def encoded(self, sample: Sample) -> list[int]:
        """The prompt's tokens, special ones included."""
        text = sample.prompt
        most = self._most(sample)
        while most is not None:
            text = cut_in_the_middle(self.tokenizer, sample.prompt, most)
            # Cutting between other characters than the tokenizer would can cost some tokens more.
            excess = len(self._encoded(sample, text)) + sample.max_new_tokens - (self.context or 2**62)
            if excess <= 0 or most <= 0:
                break
            most -= excess
        return self._encoded(sample, text)[: sample.truncate_to]

    def stops(self, sample: Sample) -> frozenset[int]:
        """The last token of each of the sample's stop texts."""
        encoded = (self.tokenizer.encode(text, add_special_tokens=False) for text in sample.stop_tokens)
        return frozenset(tokens[-1] for tokens in encoded)

    def _most(self, sample: Sample) -> int | None:
        """Tokens of the prompt that are left, or None where nothing may be cut."""
        if sample.longest is None:
            return None
        if self.context is None:
            return sample.longest
        wrapping = len(self._encoded(sample, ""))
        return min(sample.longest, self.context - sample.max_new_tokens - wrapping)

    def _encoded(self, sample: Sample, text: str) -> list[int]:
        if not (sample.chat and self.chat):
            return list(self.tokenizer.encode(text + sample.answer_prefix))
        messages = [{"role": "system", "content": sample.system}] if sample.system else []
        messages.append({"role": "user", "content": text})
        wrapped = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, date_string=DATE
        )
        wrapped += sample.answer_prefix
        begins = self.tokenizer.bos_token is not None and wrapped.startswith(self.tokenizer.bos_token)
        return list(self.tokenizer.encode(wrapped, add_special_tokens=self.double_bos or not begins))


def cut_in_the_middle(tokenizer: Any, text: str, most: int) -> str:
    """``text``, or its first and last ``most // 2`` tokens, decoded without special tokens and joined with nothing."""
    tokens = tokenizer.encode(text)
    if len(tokens) <= most:
        return text
    half = max(0, most) // 2
    first, last = tokens[:half], tokens[len(tokens) - half :]
    return str(tokenizer.decode(first, skip_special_tokens=True) + tokenizer.decode(last, skip_special_tokens=True))
