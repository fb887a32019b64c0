"""Every command that the pages of docs/ show is run as it stands. Part of ``make test-all``, not of ``make test``."""

from __future__ import annotations

import pytest
from documented.commands import PAGES, documented
from documented.running import commands, does_what_its_page_says

pytestmark = pytest.mark.whole


@commands(of_readme=False)
def test_it_does_what_its_page_says(page, command, clone, two_cells):
    does_what_its_page_says(page, command, clone, two_cells)


def test_commands_are_found_on_most_pages():
    assert len({page for page, _ in documented()}) > len(PAGES) / 2
