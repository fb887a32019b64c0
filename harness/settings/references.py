"""The reference lines of a sweep: cells that nobody has to ask for, so that every number has something to stand beside.

Dense is the model itself, random the floor that a method has to beat, the oracle the headroom that a budget leaves.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.cells import Cell
from harness.errors import CellError, UserError
from harness.samples.prompts import Prompts
from harness.settings.policy_config import preset
from harness.settings.refusals import Refusal, reason_against_cell


@dataclass(frozen=True)
class Asked:
    """A cell, and the configuration (plain containers) that asked for it."""

    config: Mapping[str, Any]
    cell: Cell


def references(asked: Sequence[Asked], prompts: Prompts) -> tuple[list[Cell], list[Refusal]]:
    """The cells of ``references`` beside every evicting cell, and those that are not possible there.

    One for each model, task, budget, prompt regime and seed; none where a policy of that name was asked for.
    """
    evicting = {_setting(each.cell): each for each in asked if not each.cell.policy.is_dense}
    named = {(_setting(each.cell), each.cell.policy.name) for each in asked}
    cells: dict[str, Cell] = {}
    refusals: list[Refusal] = []
    for each in evicting.values():
        for name in _names(each.config["references"]):
            config = {**each.config, "policy": preset(name), "prompt": each.cell.prompting.regime}
            try:
                cell = Cell.parse(config)
                reason = reason_against_cell(cell, prompts)
            except CellError as error:
                reason = str(error)
            if reason:
                refusals.append(Refusal(f"{name} ({each.cell.task.label}, budget {each.cell.budget.label})", reason))
            elif (_setting(cell), cell.policy.name) not in named:
                cells[cell.id] = cell
    return list(cells.values()), refusals


def _setting(cell: Cell) -> Hashable:
    """Everything about a cell but its policy."""
    return cell.model, cell.task, cell.seed, cell.prompting, cell.budget


def _names(setting: object) -> list[str]:
    if not isinstance(setting, list):
        raise UserError(f"references={setting} is not a list: write references=[{setting or ''}].")
    return [str(name) for name in setting]
