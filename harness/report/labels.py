"""One look per policy, the same in every figure and every report.

Hue tells the family (what scores the tokens), the marker's filling and the line tell the value correction.
Nothing is told by colour alone. The hues are those of Okabe and Ito ("Color Universal Design", 2008) and two of
Paul Tol's ("Colour schemes", 2021), which stay apart under the common colour-vision deficiencies; each has a
value for light and one for dark pages with a contrast of at least 3:1 (WCAG 2.2, 1.4.11).
Reference lines are grey and have no markers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from harness.report.rows import CONTEXT


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
REFERENCES = {"oracle": "headroom", "random": "floor"}  # what they stand for; read against, never ranked
REFERENCE_LINES = {"oracle": "--", "random": ":"}
CORRECTIONS = {"caote": ("none", "--"), "fastcaote": ("bottom", ":")}
MARKERS = ("o", "s", "D", "^", "v", "<", ">", "p", "h", "8", "d", "*")
_HASHED_HUES = tuple(hue for hue in HUES if hue != "grey")


def _method(policy: str) -> str:
    """``fastcaote_h2o/keydiff (sinks=4)`` names a method, the paper whose variant it is, and settings."""
    return re.split(r"[/ ]", policy.lower(), maxsplit=1)[0]


def _parts(policy: str) -> list[str]:
    return [part for part in re.split(r"[^a-z0-9]+", _method(policy)) if part]


def is_reference(policy: str) -> bool:
    """Whether a policy, or its label, is a line to read others against: the oracle or random (dense aside)."""
    return _method(policy) in REFERENCES


def _family(policy: str) -> str | None:
    return next((part for part in reversed(_parts(policy)) if part in FAMILIES), None)


def rank(policy: str) -> tuple[int, int, int]:
    """The place of a policy in tables: by family, then unknown ones; plain methods before modified ones.

    The floor stands below all others, the headroom above them, beside dense.
    """
    if _method(policy) == "random":
        return len(FAMILIES) + 1, 0, 0
    family = _family(policy)
    corrected = next((i for i, name in enumerate(CORRECTIONS, start=1) if name in _parts(policy)), 0)
    return (list(FAMILIES).index(family) if family else len(FAMILIES)), corrected, len(_parts(policy))


def look_of(policy: str) -> Look:
    """A policy's look by its name alone; unknown families get a hue and marker from a hash of the name."""
    if is_reference(policy):
        return Look(*HUES["grey"], marker="", filling="full", line=REFERENCE_LINES[_method(policy)])
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
        light, dark = _mixed(light, "#000000", 0.25), _mixed(dark, "#ffffff", 0.3)
    return Look(light, dark, marker, filling, line)


def looks(policies: Iterable[str]) -> dict[str, Look]:
    """The looks of a report's policies; where two would be the same, the later name takes a free marker."""
    chosen: dict[str, Look] = {}
    for policy in sorted(set(policies), key=lambda name: (len(name), name)):
        look = look_of(policy)
        candidates = (look, *(replace(look, marker=marker) for marker in MARKERS))
        chosen[policy] = next((one for one in candidates if one not in chosen.values()), look)
    return chosen


