"""The shipped presets, composed by Hydra as the command line composes them."""

from __future__ import annotations

from functools import cache

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from harness.listing import CONF, names
from policies import Policy, build


@cache
def policy(name: str) -> Policy:
    """The policy that ``policy=<name>`` gives."""
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config = compose("config", overrides=[f"policy={name}"])
    return build(OmegaConf.to_container(config.policy))


PRESETS = tuple(names("policy"))
EVICTING = tuple(name for name in PRESETS if not policy(name).is_dense)
