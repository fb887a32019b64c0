"""Policies and parts from outside of this repository: classes by their dotted names, and objects from Python code.

A configuration file can name any class, and importing a module runs it. So a name is only imported from packages that
the user has listed (``trusted=[my_pkg]``) or has installed with an entry point in the group ``kvreplica.policies``.
This is the only place that does so. Objects are registered in this process under a name that a configuration can hold.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import inspect
from collections.abc import Collection, Mapping
from typing import Any

from harness.config import identity
from harness.errors import UserError
from policies import Policy, nearest
from policies.registry import PARTS

ENTRY_POINTS = "kvreplica.policies"
_REGISTERED: dict[str, Policy] = {}  # objects of this process; their code and settings are part of every cell


def build_plugin(spec: Mapping[str, Any], trusted: Collection[str]) -> Any:
    """Build what ``{_target_: package.Class, **parameters}`` or ``{entry_point: name, **parameters}`` describes.

    Raises `UserError` for packages that are not trusted, names that do not exist and parameters that do not fit.
    """
    ours = {"_target_", "entry_point", "name", *PARTS}  # every policy's configuration carries our parts; not theirs
    parameters = {key: value for key, value in spec.items() if key not in ours}
    target, point = spec.get("_target_"), spec.get("entry_point")
    if not target and not point:
        raise UserError(
            "policy=outside needs to know which class: add policy._target_=my_pkg.MyPolicy trusted=[my_pkg], or "
            "policy.entry_point=<name> of an installed package."
        )
    factory = _imported(str(target), trusted) if target else _installed(str(point))
    try:
        return factory(**parameters)
    except TypeError as error:
        raise UserError(f"{target or point} cannot be built: {error}.") from error


def is_plugin(spec: Any) -> bool:
    """Whether a part of a configuration names a class instead of one of our parts."""
    return isinstance(spec, Mapping) and ("_target_" in spec or "entry_point" in spec)


def as_policy(thing: Any, name: str | None = None) -> Policy:
    """A policy as it is; a scorer becomes the plain policy that ranks by it, under ``name`` or that of its class.

    Raises `UserError` for what is neither, and for a policy that cannot be given a name.
    """
    if hasattr(thing, "keep"):
        if name and "name" not in getattr(type(thing), "__dataclass_fields__", {}):
            raise UserError(f"{type(thing).__name__} has no field 'name' that policy.name could set: leave that out.")
        return dataclasses.replace(thing, name=name) if name else thing  # type: ignore[no-any-return]
    if hasattr(thing, "score"):
        return Policy(name or type(thing).__name__.lower(), scorer=checked_scorer(thing))
    raise UserError(f"{type(thing).__name__} is neither a policy (with keep) nor a scorer (with score).")


def checked_scorer(thing: Any) -> Any:
    """A scorer from outside, as it is. Raises `UserError` for what is none."""
    if not hasattr(thing, "score"):
        raise UserError(f"{type(thing).__name__} is no scorer: it has no function score (docs/add-a-policy.md).")
    if not isinstance(getattr(thing, "state", None), Mapping):
        raise UserError(
            f"{type(thing).__name__} does not say what it carries from chunk to chunk (state): derive it from "
            "policies.scorer.Stateless, or see policies/h2o.py."
        )
    return thing


def _imported(target: str, trusted: Collection[str]) -> Any:
    module_name, _, name = target.rpartition(".")
    package = target.partition(".")[0]
    if not module_name:
        raise UserError(f"_target_={target} has no module: write the whole name, for example my_pkg.{target}.")
    if package not in {"policies", *trusted}:
        raise UserError(
            f"_target_={target} would run code of the package '{package}', which is not on the list of trusted "
            f"packages: add trusted=[{package}] if you trust it."
        )
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UserError(f"_target_={target} cannot be imported: {error}. Is the package on PYTHONPATH?") from error
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        raise UserError(f"The module {module_name} is not Python that can be read: {error}.") from error
    if not hasattr(module, name):
        classes = [known for known in vars(module) if not known.startswith("_")]
        raise UserError(f"The module {module_name} has no '{name}'. {nearest(name, classes)}")
    return getattr(module, name)


def _installed(name: str) -> Any:
    found = {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    if name not in found:
        raise UserError(
            f"No installed package offers the policy '{name}' (entry points in the group {ENTRY_POINTS}). "
            f"{nearest(name, found) if found else 'None is installed.'}"
        )
    return found[name].load()


def register_object(thing: Any) -> dict[str, str]:
    """Register a policy or scorer; the settings ``name`` and ``given`` of ``policy=outside`` that stand for it.

    Raises `UserError` for other objects, and for settings that cannot be part of an identity.
    """
    policy = _checked(thing)
    key = "object-" + identity.hash_data({"policy": _object_description(policy), "code": identity.policy_code(policy)})
    _REGISTERED[key] = policy
    return {"name": policy.name, "given": key}


def registered_object(config: Mapping[str, Any]) -> Policy:
    """The policy that `register_object` gave these settings. Raises `UserError` in another process."""
    if config["given"] not in _REGISTERED:
        raise UserError(
            f"Policy '{config.get('name')}' was an object in another Python process, and cannot be built here: run it "
            "there, or put its class into a file and use policy=outside (docs/add-a-policy.md)."
        )
    return _REGISTERED[config["given"]]


def _checked(thing: Any) -> Policy:
    if inspect.isclass(thing):
        raise UserError(f"{thing.__name__} is a class, and a policy is one of its objects: write {thing.__name__}().")
    policy = as_policy(thing)
    for part in (policy, policy.scorer):
        parameters = getattr(type(part), "__dataclass_params__", None)
        if part is not None and not (parameters and parameters.frozen and dataclasses.is_dataclass(part)):
            raise UserError(
                f"{type(part).__name__} is not a frozen dataclass, so the settings of its rows would be unknown: write "
                "@dataclass(frozen=True) before it."
            )
    return policy


def _object_description(policy: Policy) -> dict[str, Any]:
    described = identity.part_description(policy)
    try:
        identity.hash_data(described)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"Policy '{policy.name}' has a setting that cannot be part of a cell's identity ({error}): use numbers, "
            "texts, tuples of them, and parts that are frozen dataclasses."
        ) from error
    return described
