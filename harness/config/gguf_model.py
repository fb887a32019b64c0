"""GGUF files: llama.cpp's format, with weights, configuration, tokenizer and chat format in one file.

transformers reads them, half a minute for a small model at every start, and reads some things differently from the
original model. A file is therefore converted once, into folders that load like any other model's: its description
(configuration and tokenizer), and its weights in the type that a run asks for. What is put right in between: numbers of
the configuration are decimals of a float32 (1e-05 is 9.999999747e-06), digits are not split off from what stands before
them, and a model read from such a file cannot be saved, so its weights go into a new model of the same configuration.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.atomic_files import is_left_behind, temporary_name
from harness.config.identity import hash_files
from harness.console import say
from harness.errors import UserError

NEEDED = ("gguf", "accelerate")  # packages with which transformers reads such files
LONGEST = 24 * 3600  # seconds that a conversion may take on another machine, whose processes cannot be asked
FORMAT = 1  # raised whenever files are converted differently
# Values of tokenizer.ggml.pre whose tokenizers make a word of every digit before they split by the rules of GPT-2, of
# which transformers 5.23 knows none. Source: the table in llama.cpp's src/llama-vocab.cpp.
DIGITS_APART = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")


def described(file: Path) -> Path:
    """The folder with the file's configuration and tokenizer, made at the first call.

    Raises `UserError` where the file is damaged, or where transformers cannot read its architecture.
    """
    return _once(file, "description", lambda folder: _write_description(file, folder))


def with_weights(file: Path, name: str, dtype: torch.dtype) -> Path:
    """The folder with the file's weights too, dequantised to ``dtype``, called ``name``. Raises as `described` does."""
    return _once(file, name, lambda folder: _write_weights(file, folder, dtype))


def _once(file: Path, what: str, write: Callable[[Path], None]) -> Path:
    """What ``write`` makes of this content, in the cache; whole or not there, whoever else writes the same."""
    folder = cache_folder() / f"{hash_files((file,))}-{FORMAT}-{what}"
    if folder.is_dir():
        return folder
    say(f"{file.name}: converting its {what} once, into {folder}.")
    unfinished = temporary_name(folder, "part")
    try:
        unfinished.mkdir(parents=True)
        _remove_leftovers(folder.parent)
        write(unfinished)
        if not folder.is_dir():
            unfinished.rename(folder)
    except OSError as error:
        if not folder.is_dir():  # else another process was faster
            raise UserError(
                f"{file.name} cannot be converted into {folder.parent} ({error.strerror or error}): make room, or "
                "name another folder in KVREPLICA_CACHE."
            ) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _remove_leftovers(cache: Path) -> None:
    """Remove what killed conversions have left, of any file; what another process is writing now stays."""
    for unfinished in cache.glob(".*.part"):
        if is_left_behind(unfinished, after=LONGEST):
            shutil.rmtree(unfinished, ignore_errors=True)


def cache_folder() -> Path:
    """Where converted models are: ``gguf`` in KVREPLICA_CACHE, or in the user's own cache."""
    return Path(os.environ.get("KVREPLICA_CACHE") or Path.home() / ".cache" / "kvreplica") / "gguf"


def _write_description(file: Path, folder: Path) -> None:
    fields = _text_fields(file)
    transformers = importlib.import_module("transformers")
    try:
        config = transformers.AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
    except (ValueError, KeyError):
        raise UserError(
            f"{file} holds a model of the architecture '{fields['general.architecture']}', which transformers "
            f"{transformers.__version__} cannot read from a GGUF file: use its original weights, as a folder or by "
            "their id on the hub."
        ) from None
    for name, value in config.to_dict().items():
        if isinstance(value, (float, dict)):
            setattr(config, name, shortest(value))
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, config=config)
    if fields.get("tokenizer.ggml.pre") in DIGITS_APART:
        words = importlib.import_module("tokenizers.pre_tokenizers")
        backend = tokenizer.backend_tokenizer
        backend.pre_tokenizer = words.Sequence([words.Digits(individual_digits=True), backend.pre_tokenizer])
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _write_weights(file: Path, folder: Path, dtype: torch.dtype) -> None:
    transformers = importlib.import_module("transformers")
    description = described(file)
    config = transformers.AutoConfig.from_pretrained(description)
    kind = transformers.AutoModelForCausalLM
    with redirect_stderr(io.StringIO()):  # a progress bar of its own, which no setting of transformers switches off
        read = kind.from_pretrained(file.parent, gguf_file=file.name, config=config, dtype=dtype)
    with importlib.import_module("transformers.initialization").no_init_weights():
        model = kind.from_config(config, dtype=dtype)
    model.load_state_dict(read.state_dict())
    model.tie_weights()  # what the embedding and the output share is stored once
    shutil.copytree(description, folder, dirs_exist_ok=True)
    model.save_pretrained(folder)


def shortest(value: Any) -> Any:
    """A float32 as the shortest decimal that stands for it, within dictionaries too; other values as they are."""
    if isinstance(value, dict):
        return {name: shortest(inner) for name, inner in value.items()}
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _text_fields(file: Path) -> dict[str, str]:
    """The settings of the file that are texts. Reading them finds a file that is damaged or cut off."""
    if missing := [package for package in NEEDED if importlib.util.find_spec(package) is None]:
        raise UserError(f"{file} is read with the package {missing[0]}: pip install {' '.join(missing)}.")
    gguf = importlib.import_module("gguf")
    try:
        fields = gguf.GGUFReader(file).fields
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        raise UserError(
            f"{file} is no complete GGUF file ({type(error).__name__}: {error}): it is damaged or cut off. "
            "Fetch it again."
        ) from None
    texts = {name: field for name, field in fields.items() if field.types == [gguf.GGUFValueType.STRING]}
    return {name: str(field.contents()) for name, field in texts.items()}
