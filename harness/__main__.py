"""``python -m harness``: compose configurations, run what is missing, show a table, write a page."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness import launcher
from harness.cells import Cell
from harness.errors import MENDABLE, UserError
from harness.listing import CONF, listing
from harness.models import pick_device
from harness.report import summary_table, write_report
from harness.runner import Sweep, run
from harness.terminal import Progress, console, show_summary
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
            launcher.register(_sweep)
            _hydra_main()
    except MENDABLE as error:
        _stop(str(error))
    except MissingConfigException as error:
        _stop(_unknown_option(error))
    except (HydraException, OmegaConfBaseException) as error:
        _stop(f"The command line could not be read: {' '.join(str(error).split())}")
    except KeyboardInterrupt:
        _stop("Stopped. What was finished is kept: run the same command again to go on from there.", 130)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def _hydra_main(config: DictConfig) -> None:
    _sweep([config])


def _sweep(configs: Sequence[DictConfig]) -> None:
    """All jobs of one command as one sweep."""
    plain = [OmegaConf.to_container(config, resolve=True) for config in configs]
    cells = [Cell.parse(config) for config in plain]  # type: ignore[arg-type]
    first = configs[0]
    limit = first.limit
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise UserError(f"limit={limit} leaves nothing to run: give the number of samples per cell, at least 1.")
    results_dir = Path(first.results_dir)
    sweep = run(cells, results_dir, pick_device(first.device), limit, Progress())
    _report(sweep, str(first.name), results_dir)


def _report(sweep: Sweep, name: str, results_dir: Path) -> None:
    rows = sweep.store.load(sweep.cell_ids)
    page = results_dir / "reports" / f"{name}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    write_report(rows, page, title=name, notes=())
    show_summary(summary_table(rows))
    broken = rows[rows["invalid"] != ""]
    for sentence, part in broken.groupby("invalid"):
        console.print(f"[bold red]Invalid[/]: {', '.join(sorted(set(part['policy'])))}: {sentence}")
    if sweep.computed == 0:
        console.print(f"Nothing to compute: all {sweep.present} samples were there already.")
    else:
        console.print(f"{sweep.computed} samples computed, {sweep.present} were there already.")
    console.print(f"Rows:   {sweep.store.root}\nReport: {page}", highlight=False)


def _unknown_option(error: MissingConfigException) -> str:
    """Hydra's "could not find" as a sentence that offers the nearest names."""
    missing = (error.missing_cfg_file or "").removesuffix(".yaml")
    group, _, name = missing.partition("/")
    if not error.options or not name:
        return f"There is no configuration '{missing}'. Try: python -m harness list policies|tasks|models|exps"
    from harness.listing import names

    return f"There is no {group} called '{name}'. {nearest(name, names(group))}"


def _stop(sentence: str, code: int = 2) -> None:
    print(sentence, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
