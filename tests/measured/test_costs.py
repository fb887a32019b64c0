"""Tables of costs from stored rows: known numbers, one run at a time, dense beside everything, conditions always."""

from __future__ import annotations

import pandas as pd
import pytest

from harness.papers import flop_formulas
from harness.papers.efficiency_rows import by_round, newest_rows, save_rows
from harness.papers.measured_tables import MeasuredTable, NotMeasuredError
from harness.papers.published import PAPERS, published_frame
from harness.papers.report_items import extra_items, measured_tables_of

NONE = pd.DataFrame()


def line(item, policy, quantity, value, **more):
    """One stored quantity."""
    return {
        "item": item, "policy": policy, "prompt": "one_shot", "block_size": 0, "prompt_tokens": 1000, "new_tokens": 0,
        "budget_slots": 64, "budget": "", "quantity": quantity, "unit": "s", "value": value, "low": value,
        "high": value, "repeats": 2, "rounds": [value, value], "model": "testbed", "scale": "mini",
        "dtype": "float32", "threads": 2,
        "git": "0123abc", "versions": "torch 2.13.0", "hardware": "2 cores", "device": "cpu",
        "created": "2026-05-04T10:00:00+00:00", **more,
    }  # fmt: skip


def timed(item, policy, prefill, decode, kept, state=0, **more):
    """A case: ``decode`` by new tokens."""
    longest = max(decode)
    return [
        line(item, policy, "prefill_seconds", prefill, **more),
        *(line(item, policy, "decode_seconds", taken, new_tokens=new, **more) for new, taken in decode.items()),
        line(item, policy, "kv_bytes", kept, new_tokens=longest, unit="B", **more),
        line(item, policy, "state_bytes", state, new_tokens=longest, unit="B", **more),
    ]


def stored(folder, *groups):
    save_rows(pd.DataFrame([each for group in groups for each in group]), folder)
    return folder


def at(table, policy):
    return next(dict(zip(table.columns, each, strict=True)) for each in table.lines if policy in each)


def test_throughput_is_tokens_over_seconds_with_dense_of_the_same_run(tmp_path):
    item = "keydiff/throughput"
    stored(tmp_path, timed(item, "dense", 2.0, {10: 1.0}, 4096), timed(item, "keydiff", 4.0, {10: 0.5}, 1024, 1024))
    (table,) = measured_tables_of("keydiff", extra_items("keydiff")[0], NONE, tmp_path)
    assert table.lines[1] == ("keydiff", 250.0, 0.5, 20.0, 2.0, 1.0, 1.0, 0.5)
    assert "0123abc" in " ".join(table.conditions)
    assert "2 rounds" in " ".join(table.conditions)


def test_speeds_are_medians_with_their_range_and_ratios_are_taken_round_by_round(tmp_path):
    item = "keydiff/throughput"
    slow, fast = timed(item, "dense", 2.0, {10: 1.0}, 4096), timed(item, "keydiff", 1.0, {10: 1.0}, 4096)
    slow[0]["rounds"], fast[0]["rounds"] = [2.0, 4.0, 8.0], [1.0, 2.0, 8.0]
    stored(tmp_path, slow, fast)
    (table,) = measured_tables_of("keydiff", extra_items("keydiff")[0], NONE, tmp_path)
    assert table.lines[1][:3] == ("keydiff", 500.0, 2.0)  # the ratio of the medians is 2 too, its range is not
    assert table.texts()[1][1:4] == ("500 [125 to 1,000]", "2 [1 to 2]", "10")
    assert f"{table.lines[1][1]}" == "500.0"  # a file has the number alone


def test_without_dense_in_the_run_there_is_no_table(tmp_path):
    stored(tmp_path, timed("keydiff/throughput", "keydiff", 4.0, {10: 0.5}, 1024))
    with pytest.raises(NotMeasuredError, match="no dense"):
        measured_tables_of("keydiff", extra_items("keydiff")[0], NONE, tmp_path)


def test_a_table_reads_the_newest_run_that_has_the_item_and_never_two(tmp_path):
    item = "kvec/throughput"
    stored(tmp_path, timed(item, "dense", 1.0, {10: 1.0}, 1), timed(item, "sink", 1.0, {10: 1.0}, 1))
    stored(tmp_path, timed(item, "dense", 3.0, {10: 1.0}, 1, created="2026-06-01T10:00:00+00:00"))
    stored(tmp_path, timed("other", "dense", 9.0, {10: 1.0}, 1, created="2026-07-01T10:00:00+00:00"))
    rows = newest_rows(tmp_path, item)
    assert set(rows["policy"]) == {"dense"}
    assert rows[rows["quantity"] == "prefill_seconds"]["value"].tolist() == [3.0]


