"""What earlier sweeps, the pilot, say about each claim: how clearly it leans, and which cells it was tested on.

``conf/samples/<scale>_pilot.csv`` keeps it. The samples of the sweep that decides are planned with it
(`harness.papers.sample_plan`) and drawn with another seed, so that the samples which chose the numbers are not those
that are tested.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd
from scipy.special import ndtr, ndtri

from harness.config.experiments import CONF
from harness.papers.cell_index import CellIndex
from harness.papers.claim_evidence import ClaimEvidence, collect_evidence
from harness.papers.claim_ledger import claims
from harness.papers.published import PAPERS, Scale

FIXED_PLACES = ("book_perplexity",)  # tasks whose samples are the same at every seed, in another order
FIXED_ROWS = ("hashevict/", "buzz/", "wikitext")  # and in the same order: rows of a data set
OF_A_CELL = ("block_size", "budget", "config", "created", "git", "model", "policy", "prompt", "seed", "task")
CLEAREST = 8.0  # standard errors; beyond this a p is not told from zero


@dataclass(frozen=True)
class ClaimPilot:
    """A claim in the pilot.

    ``samples``: of a task in the cells that would decide it, the fewest; 0 where rows do not test it. ``lean``:
    standard errors by which its weakest comparison speaks for it, or by which its worst one speaks against it.
    ``comparisons``: as how many the choice of that one counts. ``tasks``, ``policies`` and ``budgets``: those of the
    cells that would decide it, which are all of them where it leans for the claim, else those of the worst comparison.
    """

    claim: str
    samples: int
    lean: float
    comparisons: float
    tasks: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()

    def chance(self, samples: int, alpha: float) -> float:
        """The chance that another sweep with so many samples of a task decides it, at the two-sided level ``alpha``.

        The predictive power (Spiegelhalter, Freedman and Blackburn 1986, "Monitoring clinical trials: conditional or
        predictive power?", Controlled Clinical Trials 7): the pilot's estimate is itself uncertain, by as much as its
        own samples leave open.
        """
        if not self.samples:
            return 0.0
        ratio = samples / self.samples
        cut = float(ndtri(alpha / 2 / self.comparisons))
        return float(ndtr((self.lean * math.sqrt(ratio) + cut) / math.sqrt(1 + ratio)))


def pooled(sweeps: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Sweeps of the same cells with samples of different seeds as one, in which a cell is described as in the last.

    Windows of a novel keep their names at every seed: those that several sweeps have read count once.
    """
    named = []
    for rows in sweeps:
        cells = {config: _but_for_seed_and_code(config) for config in rows["config"].unique()}
        drawn = ~rows["task"].isin(FIXED_PLACES)
        samples = rows["sample_id"].where(~drawn, rows["seed"].astype(str) + "/" + rows["sample_id"])
        named.append(rows.assign(cell_id=rows["config"].map(cells), sample_id=samples))
    found = pd.concat(named, ignore_index=True).drop_duplicates(["cell_id", "sample_id", "metric"], keep="last")
    last = found.drop_duplicates("cell_id", keep="last").set_index("cell_id")
    return found.assign(**{name: found["cell_id"].map(last[name]) for name in OF_A_CELL})


def _but_for_seed_and_code(config: str) -> str:
    described = json.loads(config)
    described.pop("code", None)
    described["task"].pop("seed", None)
    return json.dumps(described, sort_keys=True)


def pilot_of(rows: pd.DataFrame, scale: Scale) -> list[ClaimPilot]:
    """The pilot that a sweep's rows are, of every claim that is a comparison.

    Claims on `FIXED_ROWS` have none: the sweep that tests them reads the rows that the pilot has read.
    """
    index = CellIndex(rows)
    found = []
    for paper in PAPERS:
        for claim in claims(paper):
            evidence = collect_evidence(claim, index, scale)
            if claim.comparison is not None:
                found.append(_pilot_of_claim(claim.id, evidence))
    return [each for each in found if not any(task.startswith(FIXED_ROWS) for task in each.tasks)]


def _pilot_of_claim(claim: str, evidence: ClaimEvidence) -> ClaimPilot:
    results = evidence.results
    if not any(evidence.cells):
        return ClaimPilot(claim, 0, 0.0, 1.0)
    worst = min(range(len(results)), key=lambda place: results[place].p_against)
    holds = _errors(max(each.p_for for each in results))
    fails = _errors(results[worst].p_against)
    against = fails > holds
    shared = results[worst].p_against_shared / max(results[worst].p_against, 1e-300)
    cells = [cell for own in (evidence.cells[worst : worst + 1] if against else evidence.cells) for cell in own]
    evicting = [cell for cell in cells if cell.policy != "dense"]
    return ClaimPilot(
        claim,
        min(len(cell.samples) for cell in cells),
        round(max(holds, fails), 2),
        round(min(max(1.0, len(results) * shared), len(results)), 1) if against else 1.0,
        tuple(dict.fromkeys(cell.task for cell in cells)),
        tuple(dict.fromkeys(cell.policy for cell in evicting)),
        tuple(dict.fromkeys(cell.budget for cell in evicting)),
    )


def pilot_file(scale: Scale) -> Path:
    """The file that keeps a scale's pilot."""
    return CONF / "samples" / f"{scale}_pilot.csv"


def write_pilot(found: Iterable[ClaimPilot], scale: Scale) -> None:
    """Write `pilot_file`."""
    lists = ("tasks", "policies", "budgets")
    rows = [{**vars(each), **{name: " ".join(getattr(each, name)) for name in lists}} for each in found]
    pd.DataFrame(rows).to_csv(pilot_file(scale), index=False)


@cache
def stored_pilot(scale: Scale) -> dict[str, ClaimPilot]:
    """A scale's `pilot_file` by claim."""
    table = pd.read_csv(pilot_file(scale), dtype={"budgets": str}, keep_default_na=False)
    return {
        str(row["claim"]): ClaimPilot(
            str(row["claim"]),
            int(row["samples"]),
            float(row["lean"]),
            float(row["comparisons"]),
            *(tuple(str(row[name]).split()) for name in ("tasks", "policies", "budgets")),
        )
        for row in table.to_dict("records")
    }


def _errors(p: float) -> float:
    """The standard errors beyond which a normal estimate lies with probability ``p``."""
    return float(min(CLEAREST, max(-CLEAREST, -ndtri(min(max(p, 1e-300), 1 - 1e-16)))))
