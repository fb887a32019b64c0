"""From a claim's evidence to its verdict: reproduced, not reproduced, inconclusive, not comparable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.analysis.statistics import holm, samples_needed
from harness.papers.cell_index import CellIndex
from harness.papers.claim_evidence import ClaimEvidence, collect_evidence
from harness.papers.claim_ledger import Claim
from harness.papers.claim_tests import ClaimResult

# "no contrast": dense is at the task's floor, or all methods compared are at its floor or ceiling.
Outcome = Literal["reproduced", "not reproduced", "inconclusive", "no contrast", "not comparable"]
Lean = Literal["for", "against", ""]
Scale = Literal["mini", "full"]
ALPHA = 0.05  # family-wise error rate per paper


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    ``estimate`` and ``interval`` (95 %) are those of the case that decides: the weakest one, in the units of its metric
    and positive where it speaks for the claim; NaN where nothing was compared. ``n`` are its paired samples,
    ``needed_samples`` how many would settle it with 80 % power (None where it is settled, or no number would do).
    ``p`` is two-sided and, from `verdicts`, Holm-corrected over the paper. ``lean``: where an inconclusive claim points.
    ``sentence``: the verdict in one plain sentence, for the table or figure that the claim is about.
    """

    claim: Claim
    outcome: Outcome
    estimate: float
    interval: tuple[float, float]
    n: int
    needed_samples: int | None
    reason: str
    p: float = math.nan
    models: tuple[str, ...] = ()
    lean: Lean = ""
    sentence: str = ""


def verdicts(claims: Sequence[Claim], index: CellIndex, scale: Scale) -> list[Verdict]:
    """Verdicts on the claims of one paper, from the cells of a tidy frame of sample rows (docs/design/rows.md).

    A claim holds where all of its cases do (every budget, every baseline): its p is the greatest of theirs
    (intersection-union, Berger 1982); it fails where one of them fails, at p times the number of cases. The smaller of
    both, doubled, is Holm-corrected over all tested claims. *Reproduced* needs a corrected p of at most 0.05 and 95 %
    intervals of all cases on the claim's side, and that nothing is missing; *not reproduced* the opposite of one case.

    ``scale="mini"``: the testbed is taken for the paper's models; budgets of the paper that were not measured are
    replaced by those of the same rank, its block size by the only one there is, an average by that of its tasks that
    were measured. ``scale="full"``: model, regime, block size, budget and tasks must be the paper's own.
    """
    found = [collect_evidence(claim, index, mini=scale == "mini") for claim in claims]
    tested = [i for i, each in enumerate(found) if each.results]
    corrected = holm([_two_sided(found[i].results) for i in tested])
    p = dict(zip(tested, map(float, corrected), strict=True))
    return [
        _decide(claim, each, p.get(i, math.nan), scale)
        for i, (claim, each) in enumerate(zip(claims, found, strict=True))
    ]


def _p_for(results: Sequence[ClaimResult]) -> float:
    return max(each.p_for for each in results)


def _p_against(results: Sequence[ClaimResult]) -> float:
    return min(1.0, len(results) * min(each.p_against for each in results))


def _two_sided(results: Sequence[ClaimResult]) -> float:
    return min(1.0, 2 * min(_p_for(results), _p_against(results)))


def _decide(claim: Claim, evidence: ClaimEvidence, p: float, scale: Scale) -> Verdict:
    if claim.comparison is None:
        return _untested(claim, "not comparable", claim.reason)
    if not evidence.results:
        if evidence.differing:
            return _untested(claim, "not comparable", f"The protocol differs in {_listed(evidence.differing)}.")
        return _untested(claim, "inconclusive", f"Not measured: there are no rows of {_listed(evidence.missing)}.")
    results = evidence.results
    holds = _p_for(results) <= _p_against(results)
    clear = p <= ALPHA
    lacking = [*evidence.missing, *evidence.differing]
    failed = [each for each in results if each.high < 0]
    weakest = min(
        results, key=lambda each: each.estimate / each.standard_error if each.standard_error > 0 else each.estimate
    )
    outcome: Outcome = "inconclusive"
    if clear and holds and all(each.low >= 0 for each in results) and not lacking:
        outcome, shown = "reproduced", weakest
    elif clear and not holds and failed:
        outcome, shown = "not reproduced", min(failed, key=lambda each: each.p_against)
    else:
        shown = weakest
    needed = _samples_needed(results, shown) if outcome == "inconclusive" else None
    return Verdict(
        claim, outcome, shown.estimate, (shown.low, shown.high), shown.n, needed,
        _reason(claim, evidence, shown, outcome, needed, lacking, scale), p, tuple(evidence.models),
    )  # fmt: skip


def _samples_needed(results: Sequence[ClaimResult], weakest: ClaimResult) -> int | None:
    """Samples to settle it: all cases where all point the claim's way, else the one that points most against it."""
    if weakest.estimate < 0:
        return samples_needed(weakest.estimate, weakest.standard_error, weakest.n, ALPHA / len(results))
    each_needs = [samples_needed(each.estimate, each.standard_error, each.n, ALPHA) for each in results]
    return None if None in each_needs else max(needs for needs in each_needs if needs is not None)


def _reason(
    claim: Claim,
    evidence: ClaimEvidence,
    shown: ClaimResult,
    outcome: Outcome,
    needed: int | None,
    lacking: Sequence[str],
    scale: Scale,
) -> str:
    where = f"On {', '.join(evidence.models)}"
    if scale == "mini":
        where += f" (scale=mini), which says nothing of {' and '.join(claim.models) or 'other models'}"
    holding = sum(each.low >= 0 for each in evidence.results)
    total = len(evidence.results)
    decisive = f"{shown.label}: {shown.estimate:+.4g} [{shown.low:+.3g}, {shown.high:+.3g}], {shown.n} samples"
    sentences = [
        {
            "reproduced": f"{where}: all {total} comparisons hold; the weakest is {decisive}." if total > 1
            else f"{where}: it holds. {decisive}.",
            "not reproduced": f"{where}: it fails. {decisive}.",
            "inconclusive": f"{where}: {holding} of {total} comparisons hold beyond doubt; the weakest is {decisive}.",
            "not comparable": "",
        }[outcome]
    ]  # fmt: skip
    if needed is not None and needed > shown.n:
        sentences.append(f"About {needed:,} samples would settle it.")
    if evidence.notes:
        sentences.append(f"Stands in for the paper's setting: {'; '.join(dict.fromkeys(evidence.notes))}.")
    if evidence.absent:
        sentences.append(f"Not measured on {', '.join(evidence.absent)}.")
    if lacking:
        sentences.append(f"Not measured: {_listed(lacking)}.")
    if claim.remark:
        sentences.append(claim.remark)
    return " ".join(sentences)


def _listed(parts: Sequence[str], most: int = 3) -> str:
    unique = list(dict.fromkeys(parts))
    more = f" and {len(unique) - most} more" if len(unique) > most else ""
    return "; ".join(unique[:most]) + more


def _untested(claim: Claim, outcome: Outcome, reason: str) -> Verdict:
    return Verdict(claim, outcome, math.nan, (math.nan, math.nan), 0, None, reason)
