"""Intervals and tests: pure functions on arrays."""
