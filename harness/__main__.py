"""``python -m harness``: the command line. Hydra composes, `harness.sweep` does the rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import hydra
from hydra.core.plugins import Plugins
from omegaconf import DictConfig

from harness.listing import CONF, listing
from harness.plain_words import errors_in_plain_words
from harness.planning import show
from harness.sweep import sweep
from hydra_plugins.kvreplica_launcher import SweepLauncher

QUICK_START = "+exp=quickstart"


def main() -> None:
    """The command line. Exit code 0 = done, 2 = something the user can mend, in one sentence on stderr."""
    if len(sys.argv) == 1:
        sys.argv.append(QUICK_START)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises what it would print, and we say it in one sentence
    with errors_in_plain_words():
        if sys.argv[1] == "list":
            print(listing(sys.argv[2] if len(sys.argv) > 2 else ""))
        elif sys.argv[1] == "plan":
            del sys.argv[1]
            _run_composed(show)
        else:
            _run_composed(sweep)


def _run_composed(use: Callable[[Sequence[DictConfig]], None]) -> None:
    """Hydra composes, one job or all jobs of ``-m``; they are used here together, when Hydra is done."""
    Plugins.instance().register(SweepLauncher)  # Hydra finds it by itself only where this folder is on sys.path
    jobs: list[DictConfig] = []
    hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(jobs.append)()
    if jobs:
        use(jobs)


if __name__ == "__main__":
    main()
