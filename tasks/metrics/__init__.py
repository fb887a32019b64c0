"""Scores of texts against references, one module for each family; every function is pure and its value in [0, 1].

Formulas follow the code that made the published numbers, with its oddities, and each docstring names that code.
"""
