"""Which cells a figure is about: the grids of its experiment file, as the labels under which rows stand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import tasks
from harness.config.budget import Budget
from harness.config.experiments import CONF, grid_points
from harness.errors import UserError
from harness.papers.figures.canvas import NotDrawnError
from harness.papers.published import metrics as our_metrics
from harness.papers.published import published_frame
from harness.report.labels import REFERENCES
from harness.report.rows import checked, valid_rows
from harness.store.cell_folders import DamagedCellError, cell_names, read_description
from harness.store.store import Store

SCALES = ("full", "mini")
KEY = ("policy", "task", "budget", "share_of", "prompt", "block_size")


@dataclass(frozen=True)
class FigureCells:
    """The cells of one item at one scale, in the order of its grids."""

    scale: str
    models: tuple[str, ...]
    keys: tuple[tuple[Any, ...], ...]  # values of `KEY`

    def values(self, name: str) -> tuple[Any, ...]:
        """What occurs under one name of `KEY`, each once."""
        return tuple(dict.fromkeys(key[KEY.index(name)] for key in self.keys))


def experiment(item: str) -> str:
    """``Figure 8a`` as its file is called: ``figure_8a``."""
    return item.lower().replace(" ", "_")


@cache
def figure_cells(paper: str, item: str, scale: str) -> FigureCells:
    """The cells of ``conf/exp/<paper>/<item>.yaml``; none where the file has no grid at this scale."""
    grids: Any = OmegaConf.to_container(OmegaConf.load(CONF / "exp" / paper / f"{experiment(item)}.yaml"))
    try:
        found = grid_points(grids["grids"], scale)
    except UserError:
        found = []
    models = dict.fromkeys(str(point.get("model", "testbed")) for point in found)
    return FigureCells(scale, tuple(models), tuple(_key(point) for point in found))


def _key(point: Mapping[str, Any]) -> tuple[Any, ...]:
    budget = Budget.parse(point["budget"], point.get("budget_of", "prompt"))
    prompt = point["prompt"]
    return (
        str(point.get("policy.name", point["policy"])),
        task_label(str(point["task"])),
        budget.label,
        budget.share_of if budget.share else "",
        prompt,
        point["block_size"] if prompt == "blocked" else 0,
    )


@cache
def task_label(name: str) -> str:
    """What rows call the task that is chosen by ``task=<name>``."""
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config: Any = OmegaConf.to_container(compose("config", overrides=[f"task={name}"]), resolve=True)
    return tasks.build(config["task"].pop("name"), **config["task"]).label


# Which of a model's layers and heads stand for those that a paper names, where the model has fewer.


def stand_in(place: int, of: int, there: int) -> int:
    """Place ``place`` of ``of`` at the same relative depth among ``there``; itself where that many are there."""
    return place if there >= of else round(place / max(1, of - 1) * (there - 1))


def spread_over(count: int, wanted: int) -> list[int]:
    """At most ``wanted`` of ``count`` places from the first to the last, evenly spaced."""
    if count <= wanted:
        return list(range(count))
    return [round(place * (count - 1) / (wanted - 1)) for place in range(wanted)]


def said(asked: Sequence[int], taken: Sequence[int], what: str) -> tuple[str, ...]:
    """A note where others were taken than were asked for."""
    if list(asked) == list(taken):
        return ()
    one, other = (", ".join(map(str, each)) for each in (asked, taken))
    plural = "s" if len(asked) > 1 else ""
    return (f"This model has fewer {what}s: {what}{plural} {other} for the paper's {one}, at the same relative place.",)


# What a figure is drawn from: its own rows, the lines to read them against, stored diagnostics, printed numbers.


UNITS = {"percent": 0.01, "points": 0.01}  # of printed numbers, as a share of our [0, 1]
REFERENCE_POLICIES = ("dense", *REFERENCES)


@dataclass(frozen=True)
class FigureData:
    """Of one figure and one model. Rows are checked, and cells with an invalid row are left out.

    ``diagnosed``: the cells that stored diagnostics are of, with their labels and ``folder``.
    """

    paper: str
    item: str
    wanted: FigureCells
    model: str
    rows: pd.DataFrame
    references: pd.DataFrame
    diagnosed: pd.DataFrame

    @property
    def policies(self) -> tuple[str, ...]:
        """In the order of the experiment's grids."""
        return self.wanted.values("policy")

    @property
    def mini(self) -> bool:
        """Whether what is drawn are statements about the testbed."""
        return self.wanted.scale == "mini"

    def scored(self, metrics: Sequence[str] = ()) -> pd.DataFrame:
        """The rows of the first of these metrics that there is, or of the task's own first one. Raises `GapError`."""
        if self.rows.empty:
            raise NotDrawnError(f"No rows of it are stored: {self._sweep()} measures them.")
        for metric in metrics:
            part = self.rows[self.rows["metric"] == metric]
            if not part.empty:
                return part
        if metrics:
            raise NotDrawnError(
                f"Its rows have no {' or '.join(metrics)}, only {', '.join(sorted(self.rows['metric'].unique()))}."
            )
        first = self.rows.groupby("task", sort=False)["metric"].transform("first")
        return self.rows[self.rows["metric"] == first]

    def printed(self, tables: Sequence[str], metrics: Sequence[str] = ()) -> pd.DataFrame:
        """The numbers of these tables of the paper (`harness.papers.published.published_frame`) with ``value`` on the scale of our rows,
        without those that were lost; ``metrics``: only what our rows would call so."""
        found = published_frame(self.paper)
        wanted_names = set(metrics)
        ours = [not metrics or bool(wanted_names & set(our_metrics(name))) for name in found["metric"]]
        found = found[found["table"].isin(tables) & found["value"].notna() & np.array(ours, dtype=bool)]
        return found.assign(value=found["value"] * found["unit"].map(UNITS).astype(float).fillna(1.0))

    def internals(self, diagnostic: str) -> pd.DataFrame:
        """A stored diagnostic of all cells that have it, with their ``policy`` and ``budget``. Raises `GapError`."""
        parts = []
        for cell in self.diagnosed.to_dict("records"):
            files = sorted((Path(cell["folder"]) / diagnostic).glob("*.parquet"), key=lambda file: natural(file.stem))
            parts += [pd.read_parquet(file).assign(policy=cell["policy"], budget=cell["budget"]) for file in files]
        if not parts:
            raise NotDrawnError(f"No stored diagnostic '{diagnostic}': {self._measure()} measures it.")
        return pd.concat(parts, ignore_index=True)

    def one_sample(self, diagnostic: str) -> pd.DataFrame:
        """The same of the first sample that all cells share."""
        found = self.internals(diagnostic)
        common = set.intersection(*(set(part["sample_id"]) for _, part in found.groupby("policy")))
        if not common:
            raise NotDrawnError(f"The stored diagnostics '{diagnostic}' of its policies have no sample in common.")
        first: pd.DataFrame = found[found["sample_id"] == min(common, key=natural)]
        return first

    def _sweep(self) -> str:
        return f"`python -m harness +exp={self.paper}/{experiment(self.item)} scale={self.wanted.scale}`"

    def _measure(self) -> str:
        return f"`python -m harness figures paper={self.paper} item={experiment(self.item)} scale={self.wanted.scale}`"


