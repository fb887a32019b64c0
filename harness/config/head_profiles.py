"""What was measured of a model's heads: files with numbers for each head, read for the policies that need them.

A file is JSON with one key ``layer-head`` for each head, and where the numbers came from. Head profiles (HeadKV,
DuoAttention) have scores of every query head, filters (Q-Filters) a vector for every KV head.

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
from policies.qfilters import Filters

PROFILES = Path(__file__).with_name("profiles")  # `bundled/<name>` is the file profiles/<name>.json
WEIGHTS = {".safetensors", ".bin"}


@dataclass(frozen=True)
class HeadProfile:
    """Numbers of each head. ``scores[layer][head]``: of a query head's trials, never none, or a KV head's filter."""

    scores: tuple[tuple[tuple[float, ...], ...], ...]
    model: str | None = None  # the name it was measured under
    fingerprint: Mapping[str, str] | None = None

    @property
    def importance(self) -> Importance:
        """(L, H·G): mean over trials."""
        return tuple(tuple(fsum(trials) / len(trials) for trials in layer) for layer in self.scores)

    @property
    def filters(self) -> Filters:
        """(L, H, D)."""
        return self.scores


@dataclass(frozen=True)
class FileKind:
    """What a setting's file is called in messages, and the ``kind`` that makes one."""

    the: str
    a: str
    was: str
    kind: str


FILES = {
    "profile": FileKind("The head profile", "head profile", "was", "r"),
    "filters": FileKind("The filters", "file of filters", "were", "q"),
}  # by the setting that names the file


def with_profile(policy: Mapping[str, Any], model: ModelSpec) -> Mapping[str, Any]:
    """A policy's configuration whose head profile and filters, if it names any, were read and belong to this model.

    Raises `CellError` for those of another model and `UserError` for a file that holds none.
    """
    return {part: _with_numbers(spec, model, f"policy.{part}") for part, spec in policy.items()}


def _with_numbers(spec: Any, model: ModelSpec, key: str) -> Any:
    """A part's configuration, and that of the scorer it is over."""
    if not isinstance(spec, Mapping):
        return spec
    read_parts = {"base": _with_numbers(spec["base"], model, f"{key}.base")} if "base" in spec else {}
    for setting, file in FILES.items():
        path = spec.get(setting)
        if not isinstance(path, str):
            continue
        profile = read(path, setting)
        belongs = profile.fingerprint == identity(model) or (is_absent(model) and profile.model == model.name)
        if not belongs and not spec.get("transfer"):
            raise CellError(
                f"{file.the} {path} {file.was} measured on {profile.model or 'a model that it does not name'}, not on "
                f"this {model.name}: make one with 'python -m harness profile model={model.name} kind={file.kind} "
                f"out=<file>' and set {key}.{setting}=<file>, or accept it with +{key}.transfer=true."
            )
        read_parts[setting] = profile.importance if setting == "profile" else profile.filters
    return {**spec, **read_parts}


def identity(model: ModelSpec) -> dict[str, str]:
    """What makes it this model, whatever the dtype: weights and layout on the disk, or id and revision on the hub."""
    if model.gguf is not None:
        return {"content": fingerprint.hash_files((model.gguf,))}
    folder = model.folder
    if folder is None:
        return {"hub": model.path, "revision": model.revision or "main"}
    files = (file for file in folder.iterdir() if file.suffix in WEIGHTS or file.name == "config.json")
    return {"content": fingerprint.hash_files(tuple(files))}


def is_absent(model: ModelSpec) -> bool:
    """Whether a model that has a command of its own to fetch it is not here yet: what is missing is said by others."""
    return model.fetch is not None and model.folder is None and model.gguf is None


def read(path: str, setting: str = "profile") -> HeadProfile:
    """Raises `UserError` for a file that is missing or is not what ``setting`` names."""
    kind = FILES[setting]
    file = (
        PROFILES / f"{path.removeprefix('bundled/')}.json" if path.startswith("bundled/") else Path(path).expanduser()
    )
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            f"There is no {kind.a} {path}: make one with 'python -m harness profile kind={kind.kind}', or correct the "
            f"setting '{setting}' of the policy."
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{kind.the} {path} cannot be read as JSON: {error}.") from error
    return _parsed(content, path, setting)


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


def _parsed(content: Any, path: str, setting: str) -> HeadProfile:
    kind = FILES[setting]
    heads = {key: value for key, value in content.items() if "-" in key} if isinstance(content, dict) else {}
    try:
        places = {tuple(map(int, key.split("-"))): tuple(map(float, value)) for key, value in heads.items()}
        layers, width = (max(numbers) + 1 for numbers in zip(*places, strict=True))
        scores = tuple(tuple(places[layer, head] for head in range(width)) for layer in range(layers))
    except (TypeError, ValueError, KeyError) as error:
        raise UserError(
            f"{path} is no {kind.a}: it needs a key 'layer-head' with a list of numbers for every head."
        ) from error
    numbers = [number for layer in scores for head in layer for number in (head or (float("nan"),))]
    if setting == "filters" and (
        not all(map(isfinite, numbers)) or len({len(head) for layer in scores for head in layer}) > 1
    ):
        raise UserError(f"{path} is no {kind.a}: every KV head needs as many finite numbers as the others.")
    if setting == "profile" and (not all(isfinite(each) and each >= 0 for each in numbers) or not any(numbers)):
        raise UserError(f"{path} is no {kind.a}: every head needs scores of 0 or more, and one has to be above 0.")
    return HeadProfile(scores, content.get("model"), content.get("fingerprint"))
