"""How many claims have which verdict, and how many of them are different comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from harness.papers.claim_verdicts import Lean, Outcome, Verdict

# In the order of a bar: from what speaks for a claim to what speaks against it, then what says nothing about it.
PARTS: tuple[tuple[Outcome, Lean], ...] = (
    ("reproduced", ""),
    ("inconclusive", "for"),
    ("inconclusive", ""),
    ("inconclusive", "against"),
    ("not reproduced", ""),
    ("no contrast", ""),
    ("not comparable", ""),
)
LEANS: dict[Lean, str] = {"for": "leans for", "against": "leans against", "": ""}


@dataclass(frozen=True)
class ClaimCount:
    """One part of a bar. ``count`` may be 0."""

    outcome: Outcome
    lean: Lean
    count: int

    @property
    def label(self) -> str:
        """``reproduced``; ``inconclusive, leans for``."""
        return outcome_label(self.outcome, self.lean)

    @property
    def style(self) -> str:
        """Its classes in a style sheet: ``not-reproduced``, ``inconclusive leans-for``."""
        return outcome_style(self.outcome, self.lean)


@dataclass(frozen=True)
class ClaimCounts:
    """``shared``: (claim, the earlier claim with the very same comparison), by their ids."""

    parts: tuple[ClaimCount, ...]
    shared: tuple[tuple[str, str], ...]

    @property
    def total(self) -> int:
        """All claims."""
        return sum(part.count for part in self.parts)

    @property
    def decided(self) -> int:
        """Those that are reproduced or not reproduced."""
        return sum(part.count for part in self.parts if part.outcome in ("reproduced", "not reproduced"))

    @property
    def by_outcome(self) -> dict[str, int]:
        """By outcome, in the order of `Outcome`."""
        found = Counter[str]()
        for part in self.parts:
            found[part.outcome] += part.count
        return {outcome: found[outcome] for outcome in get_args(Outcome)}

    def leaning(self, lean: Lean) -> int:
        """The inconclusive claims that lean this way."""
        return sum(part.count for part in self.parts if part.outcome == "inconclusive" and part.lean == lean)

    @property
    def short_sentence(self) -> str:
        """``25 claims, 24 distinct comparisons; 4 are decided. Of the inconclusive ones 8 lean …``"""
        leaning = f"{self.leaning('for'):,} lean for what the paper says and {self.leaning('against'):,} against it"
        return (
            f"{self.total:,} claims, {self.total - len(self.shared):,} distinct comparisons; {self.decided:,} "
            f"{'is' if self.decided == 1 else 'are'} decided. Of the inconclusive ones {leaning}."
        )

    @property
    def sentence(self) -> str:
        """The same, and which claims share a comparison: ``KD-02 has that of KD-01``."""
        named = "; ".join(f"{claim} has the comparison of {other}" for claim, other in self.shared)
        return self.short_sentence + (f" {named}." if named else "")


def count_claims(found: Sequence[Verdict]) -> ClaimCounts:
    """The counts of these verdicts, which may be of several papers."""
    # Only what is inconclusive can lean.
    counted = Counter((each.outcome, each.lean if each.outcome == "inconclusive" else "") for each in found)
    parts = tuple(ClaimCount(outcome, lean, counted[outcome, lean]) for outcome, lean in PARTS)
    return ClaimCounts(parts, tuple((each.claim.id, each.same_as) for each in found if each.same_as))


def outcome_label(outcome: Outcome, lean: Lean) -> str:
    """The verdict in words: ``inconclusive, leans for``."""
    return ", ".join(filter(None, (outcome, LEANS[lean] if outcome == "inconclusive" else "")))


def outcome_style(outcome: Outcome, lean: Lean) -> str:
    """The classes of a verdict in a style sheet."""
    return outcome_label(outcome, lean).replace(" ", "-").replace(",-", " ")