def gathered(paper: str, item: str, rows: pd.DataFrame, store: Store) -> FigureData:
    """At the paper's own setting where anything of it is stored, else at scale=mini."""
    cells = _with_share(rows)
    stored = diagnosed(store)
    for scale in SCALES:
        asked = figure_cells(paper, item, scale)
        own, beside = _matching(cells, asked), _matching(stored, asked)
        if not own.empty or not beside.empty or scale == SCALES[-1]:
            return _of_one_model(paper, item, asked, rows, cells, own, beside)
    raise AssertionError("there is always a last scale")


def _of_one_model(
    paper: str,
    item: str,
    asked: FigureCells,
    rows: pd.DataFrame,
    cells: pd.DataFrame,
    own: pd.DataFrame,
    beside: pd.DataFrame,
) -> FigureData:
    there = sorted({*own["model"], *beside["model"]})
    model = next((name for name in (*asked.models, *there) if name in there), "")
    own, beside = (each[each["model"] == model] for each in (own, beside))
    lines = _references(cells[cells["model"] == model], asked)
    return FigureData(paper, item, asked, model, _sound(rows, own), _sound(rows, lines), _newest(beside))


def diagnosed(store: Store) -> pd.DataFrame:
    """The cells that `harness.runner.diagnostic_runs` has written beside this store, with their labels and ``folder``."""
    root = store.root.parent / "diagnostics"
    found: list[dict[str, Any]] = []
    for name in cell_names(root):
        try:
            found.append({**read_description(root / name), "folder": str(root / name)})
        except DamagedCellError:
            continue  # whoever diagnoses again writes it anew
    columns = [*KEY, "cell_id", "model", "created", "folder"]
    table = pd.DataFrame(found, columns=[*columns, "config"])
    return _labelled(table.assign(config=table["config"].map(json.dumps)))[columns]


