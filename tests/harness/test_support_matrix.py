"""docs/support.md is what the code says, and the code refuses what the page refuses."""

from __future__ import annotations

from harness.cli.support import PAGE, page


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == page(), "run: python -m harness support"
