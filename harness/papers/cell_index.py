"""Our rows as an index of cells, and the search for the one cell that a claim asks for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from harness.report.rows import cluster_names, with_plain_texts

TEXT_LABELS = ("model", "policy", "budget", "prompt", "task", "created")


class NoCellError(Exception):
    """There are no rows of a cell; the message says which cell would have to be run."""


class ProtocolError(Exception):
    """There are rows, but of another protocol; the message names the field that differs."""


@dataclass(frozen=True)
class CellQuery:
    """One cell that a claim needs. ``policies``: names it may have in our rows; an empty field is no condition."""

    policies: tuple[str, ...]
    budget: str = ""
    prompt: str = ""
    block_size: int = 0  # tokens
    budget_of: str = ""  # what a share is a share of (`harness.config.budget`)

    @property
    def dense(self) -> bool:
        """Whether it is the cell of the full cache."""
        return self.policies[0] == "dense"

    @property
    def regime(self) -> str:
        """How the prompt is read, in words: ``blocks of 32``, ``one_shot``."""
        return f"blocks of {self.block_size}" if self.prompt == "blocked" else self.prompt

    def __str__(self) -> str:
        """Its name in verdicts: ``keydiff at 25%``."""
        return self.policies[0] if self.dense else f"{self.policies[0]} at {self.budget}"


@dataclass(frozen=True)
class CellRows:
    """One cell with its samples."""

    model: str
    policy: str
    budget: str
    prompt: str
    block_size: int  # tokens
    task: str
    created: str
    synthetic: bool  # of fixture data: a test of the path, never a result
    budget_of: str  # what its share is a share of; empty for slots, and where the configuration is not known
    rows: pd.DataFrame
    samples: pd.DataFrame  # one row per sample, indexed by ``sample_id``: what does not depend on the metric

    @cached_property
    def cell_id(self) -> str:
        """The id that all of its rows have."""
        return str(self.rows["cell_id"].iat[0])

    @cached_property
    def slots_requested(self) -> float:
        """The mean over rows, slots per layer and KV head."""
        return float(self.rows["slots_requested"].mean())

    @cached_property
    def metric(self) -> str:
        """The task's first metric."""
        return str(self.rows["metric"].iloc[0])

    @cached_property
    def scope(self) -> tuple[object, ...]:
        """Model, number type, seed and task: scores are compared only within equal ones."""
        return self.model, self.rows["dtype"].iat[0], self.rows["seed"].iat[0], self.task

    @cached_property
    def evicted_nothing(self) -> bool:
        """Whether the cell held whatever it was given, in every sample."""
        return "tokens_evicted" in self.rows and bool((self.samples["tokens_evicted"].astype(float) == 0).all())

    @cached_property
    def clusters(self) -> pd.Series:
        """The cluster of each sample (`harness.report.rows.cluster_names`)."""
        ids = self.samples.index
        return pd.Series(cluster_names(ids, self.samples["document"]), ids, dtype=object)

    @cached_property
    def computed(self) -> dict[tuple[str, ...], Any]:
        """What tables and claims have computed of these rows, since many of them ask for the same."""
        return {}

    @cached_property
    def scores(self) -> dict[str, pd.Series]:
        """Each metric's values by sample."""
        names, ids = self.rows["metric"].to_numpy(), self.rows["sample_id"].to_numpy()
        values = self.rows["value"].to_numpy(float)
        return {
            str(name): pd.Series(values[names == name], pd.Index(ids[names == name], dtype=object))
            for name in dict.fromkeys(names)
        }


