"""Composes configurations with Hydra from overrides, and turns its errors into one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.config.experiments import CONF, option_names
from harness.errors import UserError
from policies import nearest


def compose_config(overrides: Sequence[str]) -> DictConfig:
    """The configuration of ``python -m harness`` with these overrides. Raises Hydra's errors."""
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return compose("config", overrides=list(overrides))


def to_plain(config: DictConfig) -> dict[str, Any]:
    """Resolved, as plain dicts and lists."""
    found = OmegaConf.to_container(config, resolve=True)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


@contextmanager
def hydra_as_user_errors() -> Iterator[None]:
    """Raise Hydra's errors about unknown names and settings as `UserError`."""
    try:
        yield
    except MissingConfigException as error:
        raise UserError(unknown_option(error)) from error
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(unreadable_overrides(str(error))) from error


def unknown_option(error: MissingConfigException) -> str:
    """Hydra's "could not find" as a sentence that offers the nearest names."""
    missing = (error.missing_cfg_file or "").removesuffix(".yaml")
    group, _, name = missing.partition("/")
    if not error.options or not name:
        return f"There is no configuration '{missing}'. Try: python -m harness list policies|tasks|models|exps"
    return f"There is no {group} called '{name}'. {nearest(name, option_names(group))}"


def unreadable_overrides(message: str) -> str:
    """Hydra's complaint about an override as one sentence, with the nearest settings where it names one."""
    if match := re.search(r"Could not override '([^'.@]+)'", message):
        known = [
            *map(str, OmegaConf.load(CONF / "config.yaml")),
            "exp",
            "launcher",
            "logger",
            "model",
            "policy",
            "scale",
            "task",
        ]
        return f"There is no setting '{match[1]}'. {nearest(match[1], {*known} - {'defaults', 'hydra'})}"
    return f"The command line could not be read: {' '.join(message.split())}"
