"""``python -m harness``: the command line. Hydra composes, `harness.sweep` does the rest."""

from __future__ import annotations

import os
import re
import sys

import hydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.errors import MENDABLE
from harness.listing import CONF, listing, names
from harness.sweep import sweep
from policies import nearest

QUICK_START = "+exp=quickstart"


def main() -> None:
    """The command line. Exit code 0 = done, 2 = something the user can mend, in one sentence on stderr."""
    if len(sys.argv) == 1:
        sys.argv.append(QUICK_START)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises what it would print, and we say it in one sentence
    try:
        if sys.argv[1] == "list":
            print(listing(sys.argv[2] if len(sys.argv) > 2 else ""))
        else:
            _run_composed()
    except MENDABLE as error:
        _stop(str(error))
    except MissingConfigException as error:
        _stop(_unknown_option(error))
    except (HydraException, OmegaConfBaseException) as error:
        _stop(_unreadable(str(error)))
    except OSError as error:
        _stop(
            f"{error.filename or 'A file'} cannot be used ({error.strerror}): check it, or choose another results_dir."
        )
    except KeyboardInterrupt:
        _stop("Stopped. What was finished is kept: run the same command again to go on from there.", 130)


def _run_composed() -> None:
    """Hydra composes; a single job runs here, outside of Hydra, the jobs of ``-m`` in our launcher plugin."""
    single: list[DictConfig] = []
    hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(single.append)()
    if single:
        sweep(single)


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
        known = [*map(str, OmegaConf.load(CONF / "config.yaml")), "model", "policy", "task"]
        return f"There is no setting '{match[1]}'. {nearest(match[1], {*known} - {'defaults', 'hydra'})}"
    return f"The command line could not be read: {' '.join(message.split())}"


def _stop(sentence: str, code: int = 2) -> None:
    print(sentence, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
