"""The site in a real Chromium: sorting, filtering, the slider by keyboard, no messages in the console, no overflow."""

from __future__ import annotations

from pathlib import Path

import chromium
import pytest
from chromium import Browser
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

pytestmark = chromium.needed


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with chromium.started(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@pytest.fixture
def browser(driver, site):
    """A browser whose console must have stayed silent."""
    driver.get_log("browser")
    yield Browser(driver, site)
    assert driver.get_log("browser") == []


def viewer(site: Path) -> str:
    (page,) = (file.name for file in (site / "survivors").iterdir() if file.name != "index.html")
    return f"survivors/{page}"


def test_a_press_on_a_heading_sorts_and_the_third_gives_the_order_back(browser):
    browser.open("leaderboard.html")
    own, scores = browser.column(0), browser.numbers("score")
    browser.heading("score").click()
    assert browser.numbers("score") == sorted(scores, reverse=True)
    assert browser.one("th[aria-sort]").get_attribute("aria-sort") == "descending"
    browser.heading("score").click()
    assert browser.numbers("score") == sorted(scores)
    assert browser.one("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    browser.heading("score").click()
    assert browser.column(0) == own
    assert not browser.all("th[aria-sort]")


def test_headings_are_sorted_by_from_the_keyboard_and_empty_places_stay_below(browser):
    browser.open("leaderboard.html")
    heading = browser.heading("place")
    heading.send_keys(Keys.ENTER)
    heading.send_keys(Keys.SPACE)
    places = browser.numbers("place")
    assert places == sorted(places)
    at = [each.text for each in browser.all("thead button")].index("place")
    shown = browser.column(at)
    assert shown[: len(places)] == [f"{place:g}" for place in places]
    assert set(shown[len(places) :]) == {"–"}


def test_filters_combine_are_counted_and_stand_in_the_address(browser):
    browser.open("leaderboard.html")
    every = len(browser.column(0))
    Select(browser.one("select[name=task]")).select_by_visible_text("niah")
    Select(browser.one("select[name=budget]")).select_by_visible_text("25%")
    browser.one("input[name=text]").send_keys("caote")
    assert sorted(browser.column(0)) == ["caote_h2o", "fastcaote_h2o"]
    assert browser.text("[data-count]") == "2"
    address = browser.driver.current_url
    browser.driver.get(address)
    assert sorted(browser.column(0)) == ["caote_h2o", "fastcaote_h2o"]
    browser.one("button[type=reset]").click()
    browser.driver.execute_async_script("setTimeout(arguments[0], 50)")
    assert len(browser.column(0)) == every
    assert "?" not in browser.driver.current_url


def test_the_overview_leads_to_the_claims_of_one_paper_and_verdict(browser):
    browser.open("index.html")
    browser.one('a[href*="claims.html?paper=kvec&verdict=not%20comparable"]').click()
    browser.arrived("claims.html")
    assert {name[:2] for name in browser.column(0)} == {"KV"}
    assert set(browser.column(2)) == {"not comparable"}


def test_the_ledger_shows_broken_cells_alone(browser):
    browser.open("ledger.html")
    Select(browser.one("select[name=invalid]")).select_by_visible_text("broken")
    assert browser.column(0) == ["tova/keydiff"]


def test_the_slider_goes_through_blocks_and_decode_steps_from_the_keyboard(browser, site):
    browser.open(viewer(site))
    slider = browser.one("#moment")
    data = browser.driver.execute_script("return JSON.parse(document.getElementById('data').textContent)")
    prompt, whole = data["promptTokens"], len(data["pieces"])
    assert browser.one("#moment-text").text == f"{prompt} of {prompt} prompt tokens read"
    slider.send_keys(Keys.HOME)
    assert browser.one("#moment-text").text == f"32 of {prompt} prompt tokens read"
    assert "After prompt block 1 of" in browser.text('.pane[data-run="0"] [data-state]')
    assert len(browser.all('.pane[data-run="0"] .t[data-level="unread"]')) == whole - 32
    slider.send_keys(Keys.ARROW_RIGHT)
    assert browser.one("#moment-text").text == f"64 of {prompt} prompt tokens read"
    slider.send_keys(Keys.END)
    assert browser.one("#moment-text").text.endswith(f", {whole - prompt} of the answer fed")
    assert not browser.all('.pane[data-run="0"] .t[data-level="unread"]')
    slider.send_keys(Keys.PAGE_DOWN)
    assert (
        browser.one("#moment-text").text != f"{prompt} of {prompt} prompt tokens read, {whole - prompt} of the answer"
    )


@pytest.mark.parametrize("layer", ["", "2"])
def test_colours_say_how_many_heads_hold_a_token(browser, site, layer):
    browser.open(viewer(site))
    Select(browser.one("#layer")).select_by_value(layer)
    data = browser.driver.execute_script("return JSON.parse(document.getElementById('data').textContent)")
    for number, run in enumerate(data["runs"]):
        step = run["promptPasses"] - 1
        heads = run["leftAt"] if not layer else run["leftAt"][2 * run["heads"] : 3 * run["heads"]]
        counts = [sum(left < 0 or left > step for left in token) for token in zip(*heads, strict=True)]
        fed = data["promptTokens"]
        expected = [str(-(-5 * count // len(heads))) if count else "gone" for count in counts[:fed]]
        shown = browser.driver.execute_script(
            "return [...document.querySelectorAll(`.pane[data-run='${arguments[0]}'] .t`)].map(t => t.dataset.level)",
            number,
        )
        assert shown[:fed] == expected
        assert set(shown[fed:]) == {"unread"}
        held = sum(count > 0 for count in counts[:fed])
        assert f"{held} of {fed} tokens held" in browser.text(f'.pane[data-run="{number}"] [data-state]')


def test_a_token_is_looked_at_in_all_panes_from_the_keyboard(browser, site):
    browser.open(viewer(site))
    text = browser.one('.pane[data-run="0"] [data-tokens]')
    for _ in range(3):
        text.send_keys(Keys.ARROW_RIGHT)
    assert [each.get_attribute("data-place") for each in browser.all(".looked")] == ["2", "2", "2"]
    for pane in range(3):
        assert "token 3: held by" in browser.text(f'.pane[data-run="{pane}"] [data-token]')
        assert len(browser.all(f'.pane[data-run="{pane}"] .grid i')) == 12
    assert len(browser.all('.pane[data-run="0"] .grid i.held')) == 12, "a sink is held by every head"


def test_policies_are_shown_and_hidden(browser, site):
    browser.open(viewer(site))
    browser.one('input[name=run][value="1"]').send_keys(Keys.SPACE)
    assert [pane.is_displayed() for pane in browser.all(".pane")] == [True, False, True]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_is_wider_than_the_window(browser, site, width, scheme):
    cell = next((site / "cells").iterdir()).name
    pages = ["index.html", "leaderboard.html", "claims.html", "ledger.html", f"cells/{cell}",
             "survivors/index.html", viewer(site)]  # fmt: skip
    for page in pages:
        browser.open(page, width, scheme)
        found = browser.driver.execute_script("return document.documentElement.scrollWidth")
        assert found <= width, page
        ground, ink = browser.driver.execute_script(
            "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]"
        )
        assert (ground, ink) == {
            "light": ("rgb(246, 247, 248)", "rgb(28, 33, 38)"),
            "dark": ("rgb(16, 20, 24)", "rgb(230, 233, 236)"),
        }[scheme], page
