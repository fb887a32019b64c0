"""What only we show, on rows whose answers are known: differences are paired, sizes are bytes, nothing is made up."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from given import SLOT, cell, column, rows

from harness.papers.comparison_tables import reading_pairs
from harness.papers.efficiency_rows import save_rows
from harness.papers.leaderboard import leaderboards
from harness.papers.measured_tables import NotMeasuredError
from harness.papers.report_items import extra_items, measured_tables_of
from harness.papers.table_formats import markdown_of_measured

RIGHT, WRONG = 1.0, 0.0
FOUR = [RIGHT, RIGHT, RIGHT, WRONG]
NOWHERE = Path("nowhere")


def made(item, *cells):
    (table,) = measured_tables_of("ours", item, rows(*cells), NOWHERE)
    return table


def test_the_oracle_gap_is_simulated_minus_true_over_the_samples_of_both():
    table = made(
        "Oracle gap",
        cell("dense", FOUR),
        cell("keydiff", [RIGHT, WRONG, WRONG, WRONG, RIGHT, RIGHT]),  # two samples that the other has not
        cell("keydiff", [RIGHT, RIGHT, RIGHT, WRONG], prompt="simulated"),
        cell("sink", FOUR, block=16),  # no simulated blocks of 16: no line
    )
    assert [line[0] for line in table.lines] == ["keydiff"]
    assert column(table, "true blocks")["keydiff"].startswith("0.25 ")
    assert column(table, "simulated")["keydiff"].startswith("0.75 ")
    assert column(table, "gap")["keydiff"].startswith("+0.50 ")
    assert column(table, "dense")["keydiff"].startswith("0.75 ")
    assert column(table, "samples")["keydiff"] == 4


def test_regimes_are_compared_where_all_three_were_run():
    table = made(
        "Prompt regimes",
        cell("dense", FOUR),
        cell("keydiff", [RIGHT, WRONG, WRONG, WRONG]),
        cell("keydiff", FOUR, prompt="one_shot"),
        cell("keydiff", [WRONG] * 4, prompt="token_fed"),
        cell("sink", FOUR),
        cell("sink", FOUR, prompt="one_shot"),
    )
    assert [line[0] for line in table.lines] == ["keydiff"]
    assert column(table, "one_shot − blocked")["keydiff"].startswith("+0.50 ")
    assert column(table, "token_fed − blocked")["keydiff"].startswith("−0.25 ")


def test_both_readings_are_compared_in_the_regime_that_they_share():
    table = made(
        "Both readings",
        cell("pyramidkv/kvec", [RIGHT, WRONG], prompt="one_shot"),
        cell("pyramidkv/public_code", [RIGHT, RIGHT], prompt="one_shot", kept=30),
        cell("keydiff", [RIGHT, RIGHT]),
        cell("keydiff/rawmean", [RIGHT, WRONG]),
        cell("keydiff/rawmean", [WRONG, WRONG], prompt="one_shot"),
    )
    assert column(table, "difference")["pyramidkv/kvec"].startswith("+0.50 ")
    assert column(table, "bytes, second / first")["pyramidkv/kvec"] == pytest.approx(30 / 25)
    assert column(table, "difference")["keydiff"].startswith("−0.50 ")
    assert column(table, "prompt")["keydiff"] == "blocked, 32"


def test_readings_in_different_regimes_say_so():
    table = made(
        "Both readings",
        cell("hashevict/paper", [RIGHT], prompt="token_fed"),
        cell("hashevict/released-code", [WRONG], prompt="one_shot"),
    )
    assert column(table, "prompt")["hashevict/paper"] == "token_fed / one_shot"


def test_every_pair_of_readings_names_presets_papers_and_a_source():
    from harness.config.experiments import option_names
    from harness.papers.published import PAPERS

    for pair in reading_pairs():
        assert {pair["first"], pair["second"]} <= set(option_names("policy"))
        assert pair["paper"] in PAPERS
        assert pair["differs"]
        assert pair["source"]


def test_realised_counts_state_and_growth_in_bytes_against_the_nominal_slots():
    table = made(
        "Realised budget",
        cell("dense", FOUR),
        cell("snapkv/kvec", FOUR, prompt="one_shot", kept=30),  # 25 asked, 5 tokens grown
        cell("h2o/keydiff", FOUR, state=SLOT // 5),
        cell("fastgen", FOUR, budget="100%", prompt="one_shot", kept=50),
    )
    assert column(table, "realised / nominal") == pytest.approx(
        {"snapkv/kvec": 1.2, "h2o/keydiff": 1.2, "fastgen": 0.5}
    )
    assert column(table, "realised / dense") == pytest.approx(
        {"snapkv/kvec": 30 / 105, "h2o/keydiff": 30 / 105, "fastgen": 50 / 105}
    )
    assert column(table, "state, of K and V")["h2o/keydiff"] == pytest.approx(0.2)


FIVE = ("keydiff", "tova/keydiff", "snapkv/keydiff", "sink", "h2o/keydiff")


def five():
    """Wrong at 10 slots and right at 40."""
    return [
        each for name in FIVE for each in (cell(name, [WRONG] * 4, budget="10%"), cell(name, [RIGHT] * 4, budget="40%"))
    ]


def board(*more, results=NOWHERE):
    return leaderboards(rows(cell("dense", FOUR), *five(), *more), results, sizes=[26.25 / 105])


def test_the_leaderboard_reads_everyone_at_the_same_bytes():
    """Between 10 and 40 slots, 26.25 slots are a mixture of 54 % and 46 %."""
    (table,) = board(
        cell("caote_h2o", [RIGHT] * 4, budget="10%", state=SLOT),  # twice the bytes of its slots: 20
        cell("caote_h2o", [RIGHT] * 4, budget="20%", state=SLOT),  # 40
        cell("oracle", [RIGHT] * 4, budget="10%"),
        cell("oracle", [RIGHT] * 4, budget="40%"),
    )
    scores = {line[0]: line[table.columns.index("score")] for line in table.lines}
    ranks = {line[0]: line[table.columns.index("rank")] for line in table.lines}
    assert scores["keydiff"].startswith("0.54 ")
    assert scores["caote_h2o"].startswith("1.00 ")
    assert ranks["caote_h2o"] == "1"
    assert ranks["keydiff"] == "2"
    assert ranks["oracle"] == ranks["dense"] == ""
    mixed = {line[0]: line[table.columns.index("budgets mixed")] for line in table.lines}
    assert mixed["caote_h2o"].startswith("69 % at 10% (19 % of dense), 31 % at 20%")


def test_a_board_as_markdown_has_every_line_with_caption_and_conditions():
    (table,) = board()
    text = markdown_of_measured(table)
    assert text.startswith(f"# {table.title}\n\n{table.caption}\n\n| policy | score |")
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 2 + len(table.lines)
    assert text.rstrip().endswith(table.conditions[-1])


def test_ranks_have_the_interval_that_draws_of_samples_give():
    """One policy is right on all four samples, the others on the same three: first in every draw, or tied with it."""
    (table,) = board(cell("caote_h2o", [RIGHT] * 4, budget="10%"), cell("caote_h2o", [RIGHT] * 4, budget="40%"))
    ranks = {line[0]: line[table.columns.index("ranks")] for line in table.lines}
    assert ranks["caote_h2o"] == "[1, 1]"
    assert ranks["dense"] == ""
    assert ranks["keydiff"] != "[1, 1]"


def test_where_lines_have_read_different_samples_the_caption_says_whose_ranks_are_drawn():
    (alike,) = board(cell("caote_h2o", [RIGHT] * 4, budget="10%"), cell("caote_h2o", [RIGHT] * 4, budget="40%"))
    assert "draws of samples." in alike.caption
    (fewer,) = board(cell("caote_h2o", [RIGHT] * 3, budget="10%"), cell("caote_h2o", [RIGHT] * 3, budget="40%"))
    assert (
        "draws of the 3 samples that all lines have read; scores and their ranks are of all that a line has."
        in fewer.caption
    )


def test_the_caption_says_who_lies_below_random_and_above_the_oracle():
    (table,) = board(
        cell("random", [RIGHT, RIGHT, RIGHT, RIGHT], budget="10%"),
        cell("random", [RIGHT, RIGHT, RIGHT, RIGHT], budget="40%"),
        cell("oracle", [WRONG] * 4, budget="10%"),
        cell("oracle", [WRONG] * 4, budget="40%"),
    )
    assert "Worse than random eviction, within intervals: " in table.caption
    assert "Better than the oracle, which knows attention and no answer" in table.caption
    assert "keydiff (blocked, 32)" in table.caption


def test_the_state_of_a_policy_is_a_share_of_its_bytes():
    (table,) = board(
        cell("caote_h2o", [RIGHT] * 4, budget="10%", state=SLOT),
        cell("caote_h2o", [RIGHT] * 4, budget="20%", state=SLOT),
    )
    states = {line[0]: line[table.columns.index("state")] for line in table.lines}
    assert (states["caote_h2o"], states["keydiff"]) == ("50 %", "0 %")


def test_of_likelihoods_the_lowest_is_the_best():
    """caote_h2o and random are always at 0 nats, the five at 0.54 nats at the compared size."""
    found = rows(
        cell("dense", [WRONG] * 4), *five(),
        cell("caote_h2o", [WRONG] * 4, budget="10%"), cell("caote_h2o", [WRONG] * 4, budget="40%"),
        cell("random", [WRONG] * 4, budget="10%"), cell("random", [WRONG] * 4, budget="40%"),
    ).assign(metric="nll")  # fmt: skip
    (table,) = leaderboards(found, NOWHERE, sizes=[26.25 / 105])
    lines = {line[0]: dict(zip(table.columns, line, strict=True)) for line in table.lines}
    assert (lines["caote_h2o"]["rank"], lines["caote_h2o"]["ranks"]) == ("1", "[1, 1]")
    assert (lines["keydiff"]["rank"], lines["keydiff"]["ranks"]) == ("2", "[2, 2]")
    assert "nats per token: the lower the better" in table.caption
    assert "Worse than random eviction" in table.caption
    assert "Better than the oracle" not in table.caption


def test_times_stand_beside_the_policies_that_were_timed(tmp_path):
    """2 s for a prompt of 1,000 tokens, 1 s for 10 new ones; keydiff alone was timed, and only in blocks."""
    common = {
        "item": "leaderboard/throughput", "policy": "keydiff", "prompt": "blocked", "block_size": 32,
        "prompt_tokens": 1000, "budget_slots": 256, "budget": "", "unit": "s", "repeats": 1, "model": "testbed",
        "scale": "mini", "dtype": "float32", "threads": 2, "git": "", "versions": "", "hardware": "", "device": "cpu",
        "created": "2026-05-04T10:00:00+00:00",
    }  # fmt: skip
    taken = [("prefill_seconds", 0, 2.0), ("decode_seconds", 10, 1.0)]
    save_rows(
        pd.DataFrame(
            [
                {
                    **common, "quantity": quantity, "new_tokens": new, "rounds": [time],
                    **dict.fromkeys(("value", "low", "high"), time),
                }
                for quantity, new, time in taken
            ]
        ),
        tmp_path,
    )  # fmt: skip
    (table,) = board(results=tmp_path)
    (keydiff,) = [line for line in table.lines if line[0] == "keydiff"]
    assert keydiff[8:10] == ("2.00", "100.0")
    assert [line[8:10] for line in table.lines if line[0] == "sink"] == [("", "")]
    assert "prompt, ms/token" not in board()[0].columns


def test_a_mixture_is_never_more_certain_than_its_ends():
    (table,) = board(cell("caote_h2o", [WRONG] * 4, budget="10%"), cell("caote_h2o", [WRONG] * 4, budget="40%"))
    scores = {line[0]: line[table.columns.index("score")] for line in table.lines}
    assert scores["caote_h2o"] == "0.00 [0.00, 0.49]"  # Wilson for 0 of 4


def test_who_was_not_run_on_both_sides_has_no_place_and_is_named():
    (table,) = board(cell("buzz", [RIGHT] * 4, budget="40%", prompt="one_shot"))
    assert "buzz" not in {line[0] for line in table.lines}
    assert "buzz (one_shot: 38 to 38 %)" in table.caption


def test_cells_that_broke_a_promise_are_left_out():
    with pytest.raises(NotMeasuredError):
        made("Oracle gap", cell("keydiff", FOUR, invalid="It lied."), cell("keydiff", FOUR, prompt="simulated"))


@pytest.mark.parametrize("item", extra_items("ours"))
def test_without_rows_the_reason_names_what_measures_it(item):
    named = r"\+exp=leaderboard " if item == "Leaderboard" else r"\+exp=ours/"
    with pytest.raises(NotMeasuredError, match=named):
        measured_tables_of("ours", item, rows(cell("keydiff", FOUR)), NOWHERE)
    with pytest.raises(NotMeasuredError, match=r"\+exp=ours/"):
        measured_tables_of("ours", item, rows(cell("keydiff", FOUR)).iloc[:0], NOWHERE)


def test_conditions_name_model_samples_machine_and_commit():
    (table,) = board()
    text = " ".join(table.conditions)
    for words in ("testbed", "float32", "4 samples", "prompts of 100 tokens", "2 cores", "2026-05-04", "0123abc"):
        assert words in text
