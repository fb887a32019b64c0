"""Writes conf/samples.yaml: how many samples each experiment runs at scale=mini (harness/papers/sample_plan.py).

python -m scripts.plan_samples [--minutes 33] [--processes 2]
"""

from __future__ import annotations

import argparse

from harness.config.experiments import CONF
from harness.console import say
from harness.papers.sample_plan import MINUTES, PROCESSES, SamplePlan, sample_plan

FILE = CONF / "samples.yaml"
HEAD = """\
# Samples per cell of each experiment where neither the command line nor its grid gives a limit.
# Written by `python -m scripts.plan_samples`: the smallest effect of interest is {effect:.2f} standard deviations
# of a claim's paired differences, and the sweep of all papers takes {minutes:.0f} minutes of {processes} processes.
# Beside each number: the claim that sets it, and the effect that so many samples see in 80 of 100 sweeps.
"""


def text(plan: SamplePlan, processes: int) -> str:
    """The file."""
    spent = plan.seconds / 60 / processes
    lines = [f"  {name}: {count}  # {plan.reasons[name]}" for name, count in plan.samples.items()]
    return HEAD.format(effect=plan.effect, minutes=spent, processes=processes) + "\n".join(["mini:", *lines, ""])


def main() -> None:
    """Plan, write, and say what was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="that the sweep of all papers may take")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="that it runs with")
    given = parser.parse_args()
    plan = sample_plan(given.minutes, given.processes)
    FILE.write_text(text(plan, given.processes))
    say(f"{FILE.name}: {plan.effect:.2f} standard deviations in {plan.seconds / 60 / given.processes:.0f} minutes")


if __name__ == "__main__":
    main()
