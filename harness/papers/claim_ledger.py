"""The claims ledger: what each paper says of its methods, and the comparison of our rows that tests it.

The ledger (``claims.csv``) has the sentences, ``claims/<paper>.yaml`` next to it the comparisons. Both name a claim by
its id (KD-01).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_args

import yaml

from harness.errors import UserError
from harness.papers.published import FOLDER, cells_as_text, known_paper, our_model

# Every comparison holds at each budget, and unless `per` says otherwise of the mean over the tasks.
Kind = Literal[
    "above",  # every left one > factor * right + margin, for every right one
    "below",  # every left one < factor * right - margin, for every right one
    "within",  # |left - right| <= margin
    "between",  # low <= left / right <= high
    "rises",  # each left one rises with the budget
    "ordered",  # the left ones rise in the order in which they are listed
    "best_in",  # the left one is the best of all in at least `margin` of the tasks (a share)
    "lead_shrinks",  # what the left one leads the best right one by shrinks with the budget
    "retains",  # left at the smallest / left at the greatest budget > the same of every right one
    "ratio_of_means",  # the mean over budgets of left / right lies in low..high
    "steadier",  # left varies less over the axis `split` than every right one (standard deviation)
    "nearer",  # |left - dense| < |right - dense|
]


@dataclass(frozen=True)
class MethodSpec:
    """A method to be looked up in rows, and where it differs from the comparison's own protocol."""

    method: str
    variant: str = ""  # words of the note that names a row of a sensitivity table
    budget: str = ""  # as rows show it: "4096", "30%"; empty: each budget of the comparison
    prompt: str = ""
    block_size: int = 0  # tokens

    @staticmethod
    def parse(written: str | Mapping[str, Any]) -> MethodSpec:
        """``keydiff``, or a mapping with the fields above."""
        return MethodSpec(written) if isinstance(written, str) else MethodSpec(**written)


