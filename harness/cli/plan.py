"""``python -m harness plan +exp=…``: cells, samples, tokens, time and memory of a sweep, before anything runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rich.markup import escape

from harness.cli.claim_samples import claim_sample_lines
from harness.config.cell import Cell, task_from
from harness.config.head_profiles import FILES
from harness.config.model import DTYPES, ModelSpec, pick_device
from harness.config.policy_config import preset
from harness.config.settings import check_config
from harness.console import say
from harness.engine.requests import Prompting, Request
from harness.errors import UserError
from harness.runner.checks import explain_unsupported
from harness.runner.estimate import (
    Pace,
    WorkEstimate,
    estimate_work,
    matrix_rate,
    measured_pace,
    parameters,
    published_lengths,
    text_config,
)
from harness.runner.memory import (
    Footprint,
    MemoryLoad,
    allowed_bytes,
    allowed_tokens,
    linear_parameters,
    physical_bytes,
)
from harness.runner.plan import plan, unique_cells
from harness.runner.prompt_encoder import PromptEncoder
from harness.runner.samples import Prompts
from harness.runner.sweep import baseline_cells, explain_scaled_budgets, parse_cells
from harness.store.store import Store
from tasks.base import TaskError


@dataclass
class Planned:
    """The plan of one model. ``largest``: bytes of the largest single sample, weights not included."""

    model: ModelSpec
    cells: int = 0
    samples: int = 0
    present: int = 0
    work: WorkEstimate = field(default_factory=WorkEstimate)
    largest: int = 0
    assumed: set[str] = field(default_factory=set)


def show(configs: Sequence[Mapping[str, Any]]) -> None:
    """Print the plan. Raises `UserError` where even a single row cannot fit into this machine's memory."""
    device = pick_device(configs[0]["device"])
    too_large = []
    for part in planned(configs):
        config = text_config(part.model)
        bytes_of_weights = parameters(config) * DTYPES[part.model.dtype].itemsize
        rate = matrix_rate(device, part.model.dtype)
        for line in (
            f"{part.model.name}: {part.cells} cells, {part.samples} samples to compute, {part.present} there already",
            f"  prompt tokens     {part.work.prompt:,} in {part.work.rows:,} rows",
            f"  tokens to feed    {part.work.alone:,} alone, {part.work.shared:,} with shared prompts (at most)",
            f"  time              {_time(part, rate, device)}",
            f"  memory            {bytes_of_weights / 2**30:.2f} GiB of weights, "
            f"{part.largest / 2**30:.2f} GiB for the largest row",
            *(f"  assumed           {words}" for words in sorted(part.assumed)),
        ):
            say(line)
        room = _room(device)
        if bytes_of_weights + part.largest > room:
            too_large.append(
                f"{part.model.name} needs {(bytes_of_weights + part.largest) / 2**30:.1f} GiB at least and {device} "
                f"has {room / 2**30:.1f}: choose a smaller model, budget or block_size, or scale=mini."
            )
    for line in claim_sample_lines(configs):
        say(line)
    if too_large:
        raise UserError(" ".join(too_large))


def planned(configs: Sequence[Mapping[str, Any]]) -> list[Planned]:
    """By model. Cells whose model and data are here are counted exactly, baselines included."""
    prompts = Prompts()
    here, absent = _divided(configs)
    parts: dict[ModelSpec, Planned] = {}
    if here:
        asked, refusals = parse_cells(here, prompts)
        beside, impossible = baseline_cells(asked, prompts)
        for line in (
            *explain_unsupported(refusals, "Refused, and not run:"),
            *explain_unsupported(impossible, "Without the baseline"),
            *explain_scaled_budgets(asked, prompts),
        ):
            say(escape(line))
        cells = unique_cells([*(each.cell for each in asked), *beside])
        _exactly(cells, Store(Path(configs[0]["results_dir"]) / "runs"), prompts, parts)
    _by_published_lengths(absent, parts)
    return list(parts.values())


