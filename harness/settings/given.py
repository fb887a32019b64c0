"""Policies that Python code gives as objects. A configuration is plain text, so it holds a name for each of them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from harness.errors import UserError
from harness.origin import fingerprint, identity
from harness.settings.outside import as_policy
from policies import Policy

_GIVEN: dict[str, Policy] = {}  # of this process; what its code and its settings are is in every cell


def remember(thing: Any) -> dict[str, str]:
    """``name`` and ``given``, the settings of ``policy=outside`` that `recall` finds this policy or scorer by.

    Raises `UserError` for what is neither, and for what no identity could be made of.
    """
    policy = _checked(thing)
    key = "object-" + fingerprint.of_data({"policy": _description(policy), "code": identity.policy_code(policy)})
    _GIVEN[key] = policy
    return {"name": policy.name, "given": key}


def recall(config: Mapping[str, Any]) -> Policy:
    """The policy that `remember` described so. Raises `UserError` in another process."""
    if config["given"] not in _GIVEN:
        raise UserError(
            f"Policy '{config.get('name')}' was an object in another Python process, and cannot be built here: run it "
            "there, or put its class into a file and use policy=outside (docs/add-a-policy.md)."
        )
    return _GIVEN[config["given"]]


def _checked(thing: Any) -> Policy:
    if inspect.isclass(thing):
        raise UserError(f"{thing.__name__} is a class, and a policy is one of its objects: write {thing.__name__}().")
    policy = as_policy(thing)
    for part in (policy, policy.scorer):
        parameters = getattr(type(part), "__dataclass_params__", None)
        if part is not None and not (parameters and parameters.frozen and dataclasses.is_dataclass(part)):
            raise UserError(
                f"{type(part).__name__} is not a frozen dataclass, so nobody could say which settings its rows were "
                "made with: write @dataclass(frozen=True) before it."
            )
    return policy


def _description(policy: Policy) -> dict[str, Any]:
    described = identity.described(policy)
    try:
        fingerprint.of_data(described)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"Policy '{policy.name}' has a setting that cannot be part of a cell's identity ({error}): use numbers, "
            "texts, tuples of them, and parts that are frozen dataclasses."
        ) from error
    return described
