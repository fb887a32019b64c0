"""What a figure is drawn from: its own rows, the baselines, stored diagnostics, printed numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.papers.cell_index import CellIndex, NoCellError
from harness.papers.figures.canvas import NotDrawnError
from harness.papers.figures.figure_cells import KEY, FigureCells, experiment_name, figure_cells, plain_task
from harness.papers.published import FULL, Scale, published_frame
from harness.papers.published import row_metrics as our_metrics
from harness.papers.text_metrics import derived_scores
from harness.report.looks import BASELINES
from harness.report.rows import checked_rows, valid_rows
from harness.store.cell_folders import DamagedCellError, cell_names, read_description
from harness.store.store import Store

UNITS = {"percent": 0.01, "points": 0.01}  # of printed numbers, as a share of our [0, 1]
PROMPTS = 3  # that a figure shows one by one: the first ones of the task
BASELINE_POLICIES = ("dense", *BASELINES)


def _with_scores(rows: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    derived = []
    for cell in CellIndex(rows).cells if metrics else ():
        for metric in metrics:
            try:
                found = derived_scores(cell, metric)
            except NoCellError:  # no encoder; the page says so where the metric's table stands
                continue
            if found is not None:
                derived.append(cell.samples.reset_index().assign(metric=metric, value=found.to_numpy()))
    return pd.concat([rows, *derived], ignore_index=True) if derived else rows


@dataclass(frozen=True)
class FigureData:
    """The data of one figure and one model. Rows are checked, and cells with an invalid row are left out.

    ``diagnosed``: the cells that stored diagnostics are of, with their labels and ``folder``.
    """

    paper: str
    item: str
    wanted: FigureCells
    model: str
    rows: pd.DataFrame
    baselines: pd.DataFrame
    diagnosed: pd.DataFrame

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies, in the order of the experiment's grids."""
        return self.wanted.values("policy")

    @property
    def of_stand_in(self) -> bool:
        """Whether the figure is of a model that stands for those of the papers."""
        return self.wanted.scale != FULL

    def scored(self, metrics: Sequence[str] = ()) -> pd.DataFrame:
        """The rows of the first of these metrics that there is, or of the task's first one. Raises `NotDrawnError`."""
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

    def with_text_metrics(self, metrics: Sequence[str]) -> FigureData:
        """With rows of those of these metrics that rows lack and stored texts give (ROUGE; BERTScore by an encoder)."""
        lacking = [each for each in metrics if each not in set(self.rows["metric"])]
        return replace(self, rows=_with_scores(self.rows, lacking), baselines=_with_scores(self.baselines, lacking))

    def printed(self, tables: Sequence[str], metrics: Sequence[str] = ()) -> pd.DataFrame:
        """The numbers of these tables of the paper (`harness.papers.published.published_frame`), without lost ones.

        ``value`` is on the scale of our rows; ``metrics``: only what our rows would call so.
        """
        found = published_frame(self.paper)
        wanted_names = set(metrics)
        ours = [not metrics or bool(wanted_names & set(our_metrics(name))) for name in found["metric"]]
        found = found[found["table"].isin(tables) & found["value"].notna() & np.array(ours, dtype=bool)]
        return found.assign(value=found["value"] * found["unit"].map(UNITS).astype(float).fillna(1.0))

    def internals(self, diagnostic: str) -> pd.DataFrame:
        """A stored diagnostic of all cells that have it, with ``policy`` and ``budget``. Raises `NotDrawnError`."""
        if diagnostic not in self._read:
            self._read[diagnostic] = self._read_internals(diagnostic)
        return self._read[diagnostic].copy(deep=False)

    @cached_property
    def _read(self) -> dict[str, pd.DataFrame]:
        return {}

    def _read_internals(self, diagnostic: str) -> pd.DataFrame:
        parts = []
        for cell in self.diagnosed.to_dict("records"):
            files = sorted(
                (Path(cell["folder"]) / diagnostic).glob("*.parquet"), key=lambda file: natural_key(file.stem)
            )
            parts += [pd.read_parquet(file).assign(policy=cell["policy"], budget=cell["budget"]) for file in files]
        if not parts:
            raise NotDrawnError(f"No stored diagnostic '{diagnostic}': {self._measure()} measures it.")
        return pd.concat(parts, ignore_index=True)

    def first_samples(self, diagnostic: str, most: int = PROMPTS) -> pd.DataFrame:
        """A stored diagnostic (`internals`) of the first samples that all cells share, in the order of the task."""
        found = self.internals(diagnostic)
        common = set.intersection(*(set(part["sample_id"]) for _, part in found.groupby("policy")))
        if not common:
            raise NotDrawnError(f"The stored diagnostics '{diagnostic}' of its policies have no sample in common.")
        chosen = sorted(common, key=natural_key)[:most]
        order = {name: place for place, name in enumerate(chosen)}
        own = found[found["sample_id"].isin(chosen)]
        return own.sort_values("sample_id", key=lambda names: names.map(order), kind="stable", ignore_index=True)

    def _sweep(self) -> str:
        return f"`python -m harness +exp={self.paper}/{experiment_name(self.item)} scale={self.wanted.scale}`"

    def _measure(self) -> str:
        item = experiment_name(self.item)
        return f"`python -m harness figures paper={self.paper} item={item} scale={self.wanted.scale}`"


