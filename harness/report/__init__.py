"""The result page of a run: summary, ledger, figures and provenance, from rows."""
