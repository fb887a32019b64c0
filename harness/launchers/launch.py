"""From the settings ``launcher`` to workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.errors import UserError
from harness.launchers import local, ray_tasks, slurm
from harness.launchers.order import Order
from harness.plan import plan
from harness.prompts import Prompts
from harness.runner import Finished
from harness.store import Store
from harness.terminal import Progress
from policies import nearest

Settings = Mapping[str, Any]
STARTERS: dict[str, Callable[[Order, Settings], None]] = {
    "local": local.start,
    "slurm": slurm.start,
    "ray": ray_tasks.start,
}


def launch(order: Order, settings: Settings, prompts: Prompts, progress: Progress) -> Finished:
    """Run an order to its end by the launcher of that name; with ``none`` this process is the only worker.

    Raises `UserError` for a launcher that does not exist or whose package is missing, and where samples are missing
    although no worker is left.
    """
    name = str(settings["name"])
    if name == "none":
        return order.work(prompts, progress)
    if name not in STARTERS:
        raise UserError(f"There is no launcher called '{name}'. {nearest(name, ['none', *STARTERS])}")
    before, missing = _present(order, prompts)
    if missing:
        STARTERS[name](order, settings)
    after, missing = _present(order, prompts)
    if missing:
        raise UserError(
            f"{missing} samples are missing and no worker is left. What was finished is kept: run the same command "
            "again to go on from there; what workers said is in the folder named above."
        )
    return Finished(order.unique_cells, Store(order.results_dir / "runs"), after - before, before)


def _present(order: Order, prompts: Prompts) -> tuple[int, int]:
    """Samples that are in the store, and samples that are not. Also every check that needs no weights."""
    store = Store(order.results_dir / "runs")
    models = dict.fromkeys(cell.model for cell in order.unique_cells)
    plans = [
        plan(model, [cell for cell in order.unique_cells if cell.model == model], store, prompts, order.terms.shard)
        for model in models
    ]
    store.check_writable()
    return sum(p.present for p in plans), sum(len(p.jobs) for p in plans)
