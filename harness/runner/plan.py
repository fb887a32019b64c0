"""From cells to batches: which samples are missing, and which of them go into the engine together.

Batches hold whole samples under all their cells, as many as fit into memory. `RunResult` is what a run returns.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from harness.config import provenance
from harness.config.cell import Cell, greatest
from harness.config.model import ModelSpec
from harness.engine.requests import Request, refuse_unsupported
from harness.runner.checks import hindsight_bytes
from harness.runner.memory import Footprint, MemoryLoad, RowLoad
from harness.runner.run_settings import RunSettings, Shard
from harness.runner.samples import Prompts
from harness.store.store import Store
from harness.store.work_files import Key
from policies.view import ModelShape
from tasks.base import Sample

ROWS_AT_ONCE = 512
SIMILAR_LENGTH = 128  # tokens by which prompts may differ that are read at once
WAVES_AT_ONCE = 8  # more would be lost with a killed worker, and keep fewer workers busy
TOKENS_AT_ONCE = 16384  # in one pass: more are not faster, and an interrupted run would lose more


@dataclass(frozen=True)
class JobLoad:
    """What decides the batch of a job, as plain numbers: batches are made of them before any job is built.

    ``batch_key``: jobs with the same key can go into the engine together, prompts of similar length that are fed in the
    same way: what reads a prompt at once would ride along, empty, while another row reads token by token.
    ``passes``: forward passes that its longest row takes at most. ``tokens``: to feed at most.
    ``may_decode_long``: whether some row may take more passes after its prompt than in it, so that its length is not
    known before it ends.
    """

    batch_key: str
    passes: int
    tokens: int
    may_decode_long: bool
    rows: tuple[RowLoad, ...]


@dataclass(frozen=True)
class Job:
    """One missing (cell, sample) pair, ready for the engine: one row, or one for each continuation of the sample."""

    cell: Cell
    sample: Sample
    rows: tuple[Request, ...]

    @property
    def key(self) -> Key:
        """Ids of the cell and the sample."""
        return self.cell.id, self.sample.id

    @property
    def row(self) -> Request:
        """The row with the most tokens: its ledger is the job's (docs/design/rows.md)."""
        return max(self.rows, key=lambda row: row.total_tokens)

    def load(self, shape: ModelShape) -> JobLoad:
        """What decides its batch."""
        prompting, longest = self.cell.prompting, self.row
        similar = len(longest.tokens) // (prompting.block_size if prompting.has_blocks else SIMILAR_LENGTH)
        chunks = len(longest.chunks(prompting))
        return JobLoad(
            batch_key=str((self.cell.task.mode, prompting, similar, chunks > 1)),
            passes=max(len(row.chunks(prompting)) + row.max_new_tokens for row in self.rows),
            tokens=sum(row.total_tokens for row in self.rows),
            may_decode_long=self.cell.task.mode == "generate" and longest.max_new_tokens > chunks,
            rows=tuple(RowLoad.of(row, prompting, hindsight_bytes(self.cell, row, shape)) for row in self.rows),
        )


@dataclass(frozen=True)
class Plan:
    """All work of one model. ``present`` counts samples that the store already had; ``samples`` are the ids of all
    requested samples, by cell."""

    model: ModelSpec
    cells: tuple[Cell, ...]
    jobs: tuple[Job, ...]
    present: int
    shape: ModelShape
    footprint: Footprint
    samples: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def with_jobs(self, jobs: Sequence[Job]) -> Plan:
        """The same plan with these jobs."""
        return replace(self, jobs=tuple(jobs))

    @property
    def tokens(self) -> int:
        """Tokens to feed at most."""
        return sum(row.total_tokens for job in self.jobs for row in job.rows)

    @property
    def requested(self) -> int:
        """Samples of all cells, whether present or missing."""
        return sum(map(len, self.samples.values()))

    def count_present(self, store: Store) -> int:
        """How many of the requested samples the store has now."""
        return sum(len(store.finished(cell).intersection(samples)) for cell, samples in self.samples.items())

    def batches(self, memory: int, rows: int = ROWS_AT_ONCE, tokens: float = math.inf) -> Iterator[list[Job]]:
        """The jobs in batches of `make_batches`."""
        for batch in make_batches(self._loads(), self.footprint, memory, rows, tokens):
            yield [self.jobs[place] for place in batch]

    def waves(self, memory: int, rows: int = ROWS_AT_ONCE) -> list[list[Job]]:
        """The jobs of one batch in waves of `make_waves`."""
        waves = make_waves(self._loads(), self.footprint, memory, rows)
        return [[self.jobs[place] for place in wave] for wave in waves]

    def _loads(self) -> list[JobLoad]:
        return [job.load(self.shape) for job in self.jobs]


