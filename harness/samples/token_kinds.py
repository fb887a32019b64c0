"""Which token ids are special and which are punctuation: FastGen keeps them by kind (policies.md 3.12)."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

from harness.models import ModelSpec


def with_token_ids(policy: Mapping[str, Any], model: ModelSpec) -> Mapping[str, Any]:
    """A policy's configuration whose unset token ids have been filled in from the model's tokenizer."""
    structure = policy.get("structure")
    if not isinstance(structure, Mapping):
        return policy
    unset = [kind for kind in KINDS if kind in structure and structure[kind] is None]
    if not unset:
        return policy
    tokenizer = model.tokenizer()
    return {**policy, "structure": {**structure, **{kind: KINDS[kind](tokenizer) for kind in unset}}}


def _special(tokenizer: Any) -> tuple[int, ...]:
    return tuple(sorted(tokenizer.all_special_ids))


def _punctuation(tokenizer: Any) -> tuple[int, ...]:
    """Vocabulary pieces that consist of ASCII punctuation, surrounding blanks aside."""
    pieces = ((index, tokenizer.decode([index]).strip(" ")) for index in range(len(tokenizer)))
    return tuple(index for index, piece in pieces if piece and all(char in string.punctuation for char in piece))


KINDS = {"special_ids": _special, "punctuation_ids": _punctuation}
