"""Composes configurations with Hydra from overrides, and turns its errors into one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf

from harness.config.experiments import CONF, option_names
from harness.config.settings import check_config
from harness.errors import UserError
from policies import nearest


def compose_config(overrides: Sequence[str]) -> DictConfig:
    """The configuration of ``python -m harness`` with these overrides. Raises `UserError` where there is none."""
    with composing_errors(), initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return compose("config", overrides=list(overrides))


def checked_config(config: DictConfig) -> dict[str, Any]:
    """Resolved, as plain dicts and lists. Raises `UserError` for a setting of the wrong type."""
    with composing_errors():
        found = OmegaConf.to_container(config, resolve=True)
    assert isinstance(found, dict)
    plain = {str(key): value for key, value in found.items()}
    check_config(plain)
    return plain


@contextmanager
def composing_errors() -> Iterator[None]:
    """Raise what goes wrong while Hydra composes as `UserError`.

    Any exception but OSError: only the user's words and files are at work here, and besides its own errors Hydra lets
    those of Python and YAML pass, for a word that is no option, a file with a tab or one that includes itself.
    """
    try:
        yield
    except MissingConfigException as error:  # which is an OSError
        raise UserError(_unknown_option(error)) from error
    except (UserError, OSError):
        raise
    except RecursionError as error:
        raise UserError(
            "A configuration file includes itself, or has an alias that does: check its defaults."
        ) from error
    except Exception as error:
        raise UserError(_unreadable(error)) from error


def _unknown_option(error: MissingConfigException) -> str:
    """Hydra's "could not find" as a sentence that offers the nearest names."""
    missing = (error.missing_cfg_file or "").removesuffix(".yaml")
    group, _, name = missing.partition("/")
    if not error.options or not name:
        return f"There is no configuration '{missing}'. Try: python -m harness list policies|tasks|models|exps"
    return f"There is no {group} called '{name}'. {nearest(name, option_names(group))}"


def _unreadable(error: Exception) -> str:
    """The complaint as one sentence, with the nearest settings where it names one."""
    message = str(error) or type(error).__name__
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
    if match := re.search(r"Ambiguous value for argument '(([^=]+)=([^']*))'", message):
        return f"{match[1]} is several values: add -m to run each of them, or write {match[2]}=[{match[3]}] for a list."
    what = "The command line" if isinstance(error, HydraException) else "The configuration"
    return f"{what} could not be read: {' '.join(message.split())}"