def make_batches(
    jobs: Sequence[JobLoad], footprint: Footprint, memory: int, rows: int, tokens: float = math.inf
) -> Iterator[list[int]]:
    """Jobs for one engine call each, as places in ``jobs``: whole samples under all their cells, as many as fit.

    ``memory``: bytes beside the weights. ``rows``: at most. ``tokens``: to feed; one sample under all its cells stays
    together even if it has more. A single job is a batch even where it does not fit. Jobs
    that may decode for longer than they read come several waves at once (continuous batching): rows of a later wave
    take the slots of rows that finish early.
    """
    alike: dict[str, list[int]] = defaultdict(list)
    for place, job in enumerate(jobs):
        alike[job.batch_key].append(place)
    # What takes the most passes comes first, so that several workers end at about the same time.
    for _, places in sorted(alike.items(), key=lambda pair: (-max(jobs[place].passes for place in pair[1]), pair[0])):
        for portion in _portions(places, jobs, tokens):
            members = [jobs[place] for place in portion]
            if not any(job.may_decode_long for job in members):
                for batch in _fill(members, footprint, memory, rows):
                    yield [portion[number] for number in batch]
                continue
            waves = make_waves(members, footprint, memory, rows)
            for start in range(0, len(waves), WAVES_AT_ONCE):
                yield [portion[number] for wave in waves[start : start + WAVES_AT_ONCE] for number in wave]


def _portions(places: Sequence[int], jobs: Sequence[JobLoad], tokens: float) -> Iterator[list[int]]:
    """Whole samples, as many at a time as have so many tokens under all their cells together, at least one."""
    portion: list[int] = []
    total = 0
    for _, sample in itertools.groupby(places, key=lambda place: jobs[place].rows[0].prompt):
        own = sorted(sample, key=lambda place: _likeness(jobs[place]))
        more = sum(jobs[place].tokens for place in own)
        if portion and total + more > tokens:
            yield portion
            portion, total = [], 0
        portion, total = portion + own, total + more
    yield portion


def _likeness(job: JobLoad) -> tuple[int, int]:
    """Orders a sample's jobs, so that those share most that stay together where not all of them fit: first what looks
    ahead in a dense run, then by budget, as prompts are shared until the first eviction."""
    return -max(row.hindsight for row in job.rows), max(row.capacity for row in job.rows)


