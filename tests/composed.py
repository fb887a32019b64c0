"""Configurations as the command line composes them, each once for all tests of a process, which only read it."""

from __future__ import annotations

from functools import cache

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from harness.config.experiments import CONF


@cache
def composed(*overrides: str, with_hydra: bool = False) -> DictConfig:
    """The configuration of ``python -m harness`` with these overrides."""
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return compose("config", overrides=list(overrides), return_hydra_config=with_hydra)
