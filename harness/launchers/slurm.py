"""``launcher=slurm``: an array of workers by submitit, with the results folder as all that they share."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

from harness.errors import UserError
from harness.launchers.counts import count_of
from harness.launchers.order import Order, work
from harness.terminal import say

CLUSTERS = ("slurm", "local")


def start(order: Order, settings: Mapping[str, Any]) -> None:
    """Submit the array and wait for it. A job that fails is named; the others go on and take over its work.

    Raises `UserError` without submitit, without Slurm, and for settings that submitit does not know.
    """
    try:
        submitit = importlib.import_module("submitit")
    except ImportError as error:
        raise UserError("launcher=slurm needs submitit: pip install -e '.[slurm]'.") from error
    count = count_of(settings, "workers")
    cluster = str(settings["cluster"])
    if cluster not in CLUSTERS:
        raise UserError(f"launcher.cluster={cluster} is neither slurm nor local (processes here, for trying it out).")
    folder = order.results_dir.resolve() / "logs" / "slurm"
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        executor.update_parameters(**_parameters(settings, cluster))
    except (RuntimeError, NameError, TypeError, ValueError) as error:
        raise UserError(f"Slurm cannot be given this ({' '.join(str(error).split())}): check launcher.*") from error
    file = order.write()
    jobs = executor.map_array(functools.partial(_work, str(file)), list(range(count)))
    say(f"{count} array jobs ({', '.join(str(job.job_id) for job in jobs)}); what they say is in {folder}")
    for job in jobs:
        failure = job.exception()
        if failure is not None:
            say(f"Array job {job.job_id} failed: {str(failure).strip().splitlines()[-1]}")
    file.unlink(missing_ok=True)  # not where this command is stopped: the array goes on


def _work(file: str, number: int) -> int:
    """One array job. All of them are the same: units are claimed, not dealt out."""
    return work(file)


def _parameters(settings: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    parameters = dict(settings.get("parameters") or {})
    if cluster == "local":  # submitit's local executor knows neither partitions nor accounts
        return {key: value for key, value in parameters.items() if not key.startswith("slurm_")}
    return parameters