@dataclass(frozen=True)
class Comparison:
    """What a claim compares, in the units of the rows' metrics ([0, 1] for scores, nats for perplexity)."""

    kind: Kind
    left: tuple[MethodSpec, ...]
    right: tuple[MethodSpec, ...] = ()
    task: tuple[str, ...] = ()  # the paper's names; the name of an average means all its tasks
    metric: tuple[str, ...] = ("official_score",)  # the paper's names; of several, the geometric mean
    column: str = ""  # instead of a metric, columns of the rows, summed: "coverage", "kv_bytes+state_bytes"
    budgets: tuple[str, ...] = ()
    ladder: tuple[str, ...] = ()  # all budgets of the paper's experiment, the smallest first
    prompt: str = ""
    block_size: int = 0  # tokens; 0 where the regime has no blocks
    budget_of: str = ""  # what the paper's shares are shares of (`harness.config.budget`); empty where it gives slots
    per: Literal["average", "task"] = "average"
    pairs: bool = False  # the left and right ones belong together one by one, instead of each with each
    best_left: bool = False  # only the best of the left ones is compared
    factor: float = 1.0
    margin: float = 0.0
    low: float = 0.0
    high: float = 0.0
    split: str = ""  # an axis of the task; each of its values is a stratum
    only: Mapping[str, Any] = field(default_factory=dict)  # samples with these axis values alone
    quantity: str = ""  # instead of rows, a quantity of `harness.papers.claim_measurements`; methods are its columns

    @staticmethod
    def parse(written: Mapping[str, Any], defaults: Mapping[str, Any]) -> Comparison:
        """From YAML, where every list may be a single value."""
        given = {**defaults, **written}
        for name in ("left", "right"):
            given[name] = tuple(MethodSpec.parse(each) for each in _as_list(given.get(name, ())))
        for name in ("task", "metric", "budgets"):
            if name in given:
                given[name] = tuple(str(each) for each in _as_list(given[name]))
        paper_ladder = [str(each) for each in defaults["budgets"]]
        named = {*given["budgets"], *(each.budget for name in ("left", "right") for each in given[name] if each.budget)}
        given["ladder"] = tuple(sorted(paper_ladder if named <= set(paper_ladder) else named, key=_budget_size))
        return Comparison(**given)

    def budgets_compared(self) -> set[str]:
        """The budgets at which the comparison looks up cells."""
        own = {each.budget for each in self.methods() if each.budget}
        return own if all(each.budget for each in self.methods()) else own | set(self.budgets)

    def methods(self) -> list[MethodSpec]:
        """Every method that is looked up, once."""
        dense = (MethodSpec("dense"),) if self.kind == "nearer" else ()
        return list(dict.fromkeys((*self.left, *self.right, *dense)))


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper. ``comparison`` is None where our rows cannot test it; ``reason`` then says why."""

    id: str
    paper: str
    text: str
    kind: str  # ordering, threshold, trend, correlation, efficiency
    models: tuple[str, ...]  # the paper's names; empty where it names none
    items: tuple[str, ...]  # tables and figures it rests on, as in `items`
    source: str  # where the paper says it
    evidence: str  # the printed numbers
    comparison: Comparison | None
    reason: str = ""
    remark: str = ""  # where the comparison is not literally the sentence
    also: tuple[Comparison, ...] = ()  # further comparisons that have to hold with it
    effect: float = 0.0  # what it wants to see, in units of its metric; 0: the smallest printed difference of its cases
    of_one_model: bool = False  # it tells models of the paper apart, so that a model that stands for all cannot test it

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """All comparisons that have to hold; empty where nothing can be tested."""
        return (self.comparison, *self.also) if self.comparison else ()


@cache
def claims(paper: str) -> list[Claim]:
    """Every line of the ledger of one paper. Raises `UserError` for an unknown paper, or unlike files."""
    ledger = cells_as_text("claims.csv")
    lines = ledger[ledger["paper"] == known_paper(paper)].to_dict("records")
    file = FOLDER / "claims" / f"{paper}.yaml"
    written = yaml.safe_load(file.read_text())
    comparisons, defaults = written["claims"], written["defaults"]
    if unlike := {line["id"] for line in lines} ^ set(comparisons):
        raise UserError(f"{file} and claims.csv do not list the same claims: {', '.join(sorted(unlike))}.")
    return [
        _parse_claim({str(k): str(v) for k, v in line.items()}, comparisons[line["id"]], defaults) for line in lines
    ]


def _parse_claim(line: Mapping[str, str], written: Mapping[str, Any], defaults: Mapping[str, Any]) -> Claim:
    named = tuple(each.strip() for each in line["model"].split(";"))
    if ("not_comparable" in written) == ("compare" in written):
        raise UserError(f"Claim {line['id']} needs either 'compare' or 'not_comparable'.")
    comparison = Comparison.parse(written["compare"], defaults) if "compare" in written else None
    claim = Claim(
        id=line["id"],
        paper=line["paper"],
        text=line["claim"],
        kind=line["kind"],
        models=tuple(written.get("models", [each for each in named if our_model(each)])),
        items=tuple(written["items"]),
        source=line["source"],
        evidence=line["printed_evidence"],
        comparison=comparison,
        reason=" ".join(str(written.get("not_comparable", "")).split()),
        remark=" ".join(str(written.get("remark", "")).split()),
        also=tuple(Comparison.parse(each, defaults) for each in written.get("also", ())),
        effect=float(written.get("effect", 0.0)),
        of_one_model=bool(written.get("of_one_model", False)),
    )
    for kind in (each.kind for each in claim.comparisons):
        if kind not in get_args(Kind):
            raise UserError(f"Claim {claim.id} asks for '{kind}', which is none of {', '.join(get_args(Kind))}.")
    return claim


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _budget_size(budget: str) -> float:
    return float(budget.rstrip("%"))
