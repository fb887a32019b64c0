"""From a printed place to the cells of ours that answer it, or to the sentence that says why there are none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.papers import published
from harness.papers.figures.figure_data import KEY, FigureCells, experiment, figure_cells
from harness.papers.published import labels, model, names, presets
from harness.papers.row_index import CellRows, RowIndex
from harness.papers.table_layouts import Layout, Printed, budget_of, layout
from harness.papers.verdicts import Scale


class NoAnswerError(Exception):
    """Nothing of ours answers a place; the message is the sentence that says why."""


@dataclass(frozen=True)
class Answer:
    """The cells of one place, one for each task, with the dense ones of the same tasks where there are any.

    ``notes`` say what stands in for the paper's own setting.
    """

    cells: tuple[CellRows, ...]
    dense: tuple[CellRows, ...]
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[int, ...]:
        """The same for places that the same cells answer."""
        return tuple(id(cell) for cell in self.cells)


@dataclass(frozen=True)
class CellLookup:
    """Answers for the places of one item at one scale, from the cells that its experiment file lists."""

    paper: str
    item: str
    scale: Scale
    asked: FigureCells
    layout: Layout
    cells: Mapping[tuple[str, str, str], Sequence[CellRows]]  # by model, policy, task; the oldest first
    models: tuple[str, ...]

    @staticmethod
    def of(paper: str, item: str, shelf: RowIndex, scale: Scale) -> CellLookup:
        """For an item that has a layout."""
        own = layout(paper, item)
        assert own is not None, f"{paper} {item} has no layout"
        item = str(own.ask.get("cells_of", item))
        asked = figure_cells(paper, item, scale)
        keys = set(asked.keys)
        found: dict[tuple[str, str, str], list[CellRows]] = {}
        for cell in shelf.cells:
            if cell.policy == "dense" or key_of(cell) in keys:
                found.setdefault((cell.model, cell.policy, cell.task), []).append(cell)
        return CellLookup(paper, item, scale, asked, own, found, tuple(shelf.models))

    def answer(self, place: Printed) -> Answer:
        """Raises `GapError`."""
        name = self._model(place)
        policies = self._policies(place)
        notes: list[str] = []
        tasks = self._tasks(place, notes)
        cells = [self._cell(place, name, policies, task, notes) for task in tasks]
        dense = [found[-1] for task in tasks if (found := self.cells.get((name, "dense", task)))]
        return Answer(tuple(cells), tuple(dense), tuple(dict.fromkeys(notes)))

    def command(self) -> str:
        """What measures the item."""
        return f"python -m harness +exp={self.paper}/{experiment(self.item)} scale={self.scale}"

    def _model(self, place: Printed) -> str:
        if self.scale == "mini":
            if published.TESTBED not in self.models:
                raise NoAnswerError(f"Not measured: there are no rows of the testbed; {self._how()}")
            return published.TESTBED
        name = model(place.at["model"]) or next((m for m in self.asked.models if m in self.models), "")
        if name not in self.models:
            raise NoAnswerError(f"Not measured: there are no rows of {name or 'any model'}; {self._how()}")
        return name

    def _policies(self, place: Printed) -> tuple[str, ...]:
        method = str(self.layout.ask.get("method", place.at["method"]))
        found = presets(self.paper, method, place.note)
        if not found:
            raise NoAnswerError(names()["without"].get(method, f"Nothing of ours is the paper's {method}."))
        return found

    def _tasks(self, place: Printed, notes: list[str]) -> list[str]:
        own = labels(self.paper, str(self.layout.ask.get("task", place.at["task"])))
        if not own:
            raise NoAnswerError(names()["without"].get(place.at["task"], "The table names no task."))
        if self.scale == "full":
            return list(own)
        listed = self.asked.values("task")
        if not (found := published.tasks(own, listed)):
            raise NoAnswerError(f"At scale=mini nothing stands for {place.at['task']} in this item.")
        if found[0] not in own and len(own) == 1:  # an average is that of tasks which have columns of their own
            notes.append(f"{found[0]} for {place.at['task']}")
        return found

    def _cell(self, place: Printed, name: str, policies: Iterable[str], task: str, notes: list[str]) -> CellRows:
        found = [cell for policy in policies for cell in self.cells.get((name, policy, task), ())]
        first = next(iter(policies))
        if not found:
            raise NoAnswerError(f"Not measured: there are no rows of {first} on {task}; {self._how()}")
        if first == "dense":
            return found[-1]
        budget, block_size = self._budget(place, notes), self._block_size(place, notes)
        found = [cell for cell in found if cell.budget == budget]
        if not found:
            raise NoAnswerError(
                f"Not measured: there are no rows of {first} at budget={budget} on {task}; {self._how()}"
            )
        if place.at["block_size"]:
            found = [cell for cell in found if (cell.prompt, cell.block_size) == block_size]
            if not found:
                how = " ".join(map(str, block_size))
                raise NoAnswerError(f"Not measured: no rows of {first} on {task} with prompt={how}; {self._how()}")
        cell = found[-1]
        own = budget_of(self.paper)
        if own and cell.budget_of not in ("", own) and "%" in place.at["budget"]:
            if self.scale == "full":
                raise NoAnswerError(f"Not comparable: shares of {cell.budget_of}, the paper's are shares of {own}.")
            notes.append(f"shares of {cell.budget_of} for shares of {own}")
        return cell

    def _budget(self, place: Printed, notes: list[str]) -> str:
        ask = self.layout.ask
        budget = str(ask.get("budget", place.at["budget"] or ask.get("empty_budget", "")))
        for name, by_value in ask.get("budget_by", {}).items():
            budget = by_value[place.at[name]]
        if self.scale == "full" or budget in self.asked.values("budget"):
            return budget
        stands = published.budget(self.paper, budget)
        if stands != budget:
            notes.append(f"budget {stands} for {budget}")
        return stands

    def _block_size(self, place: Printed, notes: list[str]) -> tuple[str, int]:
        printed = place.at["block_size"]
        if not printed.isdigit():
            return "one_shot", 0
        size = int(printed)
        stands = published.block_size(self.paper, size) if self.scale == "mini" else size
        if stands != size:
            notes.append(f"blocks of {stands} for {size}")
        return "blocked", stands

    def _how(self) -> str:
        return f"`{self.command()}` measures them."


def key_of(cell: CellRows) -> tuple[object, ...]:
    """The cell as the grids of an experiment name it (`harness.papers.figures.figure_data.KEY`)."""
    own = {"share_of": cell.budget_of, **{name: getattr(cell, name) for name in KEY if name != "share_of"}}
    return tuple(own[name] for name in KEY)