def load_figure_data(paper: str, item: str, rows: pd.DataFrame, store: Store, scale: Scale) -> FigureData:
    """The data of an item at one scale, of the scale's own model where there are rows or diagnostics of it."""
    cells = _row_cells(rows)
    wanted = figure_cells(paper, item, scale)
    own, diagnosed = _matching(cells, wanted), _matching(diagnosed_cells(store), wanted)
    there = sorted({*own["model"], *diagnosed["model"]})
    model = next((name for name in (*wanted.models, *there) if name in there), "")
    own, diagnosed = (each[each["model"] == model] for each in (own, diagnosed))
    lines = _baseline_cells(cells[cells["model"] == model], wanted)
    return FigureData(
        paper, item, wanted, model, _valid_cell_rows(rows, own), _valid_cell_rows(rows, lines), _newest(diagnosed)
    )


@dataclass(frozen=True)
class FigureDataOfItems:
    """The data of items at one scale (`load_figure_data`), each loaded once."""

    rows: pd.DataFrame
    store: Store
    scale: Scale
    _loaded: dict[tuple[str, str], FigureData] = field(default_factory=dict)

    def of(self, paper: str, item: str) -> FigureData:
        """The data of an item."""
        if (paper, item) not in self._loaded:
            self._loaded[paper, item] = load_figure_data(paper, item, self.rows, self.store, self.scale)
        return self._loaded[paper, item]


def diagnosed_cells(store: Store) -> pd.DataFrame:
    """The cells with stored diagnostics (`harness.runner.diagnostic_runs`) of a store, with labels and ``folder``."""
    root = store.root.parent / "diagnostics"
    found: list[dict[str, Any]] = []
    for name in cell_names(root):
        try:
            found.append({**read_description(root / name), "folder": str(root / name)})
        except DamagedCellError:
            continue  # the next diagnosis writes it again
    columns = [*KEY, "cell_id", "model", "created", "folder"]
    table = pd.DataFrame(found, columns=[*columns, "config"])
    return _labelled(table.assign(config=table["config"].map(json.dumps)))[columns]


def _row_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """One line per cell of the rows, with the labels of `KEY`."""
    columns = ["cell_id", "model", "created", "config", *(name for name in KEY if name != "share_of")]
    if rows.empty:
        return pd.DataFrame(columns=[*columns, "share_of"])
    return _labelled(rows.drop_duplicates("cell_id")[columns])


