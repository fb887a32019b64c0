"""The papers' figures, drawn from our rows and diagnostics."""
