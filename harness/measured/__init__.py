"""What is measured beside scores: costs of the papers' methods, and five comparisons that no paper makes.

    tables("kvec", "Table 9", rows, Path("results"))   # → list of `Table`, empty where the item is not about costs;
                                                       # NotMeasuredError, with the reason, where nothing is stored
    extras("kvec")                                     # items of a paper's report beyond those that it prints
    extras("ours")                                     # the items of the page ``paper=ours``

``rows`` are those of `harness.store.load_rows`; times come from ``results/efficiency/``, which
``python -m scripts.efficiency`` writes.
"""

from harness.measured.catalogue import OURS, extras, tables
from harness.measured.efficiency import NotMeasuredError
from harness.measured.table import Table

__all__ = ["OURS", "NotMeasuredError", "Table", "extras", "tables"]
