"""Every command's way out: what a user can mend ends in one sentence on stderr and exit code 2, not in a traceback."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import HydraException, MissingConfigException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.errors import MENDABLE, UserError
from harness.listing import CONF, names
from policies import nearest


@contextmanager
def errors_in_plain_words() -> Iterator[None]:
    """Run a command's body; exit code 2 for bad input, 130 for Ctrl-C. Anything else is our own mistake."""
    try:
        yield
    except MENDABLE as error:
        _stop(str(error))
    except MissingConfigException as error:
        _stop(_unknown_option(error))
    except (HydraException, OmegaConfBaseException) as error:
        _stop(_unreadable(str(error)))
    except BrokenPipeError:  # whoever reads our lines (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _stop(
                "The disk is full. What was finished is kept: make room, or choose another results_dir=<folder>, and "
                "run the same command again to go on from there."
            )
        place = error.filename or "A file"
        _stop(f"{place} cannot be used ({error.strerror}): check it, or choose another results_dir.")
    except KeyboardInterrupt:
        _stop("Stopped. What was finished is kept: run the same command again to go on from there.", 130)


@contextmanager
def hydra_as_user_errors() -> Iterator[None]:
    """What Hydra says of names and settings that do not exist, as a `UserError`: for Python, which has no exit code."""
    try:
        yield
    except MissingConfigException as error:
        raise UserError(_unknown_option(error)) from error
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_unreadable(str(error))) from error


def _unknown_option(error: MissingConfigException) -> str:
    """Hydra's "could not find" as a sentence that offers the nearest names."""
    missing = (error.missing_cfg_file or "").removesuffix(".yaml")
    group, _, name = missing.partition("/")
    if not error.options or not name:
        return f"There is no configuration '{missing}'. Try: python -m harness list policies|tasks|models|exps"
    return f"There is no {group} called '{name}'. {nearest(name, names(group))}"


def _unreadable(message: str) -> str:
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


def _stop(sentence: str, code: int = 2) -> None:
    print(sentence, file=sys.stderr)
    sys.exit(code)
