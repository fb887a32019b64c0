"""The data sets that tasks read: where they may be, what a row of each must hold, and under which licence.

What the licence allows is carried in the package (`carried/PROVENANCE.md`); everything else is put under ``data/`` by
``python -m scripts.fetch_data``. Each has a tiny synthetic fixture of its true schema (`fixtures/PROVENANCE.md`).
"""

from tasks.data.catalogue import CATALOGUE, DataSet, data_set
from tasks.data.tables import DataTable, revision_of, table

__all__ = ["CATALOGUE", "DataSet", "DataTable", "data_set", "revision_of", "table"]