def test_claims_read_the_newest_run_of_their_own_scale(tmp_path):
    """A later run on another model must not take a claim's costs away."""
    item = "kvec/throughput"
    stored(tmp_path, timed(item, "dense", 1.0, {10: 1.0}, 1))
    (file,) = (tmp_path / "efficiency").glob("*.parquet")
    later = pd.read_parquet(file).assign(scale="small", value=7.0)
    later.to_parquet(file.with_name("9999-later.parquet"))
    assert set(newest_rows(tmp_path, item)["scale"]) == {"small"}
    own = str(pd.read_parquet(file)["scale"].iloc[0])
    assert 7.0 not in newest_rows(tmp_path, item, own)["value"].tolist()
    with pytest.raises(NotMeasuredError):
        newest_rows(tmp_path, item, "full")


def test_rounds_come_back_in_their_order_so_that_two_cases_can_be_paired(tmp_path):
    item = "kvec/table_9"
    stored(
        tmp_path,
        [line(item, "dense", "decode_seconds", 2.0, new_tokens=new, rounds=[3.0, 1.0, 2.0 + new]) for new in (10, 20)],
        [line(item, "sink", "decode_seconds", 2.0, new_tokens=10, rounds=[6.0, 4.0, 6.0])],
    )
    rows = newest_rows(tmp_path, item)
    assert by_round(rows, "dense", "decode_seconds", 20).tolist() == [3.0, 1.0, 22.0]
    ratio = by_round(rows, "sink", "decode_seconds", 10) / by_round(rows, "dense", "decode_seconds", 10)
    assert ratio.tolist() == [2.0, 4.0, 0.5]
    with pytest.raises(NotMeasuredError, match="prefill_seconds of sink"):
        by_round(rows, "sink", "prefill_seconds")


def test_medians_of_an_older_run_without_rounds_are_no_rounds():
    rows = pd.DataFrame([line("kvec/table_9", "dense", "prefill_seconds", 1.0)]).drop(columns="rounds")
    with pytest.raises(NotMeasuredError, match=r"python -m scripts\.efficiency"):
        by_round(rows, "dense", "prefill_seconds")


@pytest.mark.parametrize(("paper", "item"), [("keydiff", "Table 4"), ("kvec", "Table 9"), ("buzz", "Speed and memory")])
def test_without_a_run_the_reason_names_the_command(paper, item, tmp_path):
    with pytest.raises(NotMeasuredError, match=r"python -m scripts\.efficiency"):
        measured_tables_of(paper, item, NONE, tmp_path)


def test_items_of_scores_have_no_table_of_costs(tmp_path):
    assert measured_tables_of("keydiff", "Table 1", NONE, tmp_path) == []
    assert all(extra_items(paper) for paper in PAPERS)


def test_the_time_grid_adds_the_prompt_to_each_output_length(tmp_path):
    item = "kvec/table_9"
    stored(
        tmp_path,
        *(timed(item, name, 2.0, {10: 1.0, 20: 2.5}, 1024, prompt_tokens=n)
          for name in ("dense", "snapkv/kvec", "kvec/testbed") for n in (100, 500)),
    )  # fmt: skip
    (grid,) = measured_tables_of("kvec", "Table 9", NONE, tmp_path)
    assert [each[:2] for each in grid.lines[:3]] == [("100", "snapkv/kvec"), ("100", "kvec/testbed"), ("100", "dense")]
    assert grid.lines[0][2:] == (2.0, 3.0, 4.5)
    (speeds,) = measured_tables_of("kvec", "Table 8", NONE, tmp_path)
    assert at(speeds, "dense") == {
        "policy": "dense", "cache, KiB": 1.0, "prompt tokens/s": 250.0, "new tokens/s": 8.0,
        "total, new tokens/s": 20 / 4.5,
    }  # fmt: skip


