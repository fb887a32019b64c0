"""From a claim's evidence to its verdict: reproduced, not reproduced, inconclusive, no contrast, not comparable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.analysis.power import samples_needed
from harness.analysis.statistics import holm
from harness.papers.cell_index import CellIndex
from harness.papers.claim_evidence import ClaimEvidence, ClaimObservations, collect_evidence
from harness.papers.claim_ledger import Claim
from harness.papers.claim_tests import ClaimResult
from harness.papers.published import FULL, Scale

# "no contrast": dense is at the task's floor, or all methods compared are at its floor or ceiling.
Outcome = Literal["reproduced", "not reproduced", "inconclusive", "no contrast", "not comparable"]
Lean = Literal["for", "against", ""]
ALPHA = 0.05  # family-wise error rate per paper
MANY = 1_000_000  # samples: nobody runs more of one cell, and their number says nothing any more


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    ``estimate`` and ``interval`` (95 %) are those of the case that decides: the weakest one, in the units of its metric
    and positive where it speaks for the claim; NaN where nothing was compared. ``n`` are its paired samples,
    ``needed_samples`` how many would decide it with 80 % power (None where it is decided, or no number would do).
    ``p`` is two-sided and, from `verdicts`, Holm-corrected over the paper. ``lean``: where an inconclusive claim
    points. ``sentence``: the verdict in one plain sentence, for the table or figure that the claim is about.
    ``same_as``: the claim of this paper whose comparison is the very same on these models; empty if none.
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
    same_as: str = ""

    @property
    def demand(self) -> str:
        """``about 240 samples would decide it``; empty where it is decided, or where no number would."""
        return "" if self.needed_samples is None else _demand(self.needed_samples, "samples")


def verdicts(
    claims: Sequence[Claim], index: CellIndex, scale: Scale, beside: ClaimObservations | None = None
) -> list[Verdict]:
    """Verdicts on the claims of one paper, from the cells of a tidy frame of sample rows (docs/design/rows.md).

    A claim holds where all of its cases do (every budget, every baseline): its p is the greatest of theirs
    (intersection-union, Berger 1982); it fails where one of them fails, at p times the number of cases. The smaller of
    both, doubled, is Holm-corrected over all distinct comparisons of the paper. *Reproduced* needs a corrected p of at
    most 0.05 and 95 % intervals of all cases on the claim's side, and that nothing is missing; *not reproduced* the
    opposite of one case. Cases in which nothing can differ (all at the ceiling, say) are left out and named; where no
    case is left the claim has *no contrast*. What is computed and not measured is decided without a test.

    ``scale="mini"`` and ``"small"``: one model is taken for the paper's models; budgets of the paper that were not
    measured are replaced by those of the same rank, its block size by the only one there is, an average by that of its
    tasks that were measured. ``scale="full"``: model, regime, block size, budget and tasks must be the paper's own.
    ``beside``: quantities other than scores (`harness.papers.claim_measurements`).
    """
    found = [collect_evidence(claim, index, scale, beside=beside) for claim in claims]
    first = _first_of_same(found)
    tested = [i for i, each in enumerate(found) if each.results and not each.exact and first[i] == i]
    corrected = holm([_two_sided(found[i].results) for i in tested])
    p = dict(zip(tested, map(float, corrected), strict=True))
    return [
        _decide(
            claim, each, p.get(first[i], math.nan), scale, "" if first[i] == i else claims[first[i]].id, len(tested)
        )
        for i, (claim, each) in enumerate(zip(claims, found, strict=True))
    ]


def _first_of_same(found: Sequence[ClaimEvidence]) -> list[int]:
    """For each claim the place of the first one with the very same cases; its own where there is none before it."""
    known: dict[tuple[tuple[str, float], ...], int] = {}
    out = []
    for place, each in enumerate(found):
        cases = tuple(sorted((result.label, result.estimate) for result in each.results))
        out.append(known.setdefault(cases, place) if cases and not each.exact else place)
    return out


def _p_for(results: Sequence[ClaimResult]) -> float:
    return max(each.p_for for each in results)


def _p_against(results: Sequence[ClaimResult]) -> float:
    return min(1.0, len(results) * min(each.p_against_shared for each in results))


def _two_sided(results: Sequence[ClaimResult]) -> float:
    return min(1.0, 2 * min(_p_for(results), _p_against(results)))


def _decide(claim: Claim, evidence: ClaimEvidence, p: float, scale: Scale, same: str, family: int) -> Verdict:
    if claim.comparison is None:
        return _untested(claim, "not comparable", claim.reason)
    if not evidence.results:
        if evidence.flat:
            return _untested(claim, "no contrast", f"Nothing to compare: {_listed(evidence.flat)}.")
        if evidence.differing:
            return _untested(claim, "not comparable", f"The protocol differs in {_listed(evidence.differing)}.")
        why = f"Not measured: there are no rows of {_listed(evidence.missing)}. {claim.remark}".rstrip()
        return _untested(claim, "not comparable", why)
    results = evidence.results
    holds = _p_for(results) <= _p_against(results)
    clear = evidence.exact or p <= ALPHA
    lacking = [*evidence.missing, *evidence.differing]
    failed = [each for each in results if each.high < 0]
    weakest = min(
        results, key=lambda each: each.estimate / each.standard_error if each.standard_error > 0 else each.estimate
    )
    outcome: Outcome = "inconclusive"
    shown = weakest
    if clear and holds and all(each.low >= 0 for each in results) and not lacking:
        outcome = "reproduced"
    elif clear and not holds and failed:
        outcome, shown = "not reproduced", min(failed, key=lambda each: each.p_against)
    needed = _samples_needed(results, shown, ALPHA / max(1, family)) if outcome == "inconclusive" else None
    lean = _lean(results) if outcome == "inconclusive" else ""
    return Verdict(
        claim, outcome, shown.estimate, (shown.low, shown.high), shown.n, needed,
        _reason(claim, evidence, shown, outcome, needed, lacking, scale, same), p, tuple(evidence.models),
        lean, _sentence(evidence, shown, outcome, needed, lean, lacking, p), same,
    )  # fmt: skip


def _lean(results: Sequence[ClaimResult]) -> Lean:
    """For the claim where all cases point its way; against it where one is clearly on the other side, or most are."""
    if all(each.estimate > 0 for each in results):
        return "for"
    if any(each.high < 0 for each in results) or 2 * sum(each.estimate < 0 for each in results) >= len(results):
        return "against"
    return ""


def _samples_needed(results: Sequence[ClaimResult], weakest: ClaimResult, alpha: float) -> int | None:
    """Samples to decide it: all cases where all point the claim's way, else the one that points most against it.

    ``alpha`` is what the smallest p of the paper has to reach after Holm's correction.
    """
    if weakest.estimate < 0:
        return samples_needed(weakest.estimate, weakest.standard_error, weakest.n, alpha / len(results))
    each_needs = [samples_needed(each.estimate, each.standard_error, each.n, alpha) for each in results]
    return None if None in each_needs else max(needs for needs in each_needs if needs is not None)


def _sentence(
    evidence: ClaimEvidence,
    shown: ClaimResult,
    outcome: Outcome,
    needed: int | None,
    lean: Lean,
    lacking: Sequence[str],
    p: float,
) -> str:
    """``Holds here: keydiff at 22% > sink at 22%: margin +0.12 (280 samples, the weakest of 16 comparisons), p = …``.

    The margin is positive where it speaks for the claim.
    """
    total = len(evidence.results)
    of = f", the weakest of {total} comparisons" if total > 1 and outcome != "not reproduced" else ""
    by = "computed" if evidence.exact else f"{shown.n} {evidence.unit}"
    text = f"{shown.label}: margin {shown.estimate:+.3g} ({by}{of})"
    tail = "" if evidence.exact or math.isnan(p) else f", p = {_p_text(p)}"
    if outcome == "reproduced":
        out = f"Holds here: {text}{tail}."
    elif outcome == "not reproduced":
        out = f"Fails here: {text}{tail}."
    elif lacking and not evidence.exact and p <= ALPHA and lean == "for":
        out = f"Holds as far as it was measured ({text}{tail}); not measured: {_listed(lacking, 1)}."
    else:
        leans = {"for": "leans for it", "against": "leans against it", "": "points neither way"}[lean]
        more = f"; {_demand(needed, evidence.unit)}" if needed is not None else ""
        out = f"Open, {leans}: {text}{more}."
    if evidence.flat:
        out += f" Left out: {_listed(evidence.flat, 2)}."
    return out


def _demand(needed: int, unit: str) -> str:
    many = f"more than {MANY:,}" if needed > MANY else f"about {needed:,}"
    return f"{many} {unit} would decide it"


def _p_text(p: float) -> str:
    return "1" if p >= 1 else f"{p:.1e}" if p < 0.0005 else f"{p:.3f}".removeprefix("0")


def _reason(
    claim: Claim,
    evidence: ClaimEvidence,
    shown: ClaimResult,
    outcome: Outcome,
    needed: int | None,
    lacking: Sequence[str],
    scale: Scale,
    same: str,
) -> str:
    where = f"On {', '.join(evidence.models)}" if evidence.models else "By formula" if evidence.exact else "Here"
    if scale != FULL and evidence.models:
        where += f" (scale={scale}), which says nothing of {' and '.join(claim.models) or 'other models'}"
    holding = sum(each.low >= 0 for each in evidence.results)
    total = len(evidence.results)
    by = "computed" if evidence.exact else f"[{shown.low:+.3g}, {shown.high:+.3g}], {shown.n} {evidence.unit}"
    decisive = f"{shown.label}: margin {shown.estimate:+.4g} {by}"
    sentences = [
        {
            "reproduced": f"{where}: all {total} comparisons hold; the weakest is {decisive}." if total > 1
            else f"{where}: it holds. {decisive}.",
            "not reproduced": f"{where}: it fails. {decisive}.",
            "inconclusive": f"{where}: {holding} of {total} comparisons hold beyond doubt; the weakest is {decisive}.",
            "no contrast": "",
            "not comparable": "",
        }[outcome]
    ]  # fmt: skip
    if needed is not None and needed > shown.n:
        demand = _demand(needed, evidence.unit)
        sentences.append(f"{demand[0].upper()}{demand[1:]}.")
    if same:
        sentences.append(f"The comparison is that of {same} on this model, and counts once in the correction.")
    if evidence.flat:
        sentences.append(f"Left out, with nothing to compare: {_listed(evidence.flat)}.")
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
    return Verdict(claim, outcome, math.nan, (math.nan, math.nan), 0, None, reason, sentence=reason)
