"""A figure as a small page that follows the reader's colour scheme, as W&B shows it in a panel."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup, escape

from harness.report.colours import Look
from harness.report.quality import swatch
from harness.report.svg import colour_rules

_LIGHT = "--ink:#1b1f24;--muted:#5d636b;--rule:#d8dce1;--card:#ffffff;"
_DARK = "--ink:#e8eaed;--muted:#a9b0b9;--rule:#3c434b;--card:#1b1f24;"
_STYLE = (
    "body{margin:8px;background:var(--card);color:var(--ink);font:13px sans-serif}h1{font-size:13px;margin:0 0 6px}"
    "table{display:inline-table;border-collapse:collapse;margin:0 18px 12px 0}"
    "caption{text-align:left;padding:2px 0;white-space:nowrap}"
    "th,td{padding:3px 7px;text-align:center;font-weight:400}span{margin-right:12px;white-space:nowrap}"
)


def page(title: str, body: Markup, looks: Mapping[str, Look]) -> str:
    """``body`` under a heading, with the key to the policies in ``looks`` where there are any."""
    light, dark = colour_rules(looks.values())
    keys = Markup("").join(
        Markup("<span>{} {}</span>").format(swatch(label, look, f"key{number}"), label)
        for number, (label, look) in enumerate(looks.items())
    )
    style = f":root{{{_LIGHT}{light}}}@media(prefers-color-scheme:dark){{:root{{{_DARK}{dark}}}}}{_STYLE}"
    return f"<!doctype html><meta charset=utf-8><style>{style}</style><h1>{escape(title)}</h1>{body}<p>{keys}</p>"
