"""What the five papers printed: their tables as data, and their claims in a form that rows can be tested against.

Everything is read from ``results/published/`` (PROVENANCE.md there). Nothing here knows of models or of the engine.
"""

from harness.published.claims import Claim, Comparison, Spec, claims
from harness.published.places import PAPERS
from harness.published.tables import Table, frame, items, tables

__all__ = ["PAPERS", "Claim", "Comparison", "Spec", "Table", "claims", "frame", "items", "tables"]
