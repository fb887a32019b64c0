"""``python -m harness``: the command line. Hydra composes, `harness.sweep` does the rest."""

from __future__ import annotations

import os
import sys

import hydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
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
            _hydra_main()
    except MENDABLE as error:
        _stop(str(error))
    except MissingConfigException as error:
        _stop(_unknown_option(error))
    except (HydraException, OmegaConfBaseException) as error:
        _stop(f"The command line could not be read: {' '.join(str(error).split())}")
    except KeyboardInterrupt:
        _stop("Stopped. What was finished is kept: run the same command again to go on from there.", 130)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")  # type: ignore[untyped-decorator]
def _hydra_main(config: DictConfig) -> None:
    sweep([config])


def _unknown_option(error: MissingConfigException) -> str:
    """Hydra's "could not find" as a sentence that offers the nearest names."""
    missing = (error.missing_cfg_file or "").removesuffix(".yaml")
    group, _, name = missing.partition("/")
    if not error.options or not name:
        return f"There is no configuration '{missing}'. Try: python -m harness list policies|tasks|models|exps"
    return f"There is no {group} called '{name}'. {nearest(name, names(group))}"


def _stop(sentence: str, code: int = 2) -> None:
    print(sentence, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
