from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from workers.small_sweeps import job_spec, saved_model, table, worked


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    return saved_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def uninterrupted_table(model, tmp_path_factory) -> pd.DataFrame:
    """What one worker, left alone, stores."""
    results = tmp_path_factory.mktemp("alone")
    worked(job_spec(model, results))
    return table(results)
