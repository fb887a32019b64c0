"""From the settings ``launcher`` to workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.errors import UserError
from harness.finished import Finished
from harness.launchers import local, ray_tasks, slurm, watching
from harness.launchers.order import Order
from harness.planning.plan import Plan, plan
from harness.samples.prompts import Prompts
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
    before = _plans(order, prompts)
    if any(work.jobs for work in before):
        with watching.shown(Store(order.results_dir / "runs"), before):
            STARTERS[name](order, settings)
    after = _plans(order, prompts)
    if missing := sum(len(work.jobs) for work in after):
        raise UserError(
            f"{missing} samples are missing and no worker is left. What was finished is kept: run the same command "
            "again to go on from there; what workers said is in the folder named above."
        )
    present, now = (sum(work.present for work in plans) for plans in (before, after))
    return Finished(order.unique_cells, Store(order.results_dir / "runs"), now - present, present)


def _plans(order: Order, prompts: Prompts) -> list[Plan]:
    """What is in the store and what is not, by model. Also every check that needs no weights."""
    store = Store(order.results_dir / "runs")
    models = dict.fromkeys(cell.model for cell in order.unique_cells)
    plans = [
        plan(model, [cell for cell in order.unique_cells if cell.model == model], store, prompts, order.terms.shard)
        for model in models
    ]
    store.check_writable()
    return plans
