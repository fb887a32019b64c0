"""Diagnostics: what a policy does inside the model, asked for by name (docs/diagnostics.md). Off by default."""

from harness.diagnostics.ask import check, diagnose
from harness.diagnostics.catalogue import DIAGNOSTICS, chosen

__all__ = ["DIAGNOSTICS", "check", "chosen", "diagnose"]
