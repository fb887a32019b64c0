"""Configurations as the command line composes them, each once for all tests of a process, which only read it."""

from __future__ import annotations

from functools import cache

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from harness.config.experiments import CONF
from harness.config.jobs import with_each_file


@cache
def composed(*overrides: str, with_hydra: bool = False) -> DictConfig:
    """The configuration of ``python -m harness`` with these overrides."""
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return compose("config", overrides=list(overrides), return_hydra_config=with_hydra)


@cache
def each_of(group: str) -> dict[str, DictConfig]:
    """The configuration with each file of a group, by name."""
    return with_each_file(group, lambda typed: composed(*typed))


def without(config: DictConfig, *groups: str) -> DictConfig:
    """The configuration without some of its groups."""
    return OmegaConf.masked_copy(config, [key for key in config if key not in groups])
