"""The committed reports in a real Chromium: whole, readable at 1280 and 390 pixels, and without a network."""

from __future__ import annotations

import chromium
import pytest
from chromium import Browser
from test_reference_result import REFERENCE

from harness.papers.published import OURS, PAPERS

pytestmark = chromium.needed
BROKEN = "return [...document.images].filter(image => !image.naturalWidth).map(image => image.alt)"
# What sticks out of the window and does not lie in something that scrolls by itself.
OUTSIDE = """
const scrolls = node => node && (/(auto|scroll)/.test(getComputedStyle(node).overflowX) || scrolls(node.parentElement));
return [...document.body.querySelectorAll('*')]
    .filter(node => node.getBoundingClientRect().right > innerWidth + 1 && !scrolls(node))
    .slice(0, 5).map(node => `${node.tagName}.${node.className}`)"""
SMALLEST = """return Math.min(...[...document.querySelectorAll('td, th, p')]
    .filter(node => node.textContent.trim()).map(node => parseFloat(getComputedStyle(node).fontSize)))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium.started(tmp_path_factory.mktemp("chromium")) as driver:
        driver.execute_cdp_cmd("Network.enable", {})
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        yield Browser(driver, REFERENCE / "reports")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("paper", [*PAPERS, OURS])
def test_a_report_is_whole_and_fits(browser, paper, width):
    browser.driver.get_log("browser")
    browser.open(f"{paper}/index.html", width)
    assert browser.driver.execute_script(BROKEN) == []
    assert browser.driver.execute_script(OUTSIDE) == []
    assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.driver.execute_script(SMALLEST) >= 11  # CSS pixels
    assert browser.driver.get_log("browser") == []
