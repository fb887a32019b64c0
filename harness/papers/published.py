"""The published numbers of the five papers, the papers' names for what our rows call otherwise, and stand-ins."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import yaml

from harness.errors import UserError
from policies import nearest

FOLDER = Path(__file__).parents[2] / "results" / "published"
PAPER_TITLES = {"keydiff": "KeyDiff", "caote": "CAOTE", "buzz": "BUZZ", "hashevict": "HashEvict", "kvec": "K-VEC"}
PAPERS = tuple(PAPER_TITLES)
OURS = "ours"  # the page of what no paper prints


def known_paper(paper: str) -> str:
    """The paper itself; `UserError` for one that is not among the five."""
    if paper not in PAPERS:
        raise UserError(f"There is no paper called '{paper}'. {nearest(paper, PAPERS)}")
    return paper


@cache
def cells_as_text(file: str) -> pd.DataFrame:
    """A CSV of the folder with every cell as text, as printed; an empty cell is an empty text."""
    return pd.read_csv(FOLDER / file, dtype=str, keep_default_na=False)


@cache
def name_map() -> dict[str, Any]:
    """``names.yaml``: what the papers' models, methods, tasks and metrics are called here."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / "names.yaml").read_text())
    return found


# The papers' names in ours: presets, task labels, metrics, models. Empty where there is no counterpart.


def presets(paper: str, method: str, note: str = "") -> tuple[str, ...]:
    """Policy names that a method may have in our rows, the preset first; a row of a sensitivity table has its own name.

    Empty where nothing of ours is the same, for instance because the paper does not say which variant it means.
    """
    own = tuple(name_map()["methods"][paper].get(method) or ())
    parts = set(note.split("; "))
    for words, variant in name_map()["variants"].get(paper, {}).items():
        if set(words.split("; ")) <= parts:
            return own if own[0] == variant["policy"] else (variant["policy"],)
    return own


def task_labels(paper: str, task: str) -> tuple[str, ...]:
    """Labels of our tasks; several where the papers' name is that of an average over tasks."""
    of_paper = name_map()["tasks"].get(paper, {})
    return tuple((of_paper[task] if task in of_paper else name_map()["tasks"]["any"].get(task)) or ())


def row_metrics(metric: str) -> tuple[str, ...]:
    """Metrics of our rows that measure the paper's one, the preferred first; empty where we do not measure it."""
    return tuple(name_map()["metrics"].get(metric) or ())


def our_model(name: str) -> str:
    """Our name of the papers' model; empty where there is none."""
    return str(name_map()["models"].get(name, ""))


# The papers' tables as one tidy frame, a row for each printed number, suspect ones marked.


# Why a number is not to be compared as it stands; `flag_reason` says it in words and names the finding of AUDIT.md.
FLAGS = {
    "wrong_average": "not the mean of the cells beside it",
    "duplicated": "the same digits as another row or cell",
    "mislabelled": "the caption names another setting than the numbers",
    "other_protocol": "made under another protocol than its neighbours",
    "disagrees": "another table or paper prints another number for the same thing",
    "implausible": "readable, but cannot well be right",
    "misprint": "a sign or digit is missing",
    "misread": "the text may have been misread",
    "lost": "not in the text",
}


def published_frame(paper: str | None = None) -> pd.DataFrame:
    """All printed numbers of one paper, or of the five.

    Columns: ``paper``, ``table``; ``model``, ``method``, ``task`` in the paper's words (lower case) and ``our_model``,
    ``policy`` (the preset), ``our_task`` (label, or labels joined by ", " for an average) in ours, empty where there is
    no counterpart; ``budget`` with ``budget_unit`` (tokens, percent, none), ``block_size`` ("128", "inf", ""),
    ``metric``, ``value`` (float, NaN where the text lost it), ``printed`` (the digits as they stand), ``unit``,
    ``higher_is_better`` ("true", "false", ""), ``note`` (settings and remarks), ``flag`` (`FLAGS`, or empty) and
    ``flag_reason``. LongBench scores are in points of 100, ours in [0, 1].

    Raises `UserError` for an unknown paper.
    """
    return _frame(PAPERS if paper is None else (known_paper(paper),)).copy()


