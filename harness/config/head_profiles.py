"""Profile files: JSON with one key ``layer-head`` per query head, and where the numbers came from.

The public files of FYYFU/HeadKV have the keys only; ours add who was measured, how and when.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isfinite
from pathlib import Path
from typing import Any

from harness.atomic_files import write_atomically
from harness.config import identity as fingerprint
from harness.config.model import ModelSpec
from harness.errors import CellError, UserError
from policies.headkv import Importance

PROFILES = Path(__file__).with_name("profiles")  # `bundled/<name>` is the file profiles/<name>.json
WEIGHTS = {".safetensors", ".bin"}


@dataclass(frozen=True)
class HeadProfile:
    """How much each query head retrieves. ``scores[layer][head]`` are the trials that were recorded, never none."""

    scores: tuple[tuple[tuple[float, ...], ...], ...]
    model: str | None = None  # the name it was measured under
    fingerprint: Mapping[str, str] | None = None

    @property
    def importance(self) -> Importance:
        """(L, H·G): mean over trials."""
        return tuple(tuple(fsum(trials) / len(trials) for trials in layer) for layer in self.scores)


def with_profile(policy: Mapping[str, Any], model: ModelSpec) -> Mapping[str, Any]:
    """A policy's configuration whose head profile, if it names one, has been read and belongs to this model.

    Raises `CellError` for another model's profile and `UserError` for a file that is none.
    """
    allocator = policy.get("allocator")
    path = allocator.get("profile") if isinstance(allocator, Mapping) else None
    if not isinstance(allocator, Mapping) or not isinstance(path, str):
        return policy
    profile = read(path)
    if profile.fingerprint != identity(model) and not allocator.get("transfer"):
        raise CellError(
            f"The head profile {path} was measured on {profile.model or 'a model that it does not name'}, not on this "
            f"{model.name}: make one with 'python -m harness profile model={model.name} kind=r out=<file>' and set "
            "policy.allocator.profile=<file>, or accept it with +policy.allocator.transfer=true."
        )
    return {**policy, "allocator": {**allocator, "profile": profile.importance}}


def identity(model: ModelSpec) -> dict[str, str]:
    """What makes it this model, whatever the dtype: weights and layout of a folder, or id and revision on the hub."""
    folder = model.folder
    if folder is None:
        return {"hub": model.path, "revision": model.revision or "main"}
    files = (file for file in folder.iterdir() if file.suffix in WEIGHTS or file.name == "config.json")
    return {"content": fingerprint.hash_files(tuple(files))}


def read(path: str) -> HeadProfile:
    """Raises `UserError` for a file that is missing or is no profile."""
    file = (
        PROFILES / f"{path.removeprefix('bundled/')}.json" if path.startswith("bundled/") else Path(path).expanduser()
    )
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            f"There is no head profile {path}: make one with 'python -m harness profile', or correct "
            "policy.allocator.profile."
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(f"The head profile {path} cannot be read as JSON: {error}.") from error
    return _parsed(content, path)


def write(file: Path, scores: Sequence[Sequence[Sequence[float]]], provenance: Mapping[str, Any]) -> None:
    """``scores[layer][head]`` and where they come from; complete, or not there at all."""
    heads = {
        f"{number}-{head}": [round(score, 6) for score in trials]
        for number, layer in enumerate(scores)
        for head, trials in enumerate(layer)
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in {**provenance, **heads}.items()]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def _parsed(content: Any, path: str) -> HeadProfile:
    heads = {key: value for key, value in content.items() if "-" in key} if isinstance(content, dict) else {}
    try:
        places = {tuple(map(int, key.split("-"))): tuple(map(float, value)) for key, value in heads.items()}
        layers, width = (max(numbers) + 1 for numbers in zip(*places, strict=True))
        scores = tuple(tuple(places[layer, head] for head in range(width)) for layer in range(layers))
    except (TypeError, ValueError, KeyError) as error:
        raise UserError(
            f"{path} is no head profile: it needs a key 'layer-head' with a list of scores for every query head."
        ) from error
    trials = [score for layer in scores for head in layer for score in (head or (float("nan"),))]
    if not all(isfinite(score) and score >= 0 for score in trials) or not any(trials):
        raise UserError(f"{path} is no head profile: every head needs scores of 0 or more, and one has to be above 0.")
    return HeadProfile(scores, content.get("model"), content.get("fingerprint"))
