"""The shipped presets, composed by Hydra as the command line composes them."""

from __future__ import annotations

from functools import cache

from composed import each_of
from omegaconf import OmegaConf

from harness.config.experiments import option_names
from harness.config.model import ModelSpec
from harness.config.policy_config import policy_from
from harness.engine.requests import Prompting, reason_against
from policies import Policy

PRESETS = tuple(option_names("policy"))
FOR_ONE_MODEL = (
    "gemfilter/llama31-8b",
    "duo_attention",
    "headkv_r",
    "headkv_r2",
    "kvec",
    "outside",
    "qfilters",
    "qfilters/kvpress",
)  # need depth, profile, heads, a class


@cache
def policy(name: str) -> Policy:
    """The policy that ``policy=<name>`` gives."""
    config = OmegaConf.to_container(each_of("policy")[name], resolve=True)
    return policy_from(config["policy"], ModelSpec.parse(config["model"]))


EVICTING = tuple(name for name in PRESETS if name not in FOR_ONE_MODEL and not policy(name).is_dense)


def evicting_in(feed: Prompting, budget: int) -> list[str]:
    """Presets that work in this regime and whose protected slots fit the budget."""
    return [
        name
        for name in EVICTING
        if not reason_against(policy(name), feed) and policy(name).protect.smallest_budget() <= budget
    ]


def runs_on(config, chosen: Policy) -> bool:
    """Whether this architecture can run the policy: positions inside the cache need one plain rotary table."""
    return chosen.rope == "absolute" or config.model_type != "gemma3_text"


def alike_groups(chosen: list[str]) -> list[list[str]]:
    """Names that may share a batch: ragged caches and positions inside the cache run apart."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name in chosen:
        groups.setdefault((policy(name).rope, policy(name).uniform), []).append(name)
    return list(groups.values())
