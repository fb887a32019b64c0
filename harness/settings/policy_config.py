"""From the ``policy`` group to a policy: what needs files, a tokenizer or other people's code is filled in here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from harness.listing import CONF
from harness.models import ModelSpec
from harness.profiles.files import with_profile
from harness.samples.token_kinds import with_token_ids
from harness.settings.given import recall
from harness.settings.outside import as_policy, construct, is_outside
from policies import Policy, build


def policy_from(config: Mapping[str, Any], model: ModelSpec, trusted: Collection[str] = ()) -> Policy:
    """Raises the errors of `harness.errors.MENDABLE`."""
    if "given" in config:
        return recall(config)
    if is_outside(config):
        return as_policy(construct(config, trusted))
    parts = {key: construct(spec, trusted) if is_outside(spec) else spec for key, spec in config.items()}
    return build(with_token_ids(with_profile(parts, model), model))


@cache
def preset(name: str) -> Mapping[str, Any]:
    """The ``policy`` group as ``policy=<name>`` composes it."""
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config = OmegaConf.to_container(compose("config", overrides=[f"policy={name}"]), resolve=True)
    assert isinstance(config, dict)
    return dict(config["policy"])
