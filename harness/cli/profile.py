"""``python -m harness profile model=… kind=r|r2|q out=…``: measure the heads of a model.

r and r2 say how much each query head retrieves (HeadKV, DuoAttention), q where the queries of each KV head lie
(Q-Filters, on the prompts of any task).

Takes the settings of ``python -m harness run`` that choose the model and the needles: ``model.path``, ``task.lengths``,
``task.depths``, ``task.repeats``, ``limit``, ``device``. The seed is 1 by default, so that the needles are not those
that policies are tested on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tasks
from harness.analysis.head_measurement import SCORES, Kind, measure
from harness.analysis.query_filters import measure_filters
from harness.cli.arguments import parse_known
from harness.config import provenance
from harness.config.compose import checked_config, compose_config
from harness.config.head_profiles import identity, write
from harness.config.model import ModelSpec, eos_token_ids, pick_device
from harness.console import say
from harness.errors import UserError

PROFILE_SEED = 1
FILTERS: Literal["q"] = "q"


@dataclass
class ProfileSettings:
    """``kind``: what is measured; ``out``: the file to write."""

    kind: str = "r"
    out: str = ""


def main(words: Sequence[str]) -> None:
    """Measure and write. Raises the errors of `harness.config.cell.USER_ERRORS`."""
    own, overrides = parse_known(ProfileSettings, words, "profile", __doc__)
    kind, out = _kind(own.kind), _writable(own.out)
    given = checked_config(compose_config([f"seed={PROFILE_SEED}", *overrides]))
    spec = ModelSpec.parse(given["model"])
    task = tasks.build(given["task"].pop("name"), **given["task"])
    device = pick_device(given["device"])
    tokenizer = spec.tokenizer()
    samples = task.samples(tokenizer)[: given["limit"]]
    model = spec.load(device)
    if kind == FILTERS:
        scores, counts = measure_filters(model, [tokenizer.encode(sample.prompt) for sample in samples]), {}
        done = f"The queries of {len(samples)} prompts."
    else:
        scores = measure(model, tokenizer, task, samples, kind, eos_token_ids(model))
        counts = {"recorded": len(scores[0][0])}
        done = f"{len(scores[0][0])} of {len(samples)} needles answered."
    write(
        out,
        scores,
        {
            "kind": kind.upper(),
            "model": spec.name,
            "fingerprint": identity(spec),
            "layers": len(scores),
            "heads": len(scores[0]),
            "trials": len(samples),
            **counts,
            "task": {"version": task.version, **given["task"], "name": task.name},
            **provenance.cell_provenance(device),
        },
    )
    say(f"{done}\nProfile: {out}")


def _kind(name: str) -> Kind | Literal["q"]:
    kinds: dict[str, Kind | Literal["q"]] = {**{kind: kind for kind in SCORES}, FILTERS: FILTERS}
    if name not in kinds:
        raise UserError(f"kind={name} is not one of {', '.join(kinds)}.")
    return kinds[name]


def _writable(file: str) -> Path:
    """Raises `UserError` for a file that cannot be written: now, and not after the work is done."""
    if not file:
        raise UserError("The profile needs a place: add out=<file>.json.")
    out = Path(file).expanduser()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.open("a").close()
    except OSError as error:
        raise UserError(f"{out} cannot be written ({error.strerror}): choose another out=<file>.json.") from error
    if out.stat().st_size == 0:
        out.unlink()
    return out
