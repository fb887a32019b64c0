"""From the ``policy`` group of a configuration to a policy object.

What needs files, a tokenizer or code of other packages is filled in here: head profiles, token ids, plugins. FastGen
keeps special tokens and punctuation by kind (policies.md 3.12), so their ids come from the model's tokenizer.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from harness.config.compose import compose_config, to_plain
from harness.config.head_profiles import with_profile
from harness.config.model import ModelSpec
from harness.config.plugins import as_policy, build_plugin, is_plugin, registered_object
from policies import Policy, build


def policy_from(config: Mapping[str, Any], model: ModelSpec, trusted: Collection[str] = ()) -> Policy:
    """The policy that this configuration describes. Raises the errors of `harness.config.cell.USER_ERRORS`."""
    if "given" in config:
        return registered_object(config)
    if is_plugin(config):
        return as_policy(build_plugin(config, trusted))
    parts = {key: build_plugin(spec, trusted) if is_plugin(spec) else spec for key, spec in config.items()}
    return build(with_token_ids(with_profile(parts, model), model))


@cache
def preset(name: str) -> Mapping[str, Any]:
    """The ``policy`` group as ``policy=<name>`` composes it."""
    return dict(to_plain(compose_config([f"policy={name}"]))["policy"])


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
