"""From a matplotlib figure to SVG within an HTML page, in the page's colours and fonts."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
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


def matplotlib_style() -> AbstractContextManager[None]:
    """The context within which figures are drawn and saved."""
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
    """Rewrite what no setting of matplotlib's SVG backend changes; ``name`` makes ids unique on a page.

    Tags and attributes lose their namespaces, which HTML does not need. The style sheet and the fonts go, so that the
    page's own hold. Only ids that are referred to stay. ``colours`` maps colours to those of the page. Coordinates
    have two decimals instead of six: a quarter of a figure's size.
    """
    used = {_referred_id(key, value) for element in root.iter() for key, value in element.attrib.items()}
    for element in root.iter():
        element.tag = _local(element.tag)
        for child in list(element):
            if _local(child.tag) == "style":
                element.remove(child)
        element.attrib = {_local(key): value for key, value in element.attrib.items()}
        element.text, element.tail = (element.text or "").strip() or None, None
        if element.attrib.get("id") not in used:
            element.attrib.pop("id", None)
        if element.attrib.get("transform", "").startswith("rotate(-0 "):  # of every horizontal text
            del element.attrib["transform"]
        for key, value in element.attrib.items():
            element.attrib[key] = _rewrite_value(key, value, name, colours)


def _local(name: str) -> str:
    """``{namespace}tag`` without its namespace."""
    return name.rpartition("}")[2]


def _referred_id(key: str, value: str) -> str:
    """The id in ``href="#id"`` or ``url(#id)``, in a style too (a hatch); empty for other attributes."""
    if key.endswith("href"):
        return value.partition("#")[2]
    found = re.search(r"url\(#([^)]*)\)", value)
    return found[1] if found else ""


def _rewrite_value(key: str, value: str, name: str, colours: dict[str, str]) -> str:
    if key == "id":
        return f"{name}-{value}"
    if _referred_id(key, value):
        value = re.sub(r"(^|\()#", rf"\1#{name}-", value)
    if key == "style":
        rules = (rule.partition(": ") for rule in value.split("; "))
        return ";".join(f"{what}: {colours.get(how, how)}" for what, _, how in rules if what != "font-family")
    if key in ("d", "x", "y"):
        return re.sub(
            r"-?\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), " ".join(value.split())
        )
    return value
