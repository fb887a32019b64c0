"""The summary's numbers, recomputed by hand from the rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from harness.analysis.statistics import mean_interval, paired_difference, perplexity_interval
from harness.report.summary import (
    difference_text,
    interval_text,
    nothing_evicted_messages,
    summary_table,
    value_text,
)

Make = Callable[..., pd.DataFrame]


def line_of(table: pd.DataFrame, policy: str, budget: str, task: str) -> pd.Series:
    found = table[(table["policy"] == policy) & (table["budget"] == budget) & (table["task"] == task)]
    assert len(found) == 1
    return found.iloc[0]


def part_of(rows: pd.DataFrame, policy: str, budget: str, task: str) -> pd.DataFrame:
    return rows[(rows["policy"] == policy) & (rows["budget"] == budget) & (rows["task"] == task)]


def test_one_line_per_cell_and_metric(rows: pd.DataFrame) -> None:
    table = summary_table(rows)
    assert len(table) == 2 * (1 + 8 * 3)
    assert not table.duplicated(["cell_id", "metric"]).any()
    assert (table["low"] <= table["value"]).all()
    assert (table["value"] <= table["high"]).all()


def test_accuracy_line_is_the_interval_and_paired_difference_of_its_rows(rows: pd.DataFrame) -> None:
    own, dense = part_of(rows, "keydiff", "128", "niah"), part_of(rows, "dense", "full", "niah")
    line = line_of(summary_table(rows), "keydiff", "128", "niah")
    interval = mean_interval(own["value"], own["document"])
    paired = paired_difference(own["value"], dense["value"], own["document"])
    assert (line["value"], line["low"], line["high"]) == (interval.mean, interval.low, interval.high)
    assert (line["n"], line["n_clusters"], line["n_paired"]) == (45, 9, 45)
    found = (line["difference"], line["difference_low"], line["difference_high"])
    assert found == (paired.mean, paired.low, paired.high)
    assert line["difference"] == pytest.approx(own["value"].mean() - dense["value"].mean())
    assert (line["slots_requested"], line["slots_kept"], line["slots_peak"]) == (128, 128, 160)


def test_perplexity_line_is_weighted_and_its_difference_a_ratio(rows: pd.DataFrame) -> None:
    own, dense = part_of(rows, "sink", "64", "perplexity"), part_of(rows, "dense", "full", "perplexity")
    line = line_of(summary_table(rows), "sink", "64", "perplexity")
    expected = perplexity_interval(own["value"], own["weight"], own["document"])
    assert (line["value"], line["low"], line["high"]) == (expected.mean, expected.low, expected.high)
    reference = np.exp(np.average(dense["value"], weights=dense["weight"]))
    assert line["difference"] == pytest.approx(line["value"] / reference)
    assert line["difference_low"] > 1


def test_pairs_by_sample_and_not_by_position(rows: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(
        summary_table(rows.sample(frac=1, random_state=0)).sort_values(["cell_id", "metric"], ignore_index=True),
        summary_table(rows).sort_values(["cell_id", "metric"], ignore_index=True),
    )


def test_changing_one_row_changes_that_line_only(rows: pd.DataFrame) -> None:
    changed = rows.copy()
    place = part_of(rows, "window", "64", "niah").query("value == 0").index[0]
    changed.loc[place, "value"] = 1.0
    before, after = summary_table(rows), summary_table(changed)
    differing = before.index[(before["value"] != after["value"]).to_numpy()]
    assert list(before.loc[differing, "cell_id"]) == [rows.loc[place, "cell_id"]]
    assert after.loc[differing[0], "difference"] > before.loc[differing[0], "difference"]


def test_partial_cells_are_compared_on_shared_samples(rows: pd.DataFrame) -> None:
    dropped = part_of(rows, "tova/keydiff", "256", "niah").index[:20]
    line = line_of(summary_table(rows.drop(dropped)), "tova/keydiff", "256", "niah")
    assert (line["n"], line["n_paired"]) == (25, 25)


def test_without_dense_there_is_no_difference(make: Make) -> None:
    table = summary_table(make(dense=False))
    assert table["difference"].isna().all()
    assert {difference_text(line) for line in table.to_dict("records")} == {""}


@pytest.mark.parametrize(
    "other", [{"model": "m2"}, {"prompt": "one_shot"}, {"block_size": 64}, {"dtype": "bfloat16"}, {"seed": 1}]
)
def test_dense_of_another_context_is_no_reference(make: Make, other: dict[str, object]) -> None:
    rows = pd.concat([make(["keydiff"], dense=False), make([], context=other)])
    table = summary_table(rows)
    assert set(table["policy"]) == {"dense", "keydiff"}
    assert table["difference"].isna().all()


def test_ranks_are_per_budget_and_never_dense(rows: pd.DataFrame) -> None:
    table = summary_table(rows)
    assert (table[table["dense"]]["rank"] == "").all()
    for (metric, _), group in table[~table["dense"]].groupby(["metric", "budget"]):
        values = group["value"].sort_values(ascending=metric == "nll").unique()
        assert (group.loc[group["rank"] == "best", "value"] == values[0]).all()
        assert (group.loc[group["rank"] == "second", "value"] == values[1]).all()
        assert {"best", "second"} <= set(group["rank"])


def test_order_is_dense_then_budgets_by_size_then_families(make: Make) -> None:
    table = summary_table(make(["keydiff", "caote_h2o", "h2o", "sink"], ["256", "1024", "64"], ["niah"]))
    assert list(table["policy"][:5]) == ["dense", "sink", "h2o", "caote_h2o", "keydiff"]
    assert list(table["budget"].unique()) == ["full", "64", "256", "1024"]


def test_cells_that_differ_in_a_setting_keep_apart(make: Make) -> None:
    settings = ({"policy": {"name": "sink", "sinks": n}} for n in (2, 4))
    parts = [make(["sink"], ["64", "128"], ["niah"], dense=False, config=config) for config in settings]
    table = summary_table(pd.concat(parts))
    assert set(table["label"]) == {"sink (sinks=2)", "sink (sinks=4)"}
    assert not table.duplicated(["label", "budget"]).any()


def test_cells_of_unreadable_identity_are_told_apart_by_their_id(make: Make) -> None:
    parts = [make(["sink"], ["64"], ["niah"], dense=False, config={"extra": n}).assign(config="?") for n in (1, 2)]
    table = summary_table(pd.concat(parts))
    assert set(table["label"]) == {f"sink ({cell[:8]})" for cell in table["cell_id"]}


def test_samples_without_document_are_independent(make: Make) -> None:
    table = summary_table(make(["sink"], ["64"], ["niah"]).assign(document=""))
    assert (table["n_clusters"] == 45).all()


def test_texts(rows: pd.DataFrame) -> None:
    table = summary_table(rows)
    niah = line_of(table, "window", "64", "niah").to_dict()
    assert value_text(niah) == "0.378"
    assert interval_text(niah).startswith("[0.")
    assert difference_text(niah).startswith("−0.511 [−0.")
    assert difference_text(line_of(table, "window", "64", "perplexity").to_dict()).startswith("×1.")
    assert interval_text({**niah, "low": np.nan}) == "[–]"


def test_a_budget_that_held_everything_is_said_in_place_of_a_difference(rows: pd.DataFrame) -> None:
    untouched = rows.copy()
    untouched.loc[(untouched["policy"] == "keydiff") & (untouched["budget"] == "128"), "tokens_evicted"] = 0
    table = summary_table(untouched)
    for _, line in table.iterrows():
        is_untouched = (line["policy"], line["budget"]) == ("keydiff", "128")
        assert (difference_text(line) == "nothing evicted") == is_untouched
    first, *_ = nothing_evicted_messages(table)
    assert first.startswith("Nothing was evicted on niah by keydiff at 128: the budget held the whole prompt")
    assert len(nothing_evicted_messages(table)) == table["task"].nunique()


def test_one_sample_that_lost_a_token_is_an_eviction(rows: pd.DataFrame) -> None:
    table = summary_table(rows)
    assert nothing_evicted_messages(table) == []
    assert not (table.loc[table["dense"], "evicted"] > 0).any()


def test_refuses_rows_that_cannot_be_reported(rows: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="no rows to report"):
        summary_table(rows.iloc[:0])
    with pytest.raises(ValueError, match="lack columns of the results schema: weight, document"):
        summary_table(rows.drop(columns=["weight", "document"]))
    with pytest.raises(ValueError, match="1 rows repeat another row"):
        summary_table(pd.concat([rows, rows.iloc[[7]]]))