def _labelled(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells with the columns ``share_of`` (what a budget is a share of) and the task's plain label."""
    budgets = [json.loads(config or "{}").get("budget") or {} for config in cells["config"]]
    shares = [budget.get("share_of", "") if budget.get("share") else "" for budget in budgets]
    return cells.assign(share_of=shares, task=cells["task"].map(plain_task))


def _matching(cells: pd.DataFrame, wanted: FigureCells) -> pd.DataFrame:
    keys = set(wanted.keys)
    chosen = [key in keys for key in cells[list(KEY)].itertuples(index=False, name=None)]
    return cells.loc[np.array(chosen, dtype=bool)]


def _baseline_cells(cells: pd.DataFrame, wanted: FigureCells) -> pd.DataFrame:
    """Dense, random and the oracle on the same tasks, in the same regimes, and the latter two at the same budgets."""
    same = cells["policy"].isin(BASELINE_POLICIES)
    for name in ("task", "prompt", "block_size"):
        same &= cells[name].isin(wanted.values(name))
    budgets = {(key[2], key[3]) for key in wanted.keys} | {("full", "")}
    chosen = [key in budgets for key in zip(cells["budget"], cells["share_of"], strict=True)]
    lines: pd.DataFrame = cells.loc[same.to_numpy(bool) & np.array(chosen, dtype=bool)]
    return lines


def _newest(cells: pd.DataFrame) -> pd.DataFrame:
    """Of cells with the same labels the newest, in the order of the labels."""
    ordered = cells.sort_values(["created", "cell_id"], kind="stable").drop_duplicates(list(KEY), keep="last")
    return ordered.sort_values(list(KEY), kind="stable").reset_index(drop=True)


def _valid_cell_rows(rows: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """The valid rows of these cells, with the columns of `harness.report.rows.checked_rows`."""
    chosen = _newest(cells)
    own = rows[rows["cell_id"].isin(chosen["cell_id"])] if not rows.empty else rows
    if own.empty:
        return pd.DataFrame(columns=["policy", "metric", "task", "budget", "prompt"])
    return valid_rows(checked_rows(own)).assign(task=lambda table: table["task"].map(plain_task))


def natural_key(text: str) -> tuple[Any, ...]:
    """A key that sorts numbers within texts by size: ``L512-r0`` before ``L1024-r0``."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text))


# Which layers and heads are shown: those of the testbed for those that a paper names, or a spread of all.


def scaled_index(index: int, of: int, available: int) -> int:
    """The index at the same relative depth of ``available`` as ``index`` of ``of``; itself if there are as many."""
    return index if available >= of else round(index / max(1, of - 1) * (available - 1))


def evenly_spaced(count: int, wanted: int) -> list[int]:
    """At most ``wanted`` of ``count`` indices from the first to the last, evenly spaced."""
    if count <= wanted:
        return list(range(count))
    return [round(i * (count - 1) / (wanted - 1)) for i in range(wanted)]


def index_note(asked: Sequence[int], taken: Sequence[int], what: str) -> tuple[str, ...]:
    """A note if other indices were taken than the paper's."""
    if list(asked) == list(taken):
        return ()
    one, other = (", ".join(map(str, each)) for each in (asked, taken))
    plural = "s" if len(asked) > 1 else ""
    return (f"This model has fewer {what}s: {what}{plural} {other} for the paper's {one}, at the same relative place.",)


SPREAD = (0.1, 0.5, 0.9)
SPREAD_WORDS = "the heads at the 10th, 50th and 90th percentile"


def spread_of_heads(numbers: pd.Series, shares: Sequence[float] = SPREAD) -> list[Any]:
    """The labels at these shares of the sorted numbers (nearest rank, ties by label), each once."""
    ranked = numbers.sort_index(kind="stable").sort_values(kind="stable")
    return list(dict.fromkeys(ranked.index[round(share * (len(ranked) - 1))] for share in shares))
