"""LongBench's averages: plain means of the 16 English subsets and of its categories, with the interval of the mean."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from harness.report.rows import CONTEXT
from harness.report.summary import averages
from tasks.longbench_subsets import ENGLISH

KVEC_DENSE = (
    30.22,
    45.37,
    55.80,
    55.97,
    45.00,
    31.26,
    35.12,
    25.38,
    27.20,
    72.50,
    91.64,
    43.57,
    9.41,
    99.50,
    62.88,
    56.43,
)


def summary_of(
    scores: dict[str, float], label: str = "keydiff", budget: str = "1024", half: float = 0.0, note: str = ""
):
    context = {"model": "m", "prompt": "blocked", "block_size": 128, "dtype": "float32", "seed": 0}
    assert set(context) == set(CONTEXT)
    lines = [
        {**context, "task": f"longbench/{name}{note}", "label": label, "budget": budget, "value": score / 100,
         "low": score / 100 - half, "high": score / 100 + half}
        for name, score in scores.items()
    ]  # fmt: skip
    return pd.DataFrame(lines)


PRINTED = dict(zip(ENGLISH, KVEC_DENSE, strict=True))


def test_the_average_of_a_papers_row_is_the_printed_one():
    (table,) = averages(summary_of(PRINTED), ())
    ((label, budget, means, average),) = table.lines
    assert (label, budget, average) == ("keydiff", "1024", "49.20 [49.20, 49.20]")
    assert means[0] == f"{(30.22 + 45.37 + 55.80) / 3:.2f}"
    assert len(means) == len(table.categories) == 6


def test_the_interval_of_the_mean_adds_half_widths_in_squares():
    (table,) = averages(summary_of(PRINTED, half=0.08), ())
    half = math.sqrt(16 * 8.0**2) / 16
    assert table.lines[0][3] == f"49.20 [{49.203 - half:.2f}, {49.203 + half:.2f}]"


def test_a_cell_that_lacks_a_subset_has_no_average():
    rows = pd.concat([summary_of(PRINTED), summary_of(dict(list(PRINTED.items())[:15]), label="tova")])
    (table,) = averages(rows, ())
    assert [line[0] for line in table.lines] == ["keydiff"]
    assert not list(averages(summary_of(dict(list(PRINTED.items())[:15])), ()))


def test_synthetic_rows_are_averaged_apart_and_say_so():
    rows = pd.concat([summary_of(PRINTED), summary_of(PRINTED, note=" (synthetic rows)")])
    assert [table.note for table in averages(rows, ())] == ["", "synthetic rows"]


@pytest.mark.parametrize("task", ["niah", "longbench_mini/code"])
def test_other_tasks_have_no_part_in_it(task):
    rows = summary_of(PRINTED).assign(task=task)
    assert not list(averages(rows, ()))
