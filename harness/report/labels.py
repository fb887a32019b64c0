"""How budgets, policies, metrics and contexts are named and ordered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from harness.report.looks import BASELINES, policy_rank
from harness.report.rows import CONTEXT

NLL = "nll"


@dataclass(frozen=True, order=True)
class BudgetLabel:
    """A budget as it was set, sortable: shares, then slots, then anything else."""

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


def budget_title(text: str) -> str:
    """One budget in words: ``25% of the tokens``, ``256 slots``."""
    return f"{text} of the tokens" if parse_budget(text).kind == "1 share" else f"{text} slots"


def ordered_policies(labels: Iterable[str]) -> list[str]:
    """Baselines first, then family by family, so that a method and its variants are neighbours."""
    return sorted(set(labels), key=lambda label: (policy_rank(label), label))


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
    must not share one cell of a table, so the differing settings (found in ``config``) join the name.
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
    remarks = [remark for remark in (BASELINES.get(policy, ""), settings) if remark]
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