def _mixed(colour: str, other: str, share: float) -> str:
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a * (1 - share) + b * share):02x}" for a, b in pairs)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def contrast(colour: str, other: str) -> float:
    """The contrast ratio of two sRGB colours, 1 to 21 (WCAG 2.2, relative luminance)."""
    bright, dim = sorted((_luminance(colour), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in _channels(colour))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# How budgets, policies, metrics and contexts are ordered and called.


NLL = "nll"


@dataclass(frozen=True, order=True)
class BudgetLabel:
    """A budget as asked for, sortable: shares, then slots, then anything else."""

    kind: str  # "1 share", "2 slots", "3 other": the digit only orders
    amount: float  # percent, or slots per layer and KV head
    text: str

    @property
    def is_share(self) -> bool:
        """Whether it is a share of the tokens, not a number of slots."""
        return self.kind == "1 share"


def parse_budget(text: str) -> BudgetLabel:
    """``256``, ``2k``, ``25%`` or any other text such as ``full``."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(k?)\s*(%?)\s*", text, flags=re.IGNORECASE)
    if not found:
        return BudgetLabel("3 other", 0.0, text)
    amount = float(found[1]) * (1024 if found[2] else 1)
    return BudgetLabel("1 share" if found[3] else "2 slots", amount, text)


def ordered_budgets(texts: Iterable[str]) -> list[str]:
    """Each once: shares before slots before anything else, and small before large."""
    return [budget.text for budget in sorted(parse_budget(text) for text in set(texts))]


def budget_unit(texts: Iterable[str]) -> str:
    """What the budgets count, in words; empty where there are none, or several kinds."""
    words = {"1 share": "% of tokens, as asked", "2 slots": "slots per layer and KV head"}
    kinds = {parse_budget(text).kind for text in texts}
    return words.get(next(iter(kinds)), "") if len(kinds) == 1 else ""


def ordered_policies(labels: Iterable[str]) -> list[str]:
    """Baselines first, then family by family, so that a method and its variants are neighbours."""
    return sorted(set(labels), key=lambda label: (rank(label), label))


def metric_title(metric: str) -> str:
    """A metric's name as a heading."""
    return "perplexity" if metric == NLL else metric.replace("_", " ")


def context_title(context: Mapping[str, object], shown: Iterable[str]) -> str:
    """A context in words, naming only ``shown`` (model, prompt and whatever differs within the report)."""
    words = {
        "model": f"{context['model']}",
        "prompt": f"{context['prompt']} prompt",
        "block_size": f"blocks of {context['block_size']} tokens" if int(str(context["block_size"])) > 0 else "",
        "dtype": f"{context['dtype']}",
        "seed": f"seed {context['seed']}",
    }
    return " · ".join(words[name] for name in CONTEXT if name in shown and words[name])


def shown_context(rows: pd.DataFrame) -> tuple[str, ...]:
    """Model, prompt and block size always; dtype and seed only where a report has several."""
    always = ("model", "prompt", "block_size")
    return tuple(name for name in CONTEXT if name in always or rows[name].nunique() > 1)


def policy_labels(cells: pd.DataFrame) -> dict[str, str]:
    """A label per ``cell_id``: the policy's name, and where that is ambiguous its settings.

    Two cells may agree in policy, budget, task and context and still differ in a setting of the policy. They
    must not fall into one place of a table, so the differing settings (found in ``config``) join the name.
    """
    unique = cells.drop_duplicates("cell_id").set_index("cell_id")
    names = {str(cell): str(policy) for cell, policy in unique["policy"].items()}
    labels = {cell: _label(name) for cell, name in names.items()}
    for _, same in unique.groupby(["policy", "task", *CONTEXT], sort=False):
        if not same.duplicated("budget").any():
            continue
        settings = {str(cell): _flat(str(config)) for cell, config in same["config"].items()}
        differing: set[str] = set()
        for _, rivals in same.groupby("budget", sort=False):
            differing |= _differing([settings[str(cell)] for cell in rivals.index])
        named = {
            cell: ", ".join(f"{key.split('.')[-1]}={of[key]}" for key in sorted(differing) if key in of)
            for cell, of in settings.items()
        }
        places = [(named[str(cell)], budget) for cell, budget in same["budget"].items()]
        unambiguous = len(set(places)) == len(places)
        labels |= {cell: _label(names[cell], text if unambiguous else cell[:8]) for cell, text in named.items()}
    return labels


def _label(policy: str, settings: str = "") -> str:
    """``sink (sinks=4)``, ``random (floor)``."""
    remarks = [remark for remark in (REFERENCES.get(policy, ""), settings) if remark]
    return f"{policy} ({', '.join(remarks)})" if remarks else policy


def _differing(settings: list[dict[str, str]]) -> set[str]:
    keys = {key for one in settings for key in one}
    return {key for key in keys if len({one.get(key, "") for one in settings}) > 1}


def _flat(config: str) -> dict[str, str]:
    """The leaves of a JSON object under dotted keys; nothing for text that is no JSON object."""
    try:
        frame = pd.json_normalize(json.loads(config))
    except (ValueError, NotImplementedError, AttributeError):
        return {}
    return {str(key): str(value) for key, value in frame.iloc[0].items()} if len(frame) == 1 else {}
