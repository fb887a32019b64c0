"""For mkdocs: links to files of the repository that are no pages stay as text, which is all that a site has of them."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)\s]*)\)")


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """mkdocs' hook: the page's source before it becomes HTML."""
    depth = len(PurePosixPath(page.file.src_uri).parents) - 1

    def settled(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        return f"{words} (`{target.lstrip('./')}`)" if target.count("../") > depth else match[0]

    return LINK.sub(settled, markdown)