class CellIndex:
    """The cells of a tidy frame of sample rows (docs/design/rows.md). Cells with an invalid row, or a score that is no
    number, are left out.

    Of two cells with the same labels (another version of the code, another seed) the newer one counts.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self.cells: list[CellRows] = []
        self.broken: set[str] = set()
        if rows.empty:
            return
        invalid = (rows["invalid"].fillna("").astype(str) != "") | ~np.isfinite(rows["value"].astype(float))
        self.broken = set(rows.loc[invalid, "policy"].astype(str))
        sound = with_plain_texts(rows[~rows["cell_id"].isin(rows.loc[invalid, "cell_id"])])
        numbers, names = pd.factorize(sound["cell_id"])
        sound = sound.iloc[np.argsort(numbers, kind="stable")]  # the rows of a cell lie together: parts are no copies
        counts = np.bincount(numbers, minlength=len(names))
        starts = np.concatenate([[0], np.cumsum(counts)])
        metrics = sound["metric"].to_numpy()
        of_first_metric = metrics == np.repeat(metrics[starts[:-1]], counts)
        samples = sound[of_first_metric].set_index("sample_id")
        sample_starts = np.concatenate([[0], np.cumsum(of_first_metric)])[starts]
        named = [name for name in (*TEXT_LABELS, "block_size", "config") if name in sound]
        labels = sound.iloc[starts[:-1]][named].to_dict("records")
        for place, own in enumerate(labels):
            config = json.loads(own.get("config") or "{}")
            fixture = config.get("task", {}).get("data") == "fixture"
            budget = config.get("budget") or {}
            reading = str(budget.get("share_of", "")) if budget.get("share") else ""
            self.cells.append(
                CellRows(
                    **{name: str(own[name]) for name in TEXT_LABELS},
                    block_size=int(own["block_size"]),
                    synthetic=fixture,
                    budget_of=reading,
                    rows=sound.iloc[starts[place] : starts[place + 1]],
                    samples=samples.iloc[sample_starts[place] : sample_starts[place + 1]],
                )
            )
        self.cells.sort(key=lambda cell: cell.created)

    @cached_property
    def models(self) -> list[str]:
        """Names of the models that have cells here."""
        return sorted({cell.model for cell in self.cells})

    @cached_property
    def _by_model_and_task(self) -> dict[tuple[str, str], list[CellRows]]:
        out: dict[tuple[str, str], list[CellRows]] = {}
        for cell in self.cells:
            out.setdefault((cell.model, cell.task), []).append(cell)
        return out

    def ladder(self, model: str, tasks: Iterable[str], policies: Sequence[tuple[str, ...]]) -> list[str]:
        """Budgets, smallest first, at which every one of these policies has rows on one of the tasks."""
        own = [cell for task in tasks for cell in self._by_model_and_task.get((model, task), [])]
        sizes = {cell.budget: cell.slots_requested for cell in own}
        common = set(sizes)
        for names in policies:
            common &= {cell.budget for cell in own if cell.policy in names}
        return sorted(common, key=sizes.__getitem__)

    def tasks(self, model: str, compared: bool = False) -> set[str]:
        """Labels of the tasks that this model has rows of; ``compared``: rows of a policy, not of dense alone."""
        return {
            task
            for (name, task), cells in self._by_model_and_task.items()
            if name == model and not (compared and all(cell.policy == "dense" for cell in cells))
        }

    def find(self, query: CellQuery, model: str, task: str, exact_blocks: bool, proxy_block_size: int = 0) -> CellRows:
        """The newest cell that fits. Raises `NoCellError` or `ProtocolError`.

        ``proxy_block_size``, in tokens, is taken before the paper's; ``exact_blocks`` False takes the only block size
        there is. Cells whose budget is a share of the same length as the query's come first.
        """
        name, where = query.policies[0], f"on {task} with {model}"
        cells = [cell for cell in self._by_model_and_task.get((model, task), []) if cell.policy in query.policies]
        if not cells:
            broken = "; its rows broke an invariant, see the report" if name in self.broken else ""
            raise NoCellError(f"{name} {where}{broken}")
        if query.dense:  # the same model under every prompt regime; the samples of a regime are those of its cells
            return max(cells, key=lambda cell: (len(cell.samples), cell.created))
        if query.prompt:
            found = "/".join(sorted({cell.prompt for cell in cells}))
            cells = [cell for cell in cells if cell.prompt == query.prompt]
            if not cells:
                raise ProtocolError(f"prompt: {name} was run with prompt={found}, the paper's is {query.prompt}")
        if query.prompt == "blocked" and query.block_size:
            sizes = sorted({cell.block_size for cell in cells})
            alone = sizes[0] if not exact_blocks and len(sizes) == 1 else query.block_size
            size = proxy_block_size if proxy_block_size in sizes else alone
            cells = [cell for cell in cells if cell.block_size == size]
            if not cells:
                listed = ", ".join(map(str, sizes))
                raise ProtocolError(f"block_size: {name} was run with {listed}, the paper's is {query.block_size}")
        cells = [cell for cell in cells if cell.budget == query.budget]
        if not cells:
            raise NoCellError(f"{name} at budget={query.budget} {where}")
        return ([cell for cell in cells if cell.budget_of == query.budget_of] or cells)[-1]


def budget_proxies(wanted: Sequence[str], available: Sequence[str]) -> dict[str, str]:
    """For each of the paper's budgets one that was measured: itself, else the one of the same rank.

    Both smallest first. With fewer rungs than the paper's ladder several of its budgets share one.
    """
    if not available:
        return {budget: budget for budget in wanted}
    top = max(1, len(wanted) - 1)
    rank = {budget: available[round(i * (len(available) - 1) / top)] for i, budget in enumerate(wanted)}
    return {budget: budget if budget in available else rank[budget] for budget in wanted}
