"""From a printed number to the cells of ours that measure it, or to the sentence that says why there are none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.papers import published
from harness.papers.cell_index import CellIndex, CellRows
from harness.papers.figures.figure_cells import KEY, FigureCells, experiment_name, figure_cells
from harness.papers.published import Scale, name_map, our_model, presets, task_labels
from harness.papers.table_layouts import Layout, PrintedNumber, budget_of, layout


class NoValueError(Exception):
    """We have no value for a printed number; the message is the sentence that says why."""


@dataclass(frozen=True)
class MatchingCells:
    """The cells that measure one printed number, one per task, and the dense cells of the same tasks if there are any.

    ``notes``: what was taken for the paper's own setting, as "a for b".
    """

    cells: tuple[CellRows, ...]
    dense: tuple[CellRows, ...]
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[int, ...]:
        """Equal for numbers that the same cells measure."""
        return tuple(id(cell) for cell in self.cells)


@dataclass(frozen=True)
class PlaceLookup:
    """Finds the cells for the printed numbers of one item at one scale, among those that its experiment file lists."""

    paper: str
    item: str
    scale: Scale
    listed: FigureCells
    layout: Layout
    cells: Mapping[tuple[str, str, str], Sequence[CellRows]]  # by model, policy, task; the oldest first
    models: tuple[str, ...]

    @staticmethod
    def for_item(paper: str, item: str, index: CellIndex, scale: Scale) -> PlaceLookup:
        """The lookup of an item that has a layout."""
        own = layout(paper, item)
        assert own is not None, f"{paper} {item} has no layout"
        item = str(own.ask.get("cells_of", item))
        listed = figure_cells(paper, item, scale)
        keys = set(listed.keys)
        found: dict[tuple[str, str, str], list[CellRows]] = {}
        for cell in index.cells:
            if cell.policy == "dense" or experiment_key(cell) in keys:
                found.setdefault((cell.model, cell.policy, cell.task), []).append(cell)
        return PlaceLookup(paper, item, scale, listed, own, found, tuple(index.models))

    def find(self, number: PrintedNumber) -> MatchingCells:
        """The cells of a printed number. Raises `NoValueError`."""
        model = self._model(number)
        notes: list[str] = []
        policies = self._policies(number, notes)
        tasks = self._tasks(number, notes)
        cells = [self._cell(number, model, policies, task, notes) for task in tasks]
        dense = [found[-1] for task in tasks if (found := self.cells.get((model, "dense", task)))]
        return MatchingCells(tuple(cells), tuple(dense), tuple(dict.fromkeys(notes)))

    def command(self) -> str:
        """The command that measures the item."""
        return f"python -m harness +exp={self.paper}/{experiment_name(self.item)} scale={self.scale}"

    def _model(self, number: PrintedNumber) -> str:
        if own := published.model_of(self.scale):
            if own not in self.models:
                raise NoValueError(f"Not measured: there are no rows of {own}; {self._how()}")
            return own
        model = our_model(number.at["model"]) or next((m for m in self.listed.models if m in self.models), "")
        if model not in self.models:
            raise NoValueError(f"Not measured: there are no rows of {model or 'any model'}; {self._how()}")
        return model

    def _policies(self, number: PrintedNumber, notes: list[str]) -> tuple[str, ...]:
        method = str(self.layout.ask.get("method", number.at["method"]))
        by = self.layout.ask.get("method_by", {})
        if own := next((words for words in (method, *number.note.split("; ")) if words in by), ""):
            notes.append(f"{by[own]} for {own}")
            method = by[own]
        found = presets(self.paper, method, number.note)
        if not found:
            raise NoValueError(name_map()["without"].get(method, f"Nothing of ours is the paper's {method}."))
        return found

    def _tasks(self, number: PrintedNumber, notes: list[str]) -> list[str]:
        own = task_labels(self.paper, str(self.layout.ask.get("task", number.at["task"])))
        if not own:
            raise NoValueError(name_map()["without"].get(number.at["task"], "The table names no task."))
        if self.scale == "full":
            return list(own)
        listed = self.listed.values("task")
        if not (found := published.proxy_tasks(own, listed, self.scale, self.paper)):
            raise NoValueError(f"At scale={self.scale} nothing stands for {number.at['task']} in this item.")
        if found[0] not in own and len(own) == 1:  # an average takes proxies task by task
            notes.append(f"{found[0]} for {number.at['task']}")
        return found

    def _cell(
        self, number: PrintedNumber, model: str, policies: Iterable[str], task: str, notes: list[str]
    ) -> CellRows:
        found = [cell for policy in policies for cell in self.cells.get((model, policy, task), ())]
        first = next(iter(policies))
        if not found:
            raise NoValueError(f"Not measured: there are no rows of {first} on {task}; {self._how()}")
        if first == "dense":
            return found[-1]
        budget, block_size = self._budget(number, notes), self._block_size(number, notes)
        found = [cell for cell in found if cell.budget == budget]
        if not found:
            raise NoValueError(
                f"Not measured: there are no rows of {first} at budget={budget} on {task}; {self._how()}"
            )
        if number.at["block_size"]:
            found = [cell for cell in found if (cell.prompt, cell.block_size) == block_size]
            if not found:
                how = " ".join(map(str, block_size))
                raise NoValueError(f"Not measured: no rows of {first} on {task} with prompt={how}; {self._how()}")
        cell = found[-1]
        own = budget_of(self.paper)
        if own and cell.budget_of not in ("", own) and "%" in number.at["budget"]:
            if self.scale == "full":
                raise NoValueError(f"Not comparable: shares of {cell.budget_of}, the paper's are shares of {own}.")
            notes.append(f"shares of {cell.budget_of} for shares of {own}")
        return cell

    def _budget(self, number: PrintedNumber, notes: list[str]) -> str:
        ask = self.layout.ask
        budget = str(ask.get("budget", number.at["budget"] or ask.get("empty_budget", "")))
        for field, by_value in ask.get("budget_by", {}).items():
            budget = by_value[number.at[field]]
        if self.scale == "full" or budget in self.listed.values("budget"):
            return budget
        stands = published.proxy_budget(self.paper, budget, self.scale)
        if stands != budget:
            notes.append(f"budget {stands} for {budget}")
        return stands

    def _block_size(self, number: PrintedNumber, notes: list[str]) -> tuple[str, int]:
        printed = number.at["block_size"]
        if not printed.isdigit():
            return "one_shot", 0
        size = int(printed)
        stands = published.proxy_block_size(self.paper, size, self.scale)
        if stands != size:
            notes.append(f"blocks of {stands} for {size}")
        return "blocked", stands

    def _how(self) -> str:
        return f"`{self.command()}` measures them."


def experiment_key(cell: CellRows) -> tuple[object, ...]:
    """The cell as the grids of an experiment name it (`harness.papers.figures.figure_cells.KEY`)."""
    own = {"share_of": cell.budget_of, **{name: getattr(cell, name) for name in KEY if name != "share_of"}}
    return tuple(own[name] for name in KEY)
