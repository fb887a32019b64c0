"""From the ``policy`` group of a configuration to a policy object.

What needs files, a tokenizer or code of other packages is filled in here: head profiles, token ids, plugins. FastGen
keeps special tokens and punctuation by kind (policies.md 3.12), so their ids come from the model's tokenizer.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from omegaconf import OmegaConf

from harness.config.compose import checked_config, compose_config
from harness.config.experiments import default_settings
from harness.config.head_profiles import with_profile
from harness.config.model import ModelSpec
from harness.config.plugins import as_policy, build_plugin, checked_scorer, is_plugin, registered_object
from harness.config.settings import Named
from harness.config.type_check import check_settings, check_value
from harness.errors import UserError
from policies import Policy, build
from policies.registry import NAMED_PARTS, PARTS, PLAIN_PARTS, VALUES


def policy_from(config: Mapping[str, Any], model: ModelSpec, trusted: Collection[str] = ()) -> Policy:
    """The policy that this configuration describes. Raises the errors of `harness.config.cell.USER_ERRORS`."""
    if "given" in config:
        return registered_object(config)
    if is_plugin(config):
        return _policy_of_plugin(config, model, trusted)
    check_settings(Named, config, "policy")
    _check_parts(config)
    parts = {key: build_plugin(spec, trusted) if is_plugin(spec) else spec for key, spec in config.items()}
    if is_plugin(config.get("scorer")):
        checked_scorer(parts["scorer"])
    return build(with_token_ids(with_profile(parts, model), model))


def _policy_of_plugin(config: Mapping[str, Any], model: ModelSpec, trusted: Collection[str]) -> Policy:
    """A policy from outside, or one that ranks by a scorer from outside and has the configuration's other parts."""
    thing = build_plugin(config, trusted)
    policy = as_policy(thing, check_value(str | None, config.get("name"), "policy.name"))
    parts = {part: config[part] for part in PARTS if config.get(part) is not None}
    given = [part for part in parts if parts[part] != _default_parts().get(part)]
    if policy.scorer is thing and "scorer" not in given:
        _check_parts(parts)
        return build(with_token_ids(with_profile({**parts, "name": policy.name, "scorer": thing}, model), model))
    if given:
        kind = "a scorer itself" if policy.scorer is thing else "a whole policy, with parts of its own"
        raise UserError(f"policy.{given[0]} is not read: {type(thing).__name__} is {kind}. Leave the setting out.")
    return policy


@cache
def _default_parts() -> Mapping[str, Any]:
    """The parts that every policy's configuration has where nothing sets them."""
    found: Any = OmegaConf.to_container(default_settings().policy)
    return found  # type: ignore[no-any-return]


def _check_parts(config: Mapping[str, Any], key: str = "policy") -> None:
    """Raise `UserError` for a part, or a parameter of one, of the wrong type. Unknown names are left to `build`."""
    values = {name: spec for name, spec in config.items() if name in ("name", *VALUES) and spec is not None}
    check_settings(Policy, {"name": "unnamed", **values}, key)
    for part, spec in config.items():
        where = f"{key}.{part}"
        if spec is None or is_plugin(spec):
            continue
        if part in NAMED_PARTS:
            _check_named(NAMED_PARTS[part], spec, where)
        elif part in PLAIN_PARTS:
            check_settings(PLAIN_PARTS[part], spec, where)
        elif part == "prompt_stage":
            _check_parts(check_value(Mapping[str, Any], spec, where), where)


def _check_named(kinds: Mapping[str, Any], spec: Any, where: str) -> None:
    """A part that is a name or ``{name, …}``, and the scorer that it is over, if any."""
    named = {"name": spec} if isinstance(spec, str) else check_value(str | Mapping[str, Any], spec, where)
    check_value(str, named.get("name", ""), f"{where}.name")
    if kind := kinds.get(named.get("name", "")):
        check_settings(kind, named, where)
    if named.get("base") is not None:
        _check_named(kinds, named["base"], f"{where}.base")


@cache
def preset(name: str) -> Mapping[str, Any]:
    """The ``policy`` group as ``policy=<name>`` composes it. Raises `UserError` for a name that is none."""
    return dict(checked_config(compose_config([f"policy={name}"]))["policy"])


def with_token_ids(policy: Mapping[str, Any], model: ModelSpec) -> Mapping[str, Any]:
    """A policy's configuration whose unset token ids have been filled in from the model's tokenizer."""
    structure = policy.get("structure")
    if not isinstance(structure, Mapping):
        return policy
    unset = [kind for kind in KINDS if kind in structure and structure[kind] is None]
    if not unset:
        return policy
    return {**policy, "structure": {**structure, **{kind: _token_ids(kind, model) for kind in unset}}}


@cache  # it reads the whole vocabulary
def _token_ids(kind: str, model: ModelSpec) -> tuple[int, ...]:
    return KINDS[kind](model.tokenizer())


def _special(tokenizer: Any) -> tuple[int, ...]:
    return tuple(sorted(tokenizer.all_special_ids))


def _punctuation(tokenizer: Any) -> tuple[int, ...]:
    """Vocabulary pieces that consist of ASCII punctuation, surrounding blanks aside."""
    pieces = ((index, tokenizer.decode([index]).strip(" ")) for index in range(len(tokenizer)))
    return tuple(index for index, piece in pieces if piece and all(char in string.punctuation for char in piece))


KINDS = {"special_ids": _special, "punctuation_ids": _punctuation}
