"""A model object as a folder: rows have to say which weights they are of, and other processes load them from there."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from harness.atomic_files import not_written
from harness.config.model import DTYPES
from harness.errors import UserError

FOLDER = "models"  # in the results folder


def saved(model: object, tokenizer: Any, results_dir: Path) -> dict[str, str]:
    """The settings that choose ``model``, which is saved under ``<results_dir>/models/<hash of its weights>`` first.

    The same weights are saved once. Raises `UserError` for what is no transformers model, for a type that no
    configuration has, where the tokenizer is missing, and where the folder cannot be written.
    """
    if not isinstance(model, PreTrainedModel):
        raise UserError(
            f"model= takes a name, a folder or a transformers model, not {type(model).__name__}: save it as a folder "
            "that transformers can load, and give that."
        )
    if tokenizer is None:
        raise UserError("A model object comes without its tokenizer: add tokenizer=<its tokenizer>.")
    dtype = next((name for name, kind in DTYPES.items() if kind == model.dtype), "")
    if not dtype:
        raise UserError(f"The model computes in {model.dtype}: convert it to one of {', '.join(DTYPES)} first.")
    name = Path(str(getattr(model.config, "_name_or_path", ""))).name or type(model).__name__
    folder = results_dir / FOLDER / _hash_of(model)
    if not folder.exists():
        _save(model, tokenizer, folder)
    return {"path": str(folder.resolve()), "name": name, "dtype": dtype}


def _hash_of(model: PreTrainedModel) -> str:
    """16 hex digits of the configuration and all weights."""
    digest = hashlib.sha256(json.dumps(model.config.to_dict(), sort_keys=True, default=str).encode())
    for name, weight in sorted(model.state_dict().items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(memoryview(weight.detach().cpu().reshape(-1).view(torch.uint8).numpy()).cast("B"))
    return digest.hexdigest()[:16]


def _save(model: PreTrainedModel, tokenizer: Any, folder: Path) -> None:
    """Beside its place first, so that a folder of this name is always whole."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".saving-", dir=folder.parent) as beside:
            unfinished = Path(beside) / folder.name
            try:
                model.save_pretrained(unfinished)
            except (ValueError, NotImplementedError, RuntimeError) as error:  # quantized, or read from a GGUF file
                raise UserError(
                    f"This model cannot be saved ({error}): give the folder or file that it came from."
                ) from error
            tokenizer.save_pretrained(unfinished)
            unfinished.rename(folder)
    except OSError as error:
        if not folder.exists():  # another process has saved the same weights meanwhile
            raise not_written(folder, error) from error
