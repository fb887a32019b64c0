"""Looks are stable, distinct and readable on both page colours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import harness.report.labels as colours
from harness.report.looks import HUES, contrast, look_of, looks

POLICIES = [
    f"{correction}{allocator}{family}"
    for family in (
        "window",
        "sink",
        "h2o",
        "tova",
        "snapkv",
        "keydiff",
        "l2",
        "pyramidkv",
        "buzz",
        "hashevict",
        "kvec",
    )
    for correction in ("", "caote_", "fastcaote_")
    for allocator in ("", "ada_")
]


def cards() -> dict[str, str]:
    """The card colours of the page's style sheet, light first."""
    sheet = (Path(colours.__file__).parent / "page.css").read_text(encoding="utf-8")
    light, dark = re.findall(r"--card: (#[0-9a-f]{6})", sheet)
    return {"light": light, "dark": dark}


def test_looks_do_not_depend_on_the_company() -> None:
    assert looks(["keydiff"])["keydiff"] == looks([*POLICIES, "keydiff"])["keydiff"] == look_of("keydiff")
    assert look_of("h2o/keydiff") == look_of("h2o")
    assert look_of("something_new") == look_of("something_new")


def test_looks_in_one_report_are_distinct() -> None:
    chosen = looks([*POLICIES, "h2o/keydiff", "tova/keydiff", "something_new", "sink (sinks=2)", "sink (sinks=4)"])
    assert len(set(chosen.values())) == len(chosen)


def test_a_correction_keeps_the_hue_and_changes_more_than_the_colour() -> None:
    plain, caote, fast = (look_of(f"{prefix}snapkv") for prefix in ("", "caote_", "fastcaote_"))
    assert len({plain.light, caote.light}) == 2
    assert len({look.filling for look in (plain, caote, fast)}) == 3
    assert len({look.line for look in (plain, caote, fast)}) == 3
    assert plain.marker == caote.marker == fast.marker


@pytest.mark.parametrize("policy", ["dense", "random", "oracle", *POLICIES])
def test_contrast_on_both_pages(policy: str) -> None:
    look, card = look_of(policy), cards()
    assert contrast(look.light, card["light"]) >= 3
    assert contrast(look.dark, card["dark"]) >= 3


def test_hues_are_distinct_in_both_schemes() -> None:
    assert len({light for light, _ in HUES.values()}) == len({dark for _, dark in HUES.values()}) == len(HUES)


def test_known_contrast() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