def make_waves(jobs: Sequence[JobLoad], footprint: Footprint, memory: int, rows: int) -> list[list[int]]:
    """The jobs of one batch in waves that read their prompts together, as places in ``jobs``: one wave if all of them
    fit, else waves of which two fit."""
    whole = _fill(jobs, footprint, memory, rows)
    return whole if len(whole) < 2 else _fill(jobs, footprint, memory // 2, rows // 2)


def _fill(jobs: Sequence[JobLoad], footprint: Footprint, memory: int, rows: int) -> list[list[int]]:
    """The jobs in their order, as many at a time as fit. A sample is parted only where it does not fit by itself."""

    def fits(load: MemoryLoad) -> bool:
        return load.rows <= rows and load.reading <= TOKENS_AT_ONCE and load.bytes <= memory

    nothing = MemoryLoad(footprint)
    filled: list[list[int]] = []
    load = nothing
    for _, sample in itertools.groupby(range(len(jobs)), key=lambda place: jobs[place].rows[0].prompt):
        whole = list(sample)
        fits_alone = fits(nothing.with_loads(row for place in whole for row in jobs[place].rows))
        for part in [whole] if fits_alone else [[place] for place in whole]:
            own = [row for place in part for row in jobs[place].rows]
            grown = load.with_loads(own)
            if not filled or not fits(grown):
                filled.append([])
                grown = nothing.with_loads(own)
            filled[-1] += part
            load = grown
    return filled


def unique_cells(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """Every cell once, with the greatest number of samples that is wanted of it."""
    found: dict[str, Cell] = {}
    for cell in cells:
        known = found.get(cell.id)
        if known is None or greatest((known.limit, cell.limit)) != known.limit:
            found[cell.id] = cell
    return tuple(found.values())


def plan_models(cells: Sequence[Cell], store: Store, prompts: Prompts, settings: RunSettings) -> list[Plan]:
    """The plan of each model, after every check that needs no weights."""
    by_model: dict[ModelSpec, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_model[cell.model].append(cell)
    plans = [
        plan(model, members, store, prompts, settings.shard, settings.deterministic)
        for model, members in by_model.items()
    ]
    store.check_writable()
    describe_again(cells, store, prompts)
    return plans


def describe_again(cells: Sequence[Cell], store: Store, prompts: Prompts) -> None:
    """Write the ``cell.json`` of cells that have their samples and have lost it, as ``store verify --repair`` leaves
    them. Of the run that opened the cell is kept what its first part says; the versions of packages are today's.
    """
    for cell in cells:
        if store.lacks_description(cell.id):
            spent = store.parts(cell.id)[0].spent
            known = {name: spent[name] for name in ("git", "hardware", "device", "created") if name in spent}
            described = {**cell.description(), **provenance.cell_provenance("cpu"), **known}
            store.describe(cell.id, described, len(prompts.samples_of(cell)))


def plan(
    model: ModelSpec,
    cells: Sequence[Cell],
    store: Store,
    prompts: Prompts,
    shard: Shard | None = None,
    whole: bool = False,
) -> Plan:
    """Find what is missing in a shard of the sweep.

    ``whole``: where anything is missing, plan what is present too, so that batches are the same as the first time.
    Raises the errors of `harness.config.cell.USER_ERRORS` for prompts that the model cannot take.
    """
    config = model.config().get_text_config()
    builder = prompts.request_builder(model)
    share = shard or Shard()
    jobs: list[Job] = []
    present = missing = 0
    ids: dict[str, list[str]] = {}
    for cell in cells:
        samples = [each for rank, each in enumerate(prompts.samples_of(cell)) if share.holds(rank)]
        ids[cell.id] = [sample.id for sample, _, _ in samples]
        finished = store.finished(cell.id)
        here = sum(sample.id in finished for sample, _, _ in samples)
        present, missing = present + here, missing + len(samples) - here
        jobs += [
            Job(cell, sample, builder.requests(cell, sample, tokens, slots))
            for sample, tokens, slots in samples
            if whole or sample.id not in finished
        ]
    jobs = jobs if missing else []
    refuse_unsupported(config, max((row.positions for job in jobs for row in job.rows), default=0))
    # Jobs of one sample under all its cells lie together, so that an interrupted run leaves whole comparisons. What
    # else lies in a batch moves the last bits of a row, so the order of cells depends neither on the order in which
    # they were requested nor on the code, as their ids do.
    order = {cell.id: _settings(cell) for cell in cells}
    jobs.sort(key=lambda job: (job.sample.id, order[job.cell.id], job.cell.id))
    footprint = Footprint.of(config, model.dtype)
    return Plan(model, tuple(cells), tuple(jobs), present, model.shape(), footprint, ids)


def _settings(cell: Cell) -> str:
    """What a cell was asked to be, as sorted JSON: its identity without the code and data of this version."""
    asked = {name: value for name, value in cell.identity.items() if name not in ("code", "format", "task")}
    task = {name: value for name, value in cell.identity["task"].items() if name != "revision"}
    return json.dumps({**asked, "task": task}, sort_keys=True)


@dataclass(frozen=True)
class RunResult:
    """The cells of a run and what it did. ``computed`` and ``present`` count samples over all cells."""

    cells: tuple[Cell, ...]
    store: Store
    computed: int
    present: int

    def rows(self) -> pd.DataFrame:
        """All rows of these cells, of this run and earlier ones, in the order in which cells were requested."""
        return self.store.load(cell.id for cell in self.cells)
