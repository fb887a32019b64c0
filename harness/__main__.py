"""``python -m harness``: the command line. Hydra composes, `harness.sweep` does the rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness import doctor

if TYPE_CHECKING:
    from omegaconf import DictConfig

QUICK_START = "+exp=quickstart"
COMPLETION = ("-sc", "--shell-completion", "--shell_completion")  # Hydra's: install=bash, query=bash, uninstall=bash


def main() -> None:
    """The command line. Exit code 0 = done, 2 = something the user can mend, in one sentence on stderr."""
    if len(sys.argv) == 1:
        sys.argv.append(QUICK_START)
    if sys.argv[1] == "doctor":
        sys.exit(doctor.main())  # before anything is imported that may be missing
    if sys.argv[1] in COMPLETION:
        return _run_composed(lambda jobs: None)  # without torch: a shell waits for it at every press of the tab key
    from harness.plain_words import errors_in_plain_words

    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises what it would print, and we say it in one sentence
    with errors_in_plain_words():
        if sys.argv[1] == "list":
            from harness.listing import listing

            print(listing(sys.argv[2] if len(sys.argv) > 2 else ""))
        elif sys.argv[1] == "plan":
            from harness.planning.command import show

            del sys.argv[1]
            _run_composed(show)
        else:
            from harness.sweep import sweep

            _run_composed(sweep)


def _run_composed(use: Callable[[Sequence[DictConfig]], None]) -> None:
    """Hydra composes, one job or all jobs of ``-m``; they are used here together, when Hydra is done."""
    import hydra
    from hydra.core.plugins import Plugins

    from harness.listing import CONF
    from hydra_plugins.kvreplica_launcher import SweepLauncher

    Plugins.instance().register(SweepLauncher)  # Hydra finds it by itself only where this folder is on sys.path
    jobs: list[DictConfig] = []
    hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(jobs.append)()
    if jobs:
        use(jobs)


if __name__ == "__main__":
    main()