def _divided(configs: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Configurations whose model and data are on this machine, and the others."""
    here: list[Mapping[str, Any]] = []
    absent: list[Mapping[str, Any]] = []
    for config in configs:
        check_config(config)
        is_here = _model_is_here(ModelSpec.parse(config["model"])) and _data_is_here(config["task"])
        (here if is_here else absent).append(config)
    return here, absent


@cache
def _model_is_here(model: ModelSpec) -> bool:
    try:
        PromptEncoder.for_model(model)
    except UserError:
        return False
    return True


def _data_is_here(config: Mapping[str, Any]) -> bool:
    try:
        task_from(config).revision()
    except TaskError:
        return False
    return True


def _exactly(cells: Sequence[Cell], store: Store, prompts: Prompts, parts: dict[ModelSpec, Planned]) -> None:
    """Count the rows that would be run."""
    by_model: dict[ModelSpec, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_model[cell.model].append(cell)
    for model, members in by_model.items():
        found = plan(model, members, store, prompts)
        part = parts.setdefault(model, Planned(model))
        part.cells += len(members)
        part.samples += len(found.jobs)
        part.present += found.present
        memory, tokens = allowed_bytes(torch.device("cpu")), allowed_tokens(found.footprint, torch.device("cpu"))
        batches = found.batches(memory, tokens=tokens)
        for wave in (wave for batch in batches for wave in found.with_jobs(batch).waves(memory)):
            part.work += estimate_work([(row, job.cell.prompting) for job in wave for row in job.rows])
        loads = [MemoryLoad(found.footprint).with_loads(job.load(found.shape).rows).bytes for job in found.jobs]
        part.largest = max([part.largest, *loads])


def _by_published_lengths(configs: Sequence[Mapping[str, Any]], parts: dict[ModelSpec, Planned]) -> None:
    """One row of the mean length for each cell, times its samples; baselines get as many as the cell beside them."""
    testbed = {"name": "testbed", "path": "bundled/testbed", "dtype": "float32"}  # a tokenizer for policies that ask
    rows: dict[tuple[ModelSpec, str], dict[tuple[Any, ...], _AssumedRow]] = defaultdict(dict)
    for config in configs:
        model = ModelSpec.parse(config["model"])
        task = {key: "fixture" if key == "data" else value for key, value in config["task"].items()}
        for policy in (config["policy"], *(preset(name) for name in config["references"] if name != "oracle")):
            cell = Cell.parse({**config, "policy": _on_any_model(policy), "task": task, "model": testbed})
            samples, tokens = published_lengths(cell.task.label)
            new = getattr(cell.task, "max_new_tokens", None) or 128
            slots = 0 if cell.policy.is_dense else cell.budget.slots_for(tokens, new, [tokens])
            answer = new if cell.task.mode == "generate" else 0
            row = Request(range(tokens), cell.policy, slots, answer, so_far=cell.budget.so_far)
            wanted = samples if cell.limit is None else min(samples, cell.limit)
            known = rows[model, cell.task.label]
            key = cell.policy.name, slots, cell.prompting
            known[key] = _AssumedRow(row, cell.prompting, max(wanted, known[key].samples if key in known else 0))
    for (model, label), members in rows.items():
        part = parts.setdefault(model, Planned(model))
        footprint = Footprint.of(text_config(model), model.dtype)
        part.cells += len(members)
        part.samples += sum(each.samples for each in members.values())
        part.work += _assumed_work(list(members.values()))
        loads = [MemoryLoad(footprint).with_row(each.row, each.prompting).bytes for each in members.values()]
        part.largest = max([part.largest, *loads])
        samples, tokens = max(each.samples for each in members.values()), published_lengths(label)[1]
        words = f"{samples} samples of {tokens} tokens a task, as published (conf/estimates.yaml)"
        part.assumed.add(f"{label.partition('/')[0]}: {words}, for model or data are not on this machine")


def _on_any_model(policy: Mapping[str, Any]) -> Mapping[str, Any]:
    """The policy with files that were measured on another model taken for this one's: their numbers change no work."""
    return {
        part: {**spec, "transfer": True} if isinstance(spec, Mapping) and not FILES.keys().isdisjoint(spec) else spec
        for part, spec in policy.items()
    }


@dataclass(frozen=True)
class _AssumedRow:
    """A row of the published mean length that stands for so many samples of a cell."""

    row: Request
    prompting: Prompting
    samples: int


def _assumed_work(rows: Sequence[_AssumedRow]) -> WorkEstimate:
    """The work of cells with different numbers of samples: each sample is read by the cells that want it."""
    work, done = WorkEstimate(), 0
    for samples in sorted({each.samples for each in rows}):
        together = [(each.row, each.prompting) for each in rows if each.samples >= samples]
        work += estimate_work(together).times(samples - done)
        done = samples
    return work


def _time(part: Planned, rate: float, device: str) -> str:
    """How long it takes, in words: by what its model's sweeps have taken, by two passes of it, or a lower bound."""
    here = f"{rate / 1e9:,.0f} GFLOP/s of matrix products measured now"
    if (pace := Pace.of(part.model.name) or measured_pace(part.model, device, rate)) is not None:
        seconds = pace.seconds(part.work, rate) if part.samples else pace.begin
        return f"about {seconds / 60:,.1f} minutes with all cores: {pace.conditions}, and {here}"
    seconds = part.work.shared * 2 * linear_parameters(text_config(part.model)) / rate
    return f"{seconds / 60:,.1f} minutes at least: {here}, and nothing but them; no sweep of it was measured yet"


def _room(device: str) -> int:
    """Bytes that weights and rows may take together on this device."""
    if device.startswith("cuda"):
        return allowed_bytes(torch.device(device))
    return physical_bytes()