def _with_share(rows: pd.DataFrame) -> pd.DataFrame:
    """One line per cell of the rows, with the labels of `KEY`."""
    columns = ["cell_id", "model", "created", "config", *(name for name in KEY if name != "share_of")]
    if rows.empty:
        return pd.DataFrame(columns=[*columns, "share_of"])
    return _labelled(rows.drop_duplicates("cell_id")[columns])


def _labelled(cells: pd.DataFrame) -> pd.DataFrame:
    """With what a budget is a share of, and the task's plain label."""
    budgets = [json.loads(config or "{}").get("budget") or {} for config in cells["config"]]
    shares = [budget.get("share_of", "") if budget.get("share") else "" for budget in budgets]
    return cells.assign(share_of=shares, task=cells["task"].map(plain))


def _matching(cells: pd.DataFrame, asked: FigureCells) -> pd.DataFrame:
    keys = set(asked.keys)
    chosen = [key in keys for key in cells[list(KEY)].itertuples(index=False, name=None)]
    return cells.loc[np.array(chosen, dtype=bool)]


def _references(cells: pd.DataFrame, asked: FigureCells) -> pd.DataFrame:
    """Dense, random and the oracle on the same tasks, in the same regimes, and the latter two at the same budgets."""
    same = cells["policy"].isin(REFERENCE_POLICIES)
    for name in ("task", "prompt", "block_size"):
        same &= cells[name].isin(asked.values(name))
    budgets = {(key[2], key[3]) for key in asked.keys} | {("full", "")}
    chosen = [key in budgets for key in zip(cells["budget"], cells["share_of"], strict=True)]
    lines: pd.DataFrame = cells.loc[same.to_numpy(bool) & np.array(chosen, dtype=bool)]
    return lines


def _newest(cells: pd.DataFrame) -> pd.DataFrame:
    """Of cells with the same labels the one that was made last, in the order of the labels."""
    ordered = cells.sort_values(["created", "cell_id"], kind="stable").drop_duplicates(list(KEY), keep="last")
    return ordered.sort_values(list(KEY), kind="stable").reset_index(drop=True)


def _sound(rows: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """The valid rows of these cells with the columns of `harness.report.rows.checked`; none where there are none."""
    chosen = _newest(cells)
    own = rows[rows["cell_id"].isin(chosen["cell_id"])] if not rows.empty else rows
    if own.empty:
        return pd.DataFrame(columns=["policy", "metric", "task", "budget", "prompt"])
    return valid_rows(checked(own)).assign(task=lambda table: table["task"].map(plain))


def plain(task: str) -> str:
    """A task's label without the remark that its rows are synthetic."""
    return str(task).partition(" ")[0]


def natural(text: str) -> tuple[Any, ...]:
    """A key that sorts numbers within texts by size: ``L512-r0`` before ``L1024-r0``."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text))
