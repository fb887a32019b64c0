"""One look per policy, the same in every figure and every report.

Hue tells the family (what scores the tokens); the marker's filling and the line tell the value correction.
Nothing is told by colour alone. The hues are those of Okabe and Ito ("Color Universal Design", 2008) and two of
Paul Tol's ("Colour schemes", 2021), which stay apart under the common colour-vision deficiencies; each has a
value for light and one for dark pages with a contrast of at least 3:1 (WCAG 2.2, 1.4.11).
Baselines are grey and have no markers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Look:
    """How a policy is drawn. ``light`` and ``dark`` are one colour for the two page schemes."""

    light: str
    dark: str
    marker: str  # matplotlib's name
    filling: str  # matplotlib's fillstyle: full, none or bottom
    line: str  # matplotlib's linestyle


HUES = {
    "grey": ("#5d636b", "#a9b0b9"),
    "sky": ("#3a96d2", "#8fcdf4"),
    "olive": ("#85801f", "#c8c253"),
    "blue": ("#0067a3", "#4a9bd8"),
    "green": ("#008f68", "#2dbf95"),
    "orange": ("#c47f00", "#eaa82a"),
    "vermillion": ("#d05400", "#f2803f"),
    "purple": ("#b8518a", "#e08dbc"),
    "indigo": ("#4b3ca8", "#9a8fec"),
}
# Family: hue and marker. The order is the order of rows in every table.
FAMILIES = {
    "dense": ("grey", "o"),
    "oracle": ("grey", "d"),
    "window": ("olive", "s"),
    "sink": ("sky", "D"),
    "streamingllm": ("sky", "D"),
    "l2": ("indigo", "p"),
    "knorm": ("indigo", "p"),
    "h2o": ("blue", "o"),
    "tova": ("green", "^"),
    "snapkv": ("orange", "v"),
    "pyramidkv": ("orange", "h"),
    "keydiff": ("vermillion", "*"),
    "buzz": ("purple", "<"),
    "hashevict": ("purple", "8"),
    "kvec": ("indigo", ">"),
    "gemfilter": ("sky", "H"),
    "fastgen": ("green", "d"),
    "headkv": ("blue", "p"),
    "random": ("grey", "d"),
}
BASELINES = {"oracle": "headroom", "random": "floor"}  # for comparison, never ranked
BASELINE_LINES = {"oracle": "--", "random": ":"}
CORRECTIONS = {"caote": ("none", "--"), "fastcaote": ("bottom", ":")}
MARKERS = ("o", "s", "D", "^", "v", "<", ">", "p", "h", "8", "d", "*")
_HASHED_HUES = tuple(hue for hue in HUES if hue != "grey")


def look_of(policy: str) -> Look:
    """A policy's look by its name alone; unknown families get a hue and marker from a hash of the name."""
    if is_baseline(policy):
        return Look(*HUES["grey"], marker="", filling="full", line=BASELINE_LINES[_method(policy)])
    family = _family(policy)
    if family:
        hue, marker = FAMILIES[family]
    else:
        digest = hashlib.blake2b("_".join(_parts(policy)).encode(), digest_size=8).digest()
        hue, marker = _HASHED_HUES[digest[0] % len(_HASHED_HUES)], MARKERS[digest[1] % len(MARKERS)]
    correction = next((part for part in _parts(policy) if part in CORRECTIONS), "")
    filling, line = CORRECTIONS.get(correction, ("full", "-"))
    light, dark = HUES[hue]
    if correction:
        light, dark = _mixed_colour(light, "#000000", 0.25), _mixed_colour(dark, "#ffffff", 0.3)
    return Look(light, dark, marker, filling, line)


def looks(policies: Iterable[str]) -> dict[str, Look]:
    """The looks of a report's policies; where two would be the same, the later name takes a free marker."""
    chosen: dict[str, Look] = {}
    for policy in sorted(set(policies), key=lambda name: (len(name), name)):
        look = look_of(policy)
        candidates = (look, *(replace(look, marker=marker) for marker in MARKERS))
        chosen[policy] = next((one for one in candidates if one not in chosen.values()), look)
    return chosen


def is_baseline(policy: str) -> bool:
    """Whether a policy, or its label, is a baseline other than dense: the oracle or random."""
    return _method(policy) in BASELINES


def policy_rank(policy: str) -> tuple[int, int, int]:
    """The sort key of a policy in tables: by family, then unknown ones; plain methods before modified ones.

    The floor comes after all others, the headroom before them, next to dense.
    """
    if _method(policy) == "random":
        return len(FAMILIES) + 1, 0, 0
    family = _family(policy)
    corrected = next((i for i, name in enumerate(CORRECTIONS, start=1) if name in _parts(policy)), 0)
    return (list(FAMILIES).index(family) if family else len(FAMILIES)), corrected, len(_parts(policy))


def _method(policy: str) -> str:
    """``fastcaote_h2o/keydiff (sinks=4)`` names a method, the paper whose variant it is, and settings."""
    return re.split(r"[/ ]", policy.lower(), maxsplit=1)[0]


def _parts(policy: str) -> list[str]:
    return [part for part in re.split(r"[^a-z0-9]+", _method(policy)) if part]


def _family(policy: str) -> str | None:
    return next((part for part in reversed(_parts(policy)) if part in FAMILIES), None)


def _mixed_colour(colour: str, other: str, share: float) -> str:
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a * (1 - share) + b * share):02x}" for a, b in pairs)


# Contrast of two colours.


def contrast(colour: str, other: str) -> float:
    """The contrast ratio of two sRGB colours, 1 to 21 (WCAG 2.2, relative luminance)."""
    bright, dim = sorted((_luminance(colour), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in _channels(colour))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
