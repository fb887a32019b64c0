"""From names and plain mappings to policies: the only place where parts are looked up by name."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from policies.ada import AdaKV
from policies.baselines import Oracle, Random, Recency
from policies.buzz import Buzz
from policies.caote import CAOTE, Correction, FastCAOTE
from policies.chunkkv import ChunkKV
from policies.criticalkv import CriticalKV
from policies.cur import CUR
from policies.dropkv import DropKV
from policies.duo_attention import DuoAttention
from policies.expected_attention import ExpectedAttention
from policies.fastgen import FastGen
from policies.gemfilter import TokenFilter
from policies.h2o import H2O
from policies.hashevict import HashEvict
from policies.headkv import HeadKV
from policies.keydiff import KeyDiff
from policies.kvec import KVec
from policies.kvzip import KVzip, ModelWide
from policies.l2 import L2
from policies.lagkv import LagKV
from policies.policy import Policy, PromptStage, Protect, Schedule
from policies.pyramid import PyramidKV
from policies.qfilters import QFilters
from policies.rkv import RKV
from policies.scissorhands import Scissorhands
from policies.scorer import Scorer
from policies.selection import Allocator, SkipLayers
from policies.snapkv import SnapKV
from policies.structure import StructuralPolicy, Structure
from policies.tova import TOVA
from policies.view import PolicyError

SCORERS: dict[str, Callable[..., Scorer]] = {
    "chunkkv": ChunkKV,
    "criticalkv": CriticalKV,
    "cur": CUR,
    "dropkv": DropKV,
    "expected_attention": ExpectedAttention,
    "h2o": H2O,
    "hashevict": HashEvict,
    "keydiff": KeyDiff,
    "kvec": KVec,
    "kvzip": KVzip,
    "oracle": Oracle,
    "qfilters": QFilters,
    "l2": L2,
    "lagkv": LagKV,
    "random": Random,
    "recency": Recency,
    "rkv": RKV,
    "scissorhands": Scissorhands,
    "snapkv": SnapKV,
    "tova": TOVA,
}
CORRECTIONS: dict[str, Callable[..., Correction]] = {"caote": CAOTE, "fastcaote": FastCAOTE}
ALLOCATORS: dict[str, Callable[..., Allocator]] = {
    "ada": AdaKV,
    "duo_attention": DuoAttention,
    "headkv": HeadKV,
    "model_wide": ModelWide,
    "pyramid": PyramidKV,
    "skip_layers": SkipLayers,
}
STRUCTURES: dict[str, Callable[..., Structure]] = {"buzz": Buzz, "fastgen": FastGen}

Part = TypeVar("Part")


SHOWN = 16  # known names, where none is near


def nearest(name: str, known: Iterable[str]) -> str:
    """The sentence that offers known names for an unknown one, the nearest first."""
    options = sorted(known)
    close = [each for each in options if each.startswith(f"{name}/")] or difflib.get_close_matches(name, options, n=3)
    if close:
        return f"Did you mean {' or '.join(close[:3])}?"
    if len(options) <= SHOWN:
        return f"Known: {', '.join(options)}."
    return f"The nearest of {len(options)} are {', '.join(difflib.get_close_matches(name, options, n=3, cutoff=0))}."


def build(config: Mapping[str, Any]) -> Policy:
    """A policy from a mapping of its parts (`PARTS`); parts are names or ``{name, **parameters}``.

    Raises `PolicyError` for unknown parts, unknown parameters and combinations that make no sense.
    """
    settings = {key: value for key, value in config.items() if value is not None}
    name = str(settings.pop("name", "unnamed"))
    for part in settings:
        if part not in PARTS:
            raise PolicyError(f"Policy '{name}' has no part '{part}'. {nearest(part, PARTS)}")
    kind = StructuralPolicy if "structure" in settings else Policy
    policy = kind(name=name, **{part: PARTS[part](spec) for part, spec in settings.items()})
    policy = _with_one_window(policy, settings.get("allocator"))
    policy = _with_protected(policy, "allocator", settings.get("allocator"), ("sinks",))
    return _with_protected(policy, "scorer", settings.get("scorer"))


def _with_one_window(policy: Policy, spec: Any) -> Policy:
    """The policy with the allocator's window set to protect.recent; `PolicyError` where the two differ.

    Our allocators count the recent tokens apart, so both settings must mean the same tokens.
    """
    allocator: Any = policy.allocator
    recent = policy.protect.recent
    if not isinstance(spec, str | Mapping) or not hasattr(allocator, "window"):
        return policy
    if 0 < recent < 1:
        raise PolicyError(
            f"Policy '{policy.name}' protects a share of recent tokens (policy.protect.recent={recent:g}), but its "
            "allocator counts them one by one: set policy.protect.recent to a whole number."
        )
    if isinstance(spec, str) or "window" not in spec:
        return dataclasses.replace(policy, allocator=dataclasses.replace(allocator, window=int(recent)))
    if allocator.window != recent:
        raise PolicyError(
            f"Policy '{policy.name}' protects {recent:g} recent tokens (policy.protect.recent), but its allocator "
            f"counts {allocator.window} (policy.allocator.window): set both to the same number."
        )
    return policy


def _with_protected(policy: Policy, role: str, spec: Any, names: Sequence[str] = ("sinks", "recent")) -> Policy:
    """The policy whose part means by sinks and recent tokens what is protected; `PolicyError` where they differ.

    Some scorers count these slots apart (LagKV, CriticalKV), or leave them out (Expected Attention), and so does AdaKV.
    """
    if not isinstance(spec, str | Mapping):
        return policy
    written = {} if isinstance(spec, str) else spec
    for name in names:
        part: Any = getattr(policy, role)
        meant = getattr(policy.protect, name)
        if not hasattr(part, name):
            continue
        if name not in written:
            policy = dataclasses.replace(policy, **{role: dataclasses.replace(part, **{name: meant})})
        elif getattr(part, name) != meant:
            raise PolicyError(
                f"Policy '{policy.name}' protects {meant:g} {PROTECTED[name]} (policy.protect.{name}), but its {role} "
                f"counts {getattr(part, name)} (policy.{role}.{name}): set both to the same number."
            )
    return policy


PROTECTED = {"sinks": "sinks", "recent": "recent tokens"}


def _prompt_stage(spec: Mapping[str, Any]) -> PromptStage:
    return PromptStage(
        scorer=_scorer("prompt_stage.scorer", spec.get("scorer", "")),
        protect=_construct("prompt_stage.protect", Protect, spec.get("protect") or {}),
    )


def _part(role: str, spec: str | Mapping[str, Any] | Part, known: Mapping[str, Callable[..., Part]]) -> Part:
    if not isinstance(spec, str | Mapping):
        return spec  # a part of the user's, built already
    parameters = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = str(parameters.pop("name", ""))
    if not name:
        raise PolicyError(f"The {role} has parameters but no name: add policy.{role}.name. {nearest(name, known)}")
    if name not in known:
        raise PolicyError(f"There is no {role} called '{name}'. {nearest(name, known)}")
    return _construct(f"{role} '{name}'", known[name], parameters)


def _scorer(role: str, spec: str | Mapping[str, Any] | Scorer) -> Scorer:
    """A scorer, and the one that it is over, from the same names."""
    if isinstance(spec, Mapping) and "base" in spec:
        try:
            spec = {**spec, "base": _scorer(f"{role}.base", spec["base"])}
        except TypeError as error:  # from Python; settings of a configuration have been checked before
            raise PolicyError(
                f"A setting of the {role}.base does not fit ({error}): give what policy.scorer takes under that name."
            ) from error
    return _part(role, spec, SCORERS)


def _construct(what: str, factory: Callable[..., Part], parameters: Mapping[str, Any]) -> Part:
    allowed = [field.name for field in dataclasses.fields(factory)]  # type: ignore[arg-type]
    for parameter in parameters:
        if parameter not in allowed:
            raise PolicyError(f"The {what} has no parameter '{parameter}'. {nearest(parameter, allowed)}")
    return factory(**parameters)


NAMED_PARTS: dict[str, Mapping[str, Callable[..., Any]]] = {
    "scorer": SCORERS,
    "correction": CORRECTIONS,
    "allocator": ALLOCATORS,
    "structure": STRUCTURES,
}
PLAIN_PARTS: dict[str, Callable[..., Any]] = {"protect": Protect, "schedule": Schedule, "token_filter": TokenFilter}
VALUES = ("rope", "hindsight", "logit_scale")
PARTS: dict[str, Callable[[Any], Any]] = {
    **{role: partial(_part, role, known=known) for role, known in NAMED_PARTS.items()},
    **{role: partial(_construct, role, kind) for role, kind in PLAIN_PARTS.items()},
    **{role: lambda value: value for role in VALUES},
    "scorer": partial(_scorer, "scorer"),
    "prompt_stage": _prompt_stage,
}
