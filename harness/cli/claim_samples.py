"""What the planned samples are worth to a paper's claims: a table below the plan of its sweep on a model of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.config.experiments import planned_samples
from harness.papers.claim_demands import claim_demands
from harness.papers.published import OF_OUR_MODELS, PAPERS, model_of
from harness.papers.sample_plan import ClaimSamples, samples_of_claims

HEAD = "claim   wants           gets  sees    needs       measured by"
WIDTH = 100  # columns of a terminal


def claim_sample_lines(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of the table; empty where the configurations are not those of a paper on a model of ours."""
    paper, _, item = configs[0]["name"].partition("-")
    scale = next((each for each in OF_OUR_MODELS if configs[0]["model"]["name"] == model_of(each)), None)
    if paper not in PAPERS or scale is None:
        return []
    experiment = f"{paper}/{item}" if item else ""
    demands = [each for each in claim_demands(paper, scale) if not experiment or experiment in each.experiments]
    found = samples_of_claims(demands, planned_samples()[scale], scale)
    if not found:
        return []
    return [
        "",
        f"samples of conf/samples/{scale}.yaml by claim; effects, in units of the metric, that 80 of 100 sweeps see "
        "(Holm)",
        HEAD,
        *map(_line, found),
        *_short(found),
    ]


def _line(each: ClaimSamples) -> str:
    wanted = each.demand.wanted
    source = {"printed": "in print", "figure": "a figure", "stated": "stated"}[wanted.source]
    needed = "no number" if each.demand.needed is None else f"{each.demand.needed:,}"
    items = ", ".join(name.partition("/")[2] for name in each.demand.experiments)
    line = (
        f"{each.demand.claim.id:6}  {_number(wanted.value):6} {source:8} {each.samples:4}  {_number(each.detected):6}"
    )
    return f"{line}  {needed:10}  {items}"[:WIDTH]


def _number(value: float) -> str:
    return f"{value:.2g}" if value >= 0.001 else f"{value:.0e}".replace("e-0", "e-")


def _short(found: Sequence[ClaimSamples]) -> list[str]:
    """The claims whose own effect the planned samples do not show, by name."""
    short = [each.demand.claim.id for each in found if each.falls_short]
    if not short:
        return ["the planned samples show what every claim wants to see"]
    lines = [f"{len(short)} of {len(found)} claims want a smaller effect than their samples show:"]
    for name in short:
        if len(lines[-1]) + len(name) + 1 > WIDTH or lines[-1].endswith(":"):
            lines.append(" ")
        lines[-1] += f" {name}"
    return lines
