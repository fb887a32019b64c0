"""Writes conf/samples/<scale>.yaml: how many samples each experiment runs (harness/papers/sample_plan.py).

python -m scripts.plan_samples [--scale mini] [--pilot results/reference …] [--minutes 30] [--processes 2]

With ``--pilot`` conf/samples/<scale>_pilot.csv is made first, from the rows of finished sweeps of other seeds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd

import tasks
from harness import load_rows
from harness.config.compose import compose_config
from harness.config.experiments import CONF
from harness.config.model import ModelSpec
from harness.console import say
from harness.errors import UserError
from harness.papers.claim_pilot import FIXED_PLACES, pilot_file, pilot_of, pooled, stored_pilot, write_pilot
from harness.papers.published import OF_OUR_MODELS, Scale, model_of
from harness.papers.sample_plan import PROCESSES, SETTINGS, PlanSettings, SamplePlan, sample_plan

HEAD = """\
# Samples per cell of each experiment where neither the command line nor its grid gives a limit, and their seed.
# Written by `python -m scripts.plan_samples` from {pilot}, the same papers with samples of other seeds:
# {minutes:.0f} minutes of {processes} processes, of which {expected:.0f} claims about rows are expected to be decided.
# A cell has the greatest number of the rules that are about it, at least `fewest`. Beside each rule: its claims.
"""


def text(plan: SamplePlan, processes: int) -> str:
    """The file."""
    planned = SETTINGS[plan.scale]
    fewest = ", ".join(f"{regime}: {samples}" for regime, samples in planned.fewest.items())
    lines = [f"seed: {planned.seed}", f"fewest: {{{fewest}}}", "items:"]
    for item, rules in plan.rules().items():
        lines.append(f"  {item}:{'' if rules else ' []'}")
        for rule, claims in rules.items():
            where = "".join(
                f", {key}: [{', '.join(values)}]"
                for key, values in (("tasks", rule.tasks), ("policies", rule.policies), ("budgets", rule.budgets))
                if values
            )
            lines.append(f"    - {{samples: {rule.samples}{where}}}  # {', '.join(claims)}")
    spent = plan.seconds / 60 / processes
    return HEAD.format(
        pilot=pilot_file(plan.scale).name, minutes=spent, processes=processes, expected=plan.expected
    ) + "\n".join([*lines, ""])


def check_unread(pilot: pd.DataFrame, planned: PlanSettings) -> None:
    """Raises `UserError` where a pilot has read what the sweep would test: the same seed, or the same novels."""
    seed = planned.seed
    if seed in set(pilot["seed"]):
        raise UserError(f"The pilot has samples of seed {seed}, with which the sweep is planned: choose another seed.")
    fixed = pilot[pilot["task"].isin(FIXED_PLACES)].drop_duplicates("sample_id")
    if fixed.empty:
        return
    settings = json.loads(fixed["config"].iloc[-1])["task"]
    task = tasks.build(settings["name"], length=settings["length"], windows=settings["windows"], seed=seed)
    first = task.samples(ModelSpec.parse(compose_config([])["model"]).tokenizer())[: planned.unread]
    if read := {sample.id for sample in first} & set(fixed["sample_id"]):
        raise UserError(
            f"The pilot has read {len(read)} of the {planned.unread} windows of novels with which seed {seed} begins: "
            "choose a seed that begins with another quarter of them."
        )


def main() -> None:
    """Plan, write, and say what was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=OF_OUR_MODELS, default="mini", help="whose samples are planned")
    parser.add_argument("--pilot", type=Path, nargs="+", help="results folders, of which the pilot is made")
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="that the sweep of all papers may take (0: the plan's)"
    )
    parser.add_argument("--processes", type=int, default=PROCESSES, help="that it runs with")
    given = parser.parse_args()
    scale: Scale = given.scale
    if given.pilot:
        loaded = map(load_rows, given.pilot)
        sweeps = [rows[rows["model"] == model_of(scale)] for rows in loaded]
        try:
            check_unread(pd.concat(sweeps), SETTINGS[scale])  # pooled, a cell names one of its seeds
        except UserError as error:
            raise SystemExit(str(error)) from None
        write_pilot(pilot_of(pooled(sweeps), scale), scale)
        stored_pilot.cache_clear()
    plan = sample_plan(scale, given.minutes, given.processes)
    file = CONF / "samples" / f"{scale}.yaml"
    file.write_text(text(plan, given.processes))
    say(f"{file.name}: {plan.expected:.0f} claims in {plan.seconds / 60 / given.processes:.0f} minutes")


if __name__ == "__main__":
    main()
