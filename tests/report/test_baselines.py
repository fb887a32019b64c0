"""Baselines: at the edges of every table, grey and without points in every figure, never ranked."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pandas as pd
import pytest
from rich.console import Console

from harness.report import summary_tables
from harness.report.labels import ordered_policies
from harness.report.looks import HUES, is_baseline, look_of, looks
from harness.report.page import render
from harness.report.summary import summary_table

Make = Callable[..., pd.DataFrame]
COMPARED = ["sink", "random", "a_new_idea", "oracle", "keydiff"]
IN_ORDER = ["oracle (headroom)", "sink", "keydiff", "a_new_idea", "random (floor)"]


@pytest.fixture
def best_are_baselines(make: Make) -> pd.DataFrame:
    """The oracle and random know everything."""
    rows = make(COMPARED, ["64", "128"], ["niah"])
    rows.loc[rows["policy"].isin(["oracle", "random"]), "value"] = 1.0
    return rows


def test_what_a_baseline_is() -> None:
    assert all(map(is_baseline, ["random", "oracle", "random (floor)", "oracle (headroom, seed=1)"]))
    assert not any(map(is_baseline, ["dense", "caote_random", "randomised", "keydiff"]))


def test_they_are_at_the_edges() -> None:
    assert ordered_policies(["dense", *reversed(IN_ORDER)]) == ["dense", *IN_ORDER]


def test_they_are_grey_lines_without_points() -> None:
    floor, headroom = look_of("random (floor)"), look_of("oracle (headroom)")
    assert (floor.light, floor.dark) == (headroom.light, headroom.dark) == HUES["grey"]
    assert floor.marker == headroom.marker == ""
    assert floor.line != headroom.line
    assert all(look_of(policy).marker for policy in ("dense", "keydiff", "caote_random"))
    two = looks(["random (floor, seed=0)", "random (floor, seed=1)"])
    assert len(set(two.values())) == 2


def test_they_are_named_by_what_they_stand_for_and_never_ranked(best_are_baselines: pd.DataFrame) -> None:
    table = summary_table(best_are_baselines)
    for _, of_budget in table[~table["dense"]].groupby("budget"):
        assert list(of_budget["label"]) == IN_ORDER
        assert (of_budget.loc[of_budget["reference"], "rank"] == "").all()
        assert {"best", "second"} <= set(of_budget.loc[~of_budget["reference"], "rank"])


def test_two_seeds_of_one_keep_apart(make: Make) -> None:
    settings = ({"policy": {"name": "random", "seed": seed}} for seed in (0, 1))
    parts = [make(["random"], ["64"], ["niah"], dense=False, config=config) for config in settings]
    assert set(summary_table(pd.concat(parts))["label"]) == {"random (floor, seed=0)", "random (floor, seed=1)"}


@pytest.mark.parametrize("budgets", [["64", "128"], ["64"]])
def test_a_figure_draws_and_names_them(make: Make, budgets: list[str]) -> None:
    page = render(make(COMPARED, budgets, ["niah"]), "t")
    figure = re.search(r'<svg[^>]*aria-label="exact match of 3 policies against budget.*?</svg>', page, re.DOTALL)
    assert figure is not None
    for label in ("oracle (headroom)", "random (floor)"):
        assert f">{label}<" in figure[0]
    grey = f"stroke:var(--c-{HUES['grey'][0][1:]})"
    lines = [style for style in re.findall(r'style="([^"]*)"', figure[0]) if grey in style.replace(" ", "")]
    assert len({re.sub(r".*stroke-dasharray", "", style) for style in lines if "stroke-dasharray" in style}) == 2


def test_the_page_shades_and_explains_them(make: Make) -> None:
    page = render(make(COMPARED, ["64"], ["niah"]), "t")
    assert page.count('<tr class="reference">') == 2
    assert "Grey rows are baselines" in page
    assert "Grey rows" not in render(make(["sink"], ["64"], ["niah"]), "t")


def test_a_page_of_references_alone(make: Make) -> None:
    assert "0 policies against budget" in render(make(["random"], ["64"], ["niah"]), "t")


def test_the_terminal_names_them_in_full(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Console(file=io.StringIO(), width=80)
    monkeypatch.setattr(summary_tables, "console", shown)
    summary_tables.show_summary(summary_table(make(COMPARED, ["64"], ["niah"])))
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    places = [text.index(f"│ {label} ") for label in ("dense", *IN_ORDER)]
    assert places == sorted(places)


def test_the_terminal_has_a_table_for_each_model(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Perplexities of two models in one table would be compared."""
    shown = Console(file=io.StringIO(), width=100)
    monkeypatch.setattr(summary_tables, "console", shown)
    both = [make(["sink"], ["64"], ["niah"], context={"model": name}) for name in ("small", "large")]
    rows = pd.concat([each.assign(cell_id=each["model"] + each["cell_id"]) for each in both], ignore_index=True)
    summary_tables.show_summary(summary_table(rows))
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    for name in ("small", "large"):
        assert f"niah on {name}: exact_match" in text
    assert text.count("│ sink ") == 2
