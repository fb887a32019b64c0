"""From a matplotlib figure to SVG that lives inside an HTML page and follows its colour scheme."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from harness.report.looks import Look, look_of

# Placeholders that no palette uses; each becomes a custom property of the page.
INK, MUTED, RULE, CARD = "#010101", "#020202", "#030303", "#040404"
_PAGE_COLOURS = {INK: "var(--ink)", MUTED: "var(--muted)", RULE: "var(--rule)", CARD: "var(--card)"}
_SETTINGS = {
    "svg.fonttype": "none",  # text stays text: searchable, in the page's font, and small
    "svg.hashsalt": "kvreplica",  # the same rows give the same bytes
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
}
PX = 1 / 72  # inches: matplotlib's SVG has 72 units per inch, and a unit is a CSS pixel at natural size


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of ``width`` × ``height`` CSS pixels."""
    return Figure(figsize=(width * PX, height * PX))


def matplotlib_style() -> Any:
    """The context in which figures are drawn and saved."""
    return matplotlib.rc_context(_SETTINGS)


def colour_property(look: Look) -> str:
    """The name of the CSS property that holds a look's colour."""
    return f"--c-{look.light[1:]}"


def colour_rules(looks: Iterable[Look]) -> tuple[str, str]:
    """CSS declarations of the looks' colours, for light and for dark pages."""
    unique = {colour_property(look): look for look in looks}
    light = "".join(f"{name}:{look.light};" for name, look in sorted(unique.items()))
    dark = "".join(f"{name}:{look.dark};" for name, look in sorted(unique.items()))
    return light, dark


def inline_svg(drawn: Figure, name: str, description: str, looks: Iterable[Look] = ()) -> Markup:
    """The figure as an ``<svg>``. ``name`` makes its ids unique on the page; ``description`` is read aloud."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib_style():
        drawn.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    # matplotlib wrote this document itself and escapes every text in it, so it is safe to parse and to embed.
    root = ElementTree.fromstring(buffer.getvalue())
    colours = {look.light: f"var({colour_property(look)})" for look in (*looks, look_of("dense"))}
    simplify_svg(root, name, _PAGE_COLOURS | colours)
    width, height = root.attrib["viewBox"].split()[2:]
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "width": f"{float(width):g}",
        "height": f"{float(height):g}",
        "role": "img",
        "aria-label": description,
    }
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def simplify_svg(root: ElementTree.Element, name: str, colours: dict[str, str]) -> None:
    """Plain tags (HTML knows SVG's namespaces), unique ids, page colours, and two decimals in coordinates."""
    used = set(re.findall(r"#([\w-]+)", " ".join(_reference_values(root))))
    for element in root.iter():
        element.tag = element.tag.split("}")[-1]
        for child in list(element):
            if child.tag.split("}")[-1] in ("metadata", "style"):
                element.remove(child)
        element.attrib = {key.split("}")[-1]: value for key, value in element.attrib.items()}
        element.text, element.tail = (element.text or "").strip() or None, None
        if element.attrib.get("id") not in used:
            element.attrib.pop("id", None)
        if element.attrib.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
        for key, value in element.attrib.items():
            element.attrib[key] = _rewrite_value(key, value, name, colours)


def _reference_values(root: ElementTree.Element) -> Iterable[str]:
    for element in root.iter():
        for key, value in element.attrib.items():
            if key.endswith("href") or value.startswith("url("):
                yield value


def _rewrite_value(key: str, value: str, name: str, colours: dict[str, str]) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == "href" or value.startswith("url("):
        return value.replace("#", f"#{name}-")
    if key == "style":
        kept = (rule for rule in value.split("; ") if not rule.startswith("font-family"))
        return re.sub(r"#[0-9a-f]{6}", lambda found: colours.get(found[0], found[0]), ";".join(kept))
    if key in ("d", "x", "y"):
        return re.sub(
            r"-?\d+\.\d+",
            lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."),
            " ".join(value.split()),
        )
    return value
