"""The papers' names in ours: presets, task labels, metrics, models. None where there is no counterpart."""

from __future__ import annotations

from harness.published.places import names


def presets(paper: str, method: str, note: str = "") -> tuple[str, ...]:
    """Names under which a method's rows may stand, the preset first; of a sensitivity table's row its own name.

    Empty where nothing of ours is the same, for instance because the paper does not say which variant it means.
    """
    own = tuple(names()["methods"][paper].get(method) or ())
    said = set(note.split("; "))
    for words, variant in names()["variants"].get(paper, {}).items():
        if set(words.split("; ")) <= said:
            return own if own[0] == variant["policy"] else (variant["policy"],)
    return own


def labels(paper: str, task: str) -> tuple[str, ...]:
    """Labels of our tasks; several where the papers' name is that of an average over tasks."""
    of_paper = names()["tasks"].get(paper, {})
    return tuple((of_paper[task] if task in of_paper else names()["tasks"]["any"].get(task)) or ())


def metrics(metric: str) -> tuple[str, ...]:
    """Metrics of our rows that stand for the papers' one, the preferred first; empty where we measure no such thing."""
    return tuple(names()["metrics"].get(metric) or ())


def model(name: str) -> str:
    """Our name of the papers' model; empty where there is none."""
    return str(names()["models"].get(name, ""))


def is_average(task: str) -> bool:
    """Whether the papers' task name stands for a mean over several tasks."""
    return len(labels("any", task)) > 1