@cache
def _frame(papers: tuple[str, ...]) -> pd.DataFrame:
    out = pd.concat([cells_as_text(f"{each}.csv") for each in papers], ignore_index=True)
    out["printed"] = out["value"]
    out["value"] = pd.to_numeric(out["value"].where(out["value"] != "", None))
    out["our_model"] = out["model"].map(our_model)
    out["policy"] = [
        next(iter(presets(*key)), "") for key in zip(out["paper"], out["method"], out["note"], strict=True)
    ]
    out["our_task"] = [", ".join(task_labels(*key)) for key in zip(out["paper"], out["task"], strict=True)]
    return out


def paper_items(paper: str | None = None) -> pd.DataFrame:
    """Every table and figure of one paper, or of the five: what it shows, and what is needed to draw it again.

    Columns ``paper``, ``item`` ("Table 1", "Figure 8a"), ``shows``, ``layout``, ``data_needed``, ``needs`` (scores,
    internals, speed, data, analytic, drawing) and ``printed``. Raises `UserError` for an unknown paper.
    """
    found = cells_as_text("items.csv")
    return found.copy() if paper is None else found[found["paper"] == known_paper(paper)].reset_index(drop=True)


# Stand-ins at the scales of our own models (``results/published/stand_ins/<scale>.yaml``), for verdicts and tables.


# A scale: the papers' own setting, or that of one of our models on two cores, which stands for those of the papers.
Scale = Literal["mini", "small", "full"]
FULL: Scale = "full"
OF_OUR_MODELS: tuple[Scale, ...] = ("small", "mini")  # a pretrained model first, then the one that we trained


@cache
def _stand_ins(scale: Scale) -> dict[str, Any]:
    """What stands for what at this scale; at ``full`` nothing does."""
    kinds: dict[str, Any] = {name: {} for name in ("tasks", "tasks_of", "metrics", "budgets", "block_sizes")}
    if scale == FULL:
        return kinds
    written: dict[str, Any] = yaml.safe_load((FOLDER / "stand_ins" / f"{scale}.yaml").read_text())
    return kinds | written


def model_of(scale: Scale) -> str:
    """The name of the model that stands for all models of the papers at this scale; empty at ``full``."""
    return str(_stand_ins(scale).get("model", ""))


def scales_with_rows(models: Collection[str]) -> list[Scale]:
    """The scales whose own model is among these; that of the testbed where none is."""
    return [scale for scale in OF_OUR_MODELS if model_of(scale) in models] or ["mini"]


def proxy_task(label: str, measured: Collection[str], scale: Scale, paper: str = "") -> str:
    """The label itself if it was measured, else the task that is its proxy in this paper; empty if neither was."""
    of_paper = _stand_ins(scale)["tasks_of"].get(paper, {})
    proxies = (label, of_paper.get(label, ""), _stand_ins(scale)["tasks"].get(label, ""))
    return next((str(each) for each in proxies if each in measured), "")


def proxy_tasks(labels: Iterable[str], measured: Collection[str], scale: Scale, paper: str = "") -> list[str]:
    """The measured tasks or proxies of these, each once: several of a paper's tasks may share one."""
    return list(dict.fromkeys(found for label in labels if (found := proxy_task(label, measured, scale, paper))))


def proxy_metrics(metric: str, scale: Scale) -> tuple[str, ...]:
    """Metrics of the scale's tasks that are proxies of the paper's one, the preferred first."""
    return tuple(_stand_ins(scale)["metrics"].get(metric, ()))


def proxy_budget(paper: str, asked: str, scale: Scale) -> str:
    """The share that is the proxy of the paper's budget; the budget itself if there is none."""
    return str(_stand_ins(scale)["budgets"].get(paper, {}).get(asked, asked))


def proxy_block_size(paper: str, asked: int, scale: Scale) -> int:
    """The proxy of the paper's block size, in tokens; the block size itself if there is none."""
    return int(_stand_ins(scale)["block_sizes"].get(paper, {}).get(asked, asked))
