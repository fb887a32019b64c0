"""Benchmarks: rates against the machine's own roof and against a loop written by hand (docs/performance.md).

Never part of the tests: a time says something about a machine, and a ratio needs both of its sides in one run.
"""
