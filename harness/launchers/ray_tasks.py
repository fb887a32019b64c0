"""``launcher=ray``: workers as Ray tasks, on a cluster that runs already or one of this machine."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from harness.errors import UserError
from harness.launchers.counts import count_of
from harness.launchers.order import Order, work
from harness.terminal import say


def start(order: Order, settings: Mapping[str, Any]) -> None:
    """Start the tasks and wait for them. Ray runs a task again, elsewhere, whose node was lost, ``retries`` times.

    Raises `UserError` without ray and where no cluster answers at ``address``.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise UserError("launcher=ray needs ray: pip install -e '.[ray]'.") from error
    count, retries = count_of(settings, "workers"), count_of(settings, "retries", least=0)
    address = settings.get("address")
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(
            f"No Ray cluster answers at launcher.address={address}: start one with 'ray start --head', or leave the "
            "address out for one on this machine."
        ) from error
    try:
        resources = {"num_cpus": settings["cpus"], "num_gpus": settings["gpus"]}
        _refuse_impossible(ray.cluster_resources(), resources)
        task = ray.remote(max_retries=retries, scheduling_strategy="SPREAD", **resources)(work)
        file = order.write()
        say(f"{count} Ray tasks on {len(ray.nodes())} nodes")
        try:
            _wait(ray, [task.remote(str(file)) for _ in range(count)])
        finally:
            file.unlink(missing_ok=True)
    finally:
        ray.shutdown()


def _wait(ray: Any, tasks: list[Any]) -> None:
    """Until all have ended; those that failed are named, and the others take over their work."""
    for task in tasks:
        try:
            ray.get(task)
        except ray.exceptions.RayError as error:
            say(f"A Ray task failed: {str(error).strip().splitlines()[-1]}")


def _refuse_impossible(cluster: Mapping[str, float], wanted: Mapping[str, Any]) -> None:
    """A task that no node can hold would wait for ever."""
    for resource, key in (("CPU", "num_cpus"), ("GPU", "num_gpus")):
        if wanted[key] > cluster.get(resource, 0):
            raise UserError(
                f"The Ray cluster has {cluster.get(resource, 0):g} {resource}, and each worker asks for {wanted[key]}: "
                f"set launcher.{key.removeprefix('num_')} lower."
            )
