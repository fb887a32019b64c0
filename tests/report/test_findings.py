"""The cards at the top of a page: shares of dense, the best first, and the reason for policies at the floor."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from harness.report.findings import MOST, findings
from harness.report.page import render
from harness.report.summary import difference_text, summary_table

Make = Callable[..., pd.DataFrame]


def with_scores(rows: pd.DataFrame, scores: dict[str, float]) -> pd.DataFrame:
    """The first samples of each cell of a policy are right, so that its mean is about the score."""
    rows = rows.copy()
    for (policy, _), own in rows.groupby(["policy", "budget"]):
        if policy in scores:
            right = round(scores[policy] * len(own))
            rows.loc[own.index, "value"] = [float(place < right) for place in range(len(own))]
    return rows


def test_each_task_and_budget_says_what_the_best_policy_keeps_of_dense(make: Make) -> None:
    rows = make(["sink", "keydiff", "random"], ["64", "128"], ["niah"])
    rows = with_scores(rows, {"dense": 0.8, "keydiff": 0.6, "sink": 0.2, "random": 0.0})
    cards = findings(summary_table(rows))
    assert [card.title for card in cards] == ["niah (exact match) at 64", "niah (exact match) at 128"]
    first = cards[0]
    assert first.sentence == "keydiff keeps 75\u00a0% of dense (0.600 of 0.800, 45 samples)."
    assert [(bar.label, bar.text) for bar in first.bars] == [
        ("keydiff", "75\u00a0%"), ("sink", "25\u00a0%"), ("random (floor)", "0\u00a0%"),
    ]  # fmt: skip
    assert [bar.length for bar in first.bars] == pytest.approx([75, 25, 0])


def test_shares_are_over_the_samples_that_both_have(make: Make) -> None:
    rows = make(["keydiff"], ["64"], ["niah"])
    rows = with_scores(rows, {"dense": 0.5, "keydiff": 0.5})  # right on the same, the first ones
    fewer = rows[(rows["policy"] == "dense") | rows.groupby("policy").cumcount().lt(20)]
    (card,) = findings(summary_table(fewer))
    assert card.bars[0].text == "100\u00a0%"


def test_perplexities_are_ratios_and_the_shortest_bar_is_the_best(make: Make) -> None:
    summary = summary_table(make(["sink", "keydiff", "random"], ["64"], ["perplexity"]))
    (card,) = findings(summary)
    summary = summary.set_index("policy")
    assert card.title == "perplexity at 64"
    texts = {bar.label: bar.text for bar in card.bars}
    assert texts["keydiff"] == f"×{summary.loc['keydiff', 'difference']:.3f}"
    policies = [bar.length for bar in card.bars if bar.label != "random (floor)"]
    assert policies == sorted(policies)
    assert max(bar.length for bar in card.bars) == pytest.approx(100)


def test_policies_at_the_floor_that_rank_by_attention_get_the_reason(make: Make) -> None:
    rows = make(["keydiff", "tova/keydiff", "window", "random"], ["64"], ["niah"])
    low = with_scores(rows, {"dense": 0.9, "keydiff": 0.9, "tova/keydiff": 0.0, "window": 0.0, "random": 0.1})
    (card,) = findings(summary_table(low))
    assert card.reason.startswith("tova/keydiff is no better than random here")
    assert not findings(summary_table(low.assign(prompt="one_shot")))[0].reason
    all_low = with_scores(low, {"keydiff": 0.0})
    assert not findings(summary_table(all_low))[0].reason


def test_few_samples_explain_nothing_and_the_card_says_so(make: Make) -> None:
    rows = make(["keydiff", "tova/keydiff", "window", "random"], ["64"], ["niah"])
    low = with_scores(rows, {"dense": 0.9, "keydiff": 0.9, "tova/keydiff": 0.0, "window": 0.0, "random": 0.1})
    four = low[low.groupby("policy").cumcount() < 4]
    (card,) = findings(summary_table(four))
    assert card.reason.startswith("4 samples cannot tell policies apart")
    assert card.sentence.endswith("4 samples).")


def test_nothing_is_said_where_there_is_nothing_to_say(make: Make) -> None:
    assert not findings(summary_table(make(["keydiff"], ["64"], ["niah"], dense=False)))
    assert not findings(summary_table(make(["keydiff"], ["64"], ["niah"]).assign(tokens_evicted=0.0)))
    (floor,) = findings(summary_table(with_scores(make(["keydiff"], ["64"], ["niah"]), {"dense": 0.0})))
    assert "says nothing about policies" in floor.sentence
    assert not floor.bars


def test_a_page_has_at_most_so_many_cards_and_shows_their_bars(make: Make) -> None:
    rows = make(["keydiff"], [str(40 + 20 * n) for n in range(MOST + 2)], ["niah"])
    assert len(findings(summary_table(rows))) == MOST + 2
    page = render(rows, "t")
    assert page.count('class="bar"') == MOST
    assert "In short" in page
    assert "2 more comparisons stand in the tables below." in page
    assert "more comparison" not in render(make(["keydiff"], ["64"], ["niah"]), "t")


def test_a_ratio_close_to_one_has_the_digits_that_tell_it_from_one() -> None:
    line = {"metric": "nll", "dense": False, "evicted": 5}
    close = line | {"difference": 1.0022, "difference_low": 1.0006, "difference_high": 1.0038}
    assert difference_text(close) == "×1.0022 [1.0006, 1.0038]"
    far = line | {"difference": 1.1, "difference_low": 1.06, "difference_high": 1.15}
    assert difference_text(far) == "×1.10 [1.06, 1.15]"
