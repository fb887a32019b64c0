"""``python -m harness.profile model=… kind=r|r2 out=…``: measure the heads of a model for HeadKV.

Every setting of ``python -m harness`` that says which model and which needles holds here too: ``model.path``,
``task.lengths``, ``task.depths``, ``task.repeats``, ``limit``, ``device``. The seed is 1 where none is given, so that
the needles are not those that policies are tested on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import tasks
from harness.errors import UserError
from harness.listing import CONF
from harness.models import ModelSpec, eos_token_ids, pick_device
from harness.origin import provenance
from harness.plain_words import errors_in_plain_words
from harness.profiles.files import identity, write
from harness.profiles.measure import SCORES, Kind, measure
from harness.terminal import say

PROFILE_SEED = 1


def main() -> None:
    """Exit code 0 = written, 2 = something the user can mend, in one sentence on stderr."""
    with errors_in_plain_words():
        make(sys.argv[1:])


def make(arguments: Sequence[str]) -> None:
    """Measure and write. Raises the errors of `harness.errors.MENDABLE`."""
    kind, out, overrides = _own(arguments)
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config = compose("config", overrides=[f"seed={PROFILE_SEED}", *overrides])
    given = OmegaConf.to_container(config, resolve=True)
    assert isinstance(given, dict)
    spec = ModelSpec.parse(given["model"])
    task = tasks.build(given["task"].pop("name"), **given["task"])
    device = pick_device(given["device"])
    tokenizer = spec.tokenizer()
    samples = task.samples(tokenizer)[: given["limit"]]
    model = spec.load(device)
    scores = measure(model, tokenizer, task, samples, kind, eos_token_ids(model))
    recorded = len(scores[0][0])
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
            "recorded": recorded,
            "task": {"version": task.version, **given["task"], "name": task.name},
            **provenance.record(device),
        },
    )
    say(f"{recorded} of {len(samples)} needles answered.\nProfile: {out}")


def _own(arguments: Sequence[str]) -> tuple[Kind, Path, list[str]]:
    """The settings that only this command has, and all others."""
    own = {"kind": "r", "out": ""}
    others = []
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name in own:
            own[name] = value
        else:
            others.append(argument)
    kinds = {name: name for name in SCORES}
    if own["kind"] not in kinds:
        raise UserError(f"kind={own['kind']} is not one of {', '.join(kinds)}.")
    if not own["out"]:
        raise UserError("The profile needs a place: add out=<file>.json.")
    out = Path(own["out"]).expanduser()
    try:  # now, and not after the work is done
        out.parent.mkdir(parents=True, exist_ok=True)
        out.open("a").close()
    except OSError as error:
        raise UserError(f"{out} cannot be written ({error.strerror}): choose another out=<file>.json.") from error
    if out.stat().st_size == 0:
        out.unlink()
    return kinds[own["kind"]], out, others  # type: ignore[index]


if __name__ == "__main__":
    main()