def test_hashevict_table_1_has_a_line_for_each_budget_and_recovery(tmp_path):
    item = "hashevict/table_1"
    stored(
        tmp_path,
        timed(item, "dense", 1.0, {10: 1.0}, 4096, budget="100%"),
        timed(item, "l2/hashevict", 0.5, {10: 2.0}, 1024, budget="30%"),
        timed(item, "fastgen (recovery=0.7)", 2.0, {10: 4.0}, 2048, 2048),
    )
    (table,) = measured_tables_of("hashevict", "Table 1", NONE, tmp_path)
    assert table.lines[1] == ("l2/hashevict", "30%", 5.0, 2000.0, 1.0, 0.0, 0.25)
    assert table.lines[2] == ("fastgen (recovery=0.7)", "its own", 2.5, 500.0, 2.0, 2.0, 1.0)


def test_keydiff_table_4_is_what_scoring_adds_to_a_window_and_how_that_grows(tmp_path):
    sizes = {(256, 32): 1.0, (512, 32): 2.0, (256, 64): 1.5}
    stored(
        tmp_path,
        *(
            [
                line("keydiff/table_4", name, quantity, base + added * grown, budget_slots=size[0], block_size=size[1])
                for quantity, base in (("block_operations", 1000.0), ("block_seconds", 0.5))
            ]
            for name, added in (("window", 0.0), ("keydiff", 100.0))
            for size, grown in sizes.items()
        ),
    )
    (table,) = measured_tables_of("keydiff", "Table 4", NONE, tmp_path)
    (only,) = table.lines
    assert only[:3] == ("keydiff", "O(N + B)", 100.0)
    assert only[3] == 6 * 2 * flop_formulas.keydiff_score_flop(288, 32)  # layers, heads
    assert only[4:6] == (2.0, 1.5)
    assert "N = 256 slots, B = 32 tokens." in table.conditions


@pytest.mark.parametrize(("item", "what"), [("Table 6", "prompt"), ("Table 7", "step")])
def test_caotes_tables_have_formula_counts_and_times(item, what, tmp_path):
    own = f"caote/{item.lower().replace(' ', '_')}"
    counted = {"dense": 1000.0, "h2o/keydiff": 1100.0, "caote_h2o": 1150.0, "fastcaote_h2o": 1120.0}
    stored(
        tmp_path,
        *([line(own, name, f"{what}_operations", n), line(own, name, f"{what}_seconds", n / 1100)]
          for name, n in counted.items()),
    )  # fmt: skip
    (table,) = measured_tables_of("caote", item, NONE, tmp_path)
    caote = at(table, "caote_h2o")
    assert caote["counted, of dense"] == 0.05
    assert caote["time, of H2O's"] == pytest.approx(1150 / 1100)
    assert at(table, "dense")["counted, of dense"] == 0.0
    whole = flop_formulas.prefill_flop if what == "prompt" else flop_formulas.decode_flop
    ratio = flop_formulas.caote_flop(1000, flop_formulas.TESTBED) / whole(1000, flop_formulas.TESTBED)
    assert caote[table.columns[2]] == ratio


def test_the_papers_formulas_give_what_caote_prints_in_table_7_and_not_in_table_6():
    printed = published_frame("caote")
    for table, whole, lengths in (
        ("Table 6", flop_formulas.prefill_flop, {"4k": 4096, "8k": 8192, "32k": 32768}),
        ("Table 7", flop_formulas.decode_flop, {"512": 512, "1024": 1024}),
    ):
        own = printed[printed["table"] == table]
        for method, formula in (("caote", flop_formulas.caote_flop), ("fastcaote", flop_formulas.fastcaote_flop)):
            for name, tokens in lengths.items():
                said = own[(own["method"] == method) & own["note"].str.contains(f"seq_len={name};", regex=False)]
                ours = formula(tokens, flop_formulas.LLAMA_3_1_8B) / whole(tokens, flop_formulas.LLAMA_3_1_8B)
                agrees = ours == pytest.approx(float(said["value"].iloc[0]), rel=0.02)
                assert agrees == (table == "Table 7"), (table, method, name)


def test_keydiffs_formula_is_the_sum_of_its_printed_parts():
    n, d = 77, 64
    parts = (3 * n * d + d + n) + (3 * n * d - n - 1) + 5 * (2 * n + 2) + 8 * (n + 1)
    assert flop_formulas.keydiff_score_flop(n, d) == parts


def test_a_table_without_conditions_is_refused():
    with pytest.raises(ValueError, match="conditions"):
        MeasuredTable("t", "T", "", (), ("a",), ())


def test_rows_outside_of_the_schema_are_refused(tmp_path):
    with pytest.raises(ValueError, match="speed"):
        save_rows(pd.DataFrame([line("x", "dense", "q", 1.0)]).assign(speed=1), tmp_path)
