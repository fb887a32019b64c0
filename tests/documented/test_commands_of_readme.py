"""Every command that the README shows is run as it stands. Part of ``make test-all``, not of ``make test``."""

from __future__ import annotations

import pytest
from documented.running import commands, does_what_its_page_says

pytestmark = pytest.mark.whole


@commands(of_readme=True)
def test_it_does_what_its_page_says(page, command, clone, two_cells):
    does_what_its_page_says(page, command, clone, two_cells)
