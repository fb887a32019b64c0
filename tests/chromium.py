"""A real Chromium for tests that look at pages: headless, from the disk, with its console watched."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
PATIENCE = 30  # seconds for a page
needed = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="needs Chromium and its driver: apt-get install chromium chromium-driver",
)


@contextmanager
def started(profile: Path) -> Iterator[webdriver.Chrome]:
    """A driver with a browser of its own; ``profile`` is an empty folder."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     f"--user-data-dir={profile}"):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


class Browser:
    """A page at a time, from the disk."""

    def __init__(self, driver: webdriver.Chrome, site: Path) -> None:
        self.driver, self.site = driver, site

    def open(self, page: str, width: int = 1280, scheme: str = "light") -> None:
        """Load a page of the site in a window of this width, in CSS pixels."""
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.driver.get(f"{self.site.as_uri()}/{page}")

    def arrived(self, page: str) -> None:
        """Wait until what was clicked has led to this page and its scripts have run."""
        script = "return location.pathname.endsWith(arguments[0]) && document.readyState === 'complete'"
        WebDriverWait(self.driver, PATIENCE).until(lambda driver: driver.execute_script(script, page))

    def all(self, selector: str):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def column(self, number: int) -> list[str]:
        """The text of a column, of the lines that are shown."""
        script = """return [...document.querySelectorAll('tbody tr')].filter(row => !row.hidden)
                           .map(row => row.cells[arguments[0]])
                           .map(cell => (cell.querySelector("a") ?? cell.firstChild).textContent.trim())"""
        return self.driver.execute_script(script, number)

    def numbers(self, title: str) -> list[float]:
        """What a column is sorted by, of the lines that are shown and have it."""
        script = """const at = [...document.querySelectorAll('thead button')]
                               .findIndex(button => button.textContent === arguments[0]);
                    return [...document.querySelectorAll('tbody tr')].filter(row => !row.hidden)
                           .map(row => row.cells[at].dataset.order).filter(Boolean).map(Number)"""
        return self.driver.execute_script(script, title)

    def heading(self, title: str):
        (found,) = [each for each in self.all("thead button") if each.text == title]
        return found

    def text(self, selector: str) -> str:
        return self.driver.execute_script("return document.querySelector(arguments[0]).textContent", selector)
