"""Prompt texts are data: read from ``tasks/prompts`` and filled with rows. Braces in either of them do no harm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).with_name("prompts")
FIELD = re.compile(r"\{(\w+)\}")


@cache
def prompts(name: str) -> Mapping[str, Any]:
    """The file ``prompts/<name>.yaml``; it says where its texts come from."""
    texts: Mapping[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))
    return texts


def question_of(template: str, context: str, **fields: object) -> str:
    """What follows the field ``context`` in a template, filled: the question, in templates that ask last."""
    before, found, after = template.rpartition(f"{{{context}}}")
    if not found:
        raise ValueError(f"This template has no field {context}: {before or after}")
    return fill(after, **fields)


def fill(template: str, **fields: object) -> str:
    """``template`` with each ``{field}`` replaced, once: braces in the values, and those of JSON, stay.

    A field without a value is a bug and raises `KeyError`.
    """
    return FIELD.sub(lambda found: str(fields[found[1]]), template)
