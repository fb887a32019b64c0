"""What became of the papers' claims: pure functions from claims and rows to verdicts."""

from harness.verdicts.verdict import ALPHA, Outcome, Scale, Verdict, verdict, verdicts

__all__ = ["ALPHA", "Outcome", "Scale", "Verdict", "verdict", "verdicts"]
