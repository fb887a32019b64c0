"""GGUF files: llama.cpp's format, with weights, configuration, tokenizer and chat format in one file.

transformers reads them; what it reads differently from the original model is put right here. Numbers of the
configuration are decimals of a float32 (1e-05 is 9.999999747e-06), digits are not split off from what stands before
them, and a model read from such a file cannot be saved: its weights go into a new model of the same configuration.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import io
from contextlib import redirect_stderr
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from harness.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NEEDED = ("gguf", "accelerate")  # packages with which transformers reads such files
# Values of tokenizer.ggml.pre whose tokenizers make a word of every digit before they split by the rules of GPT-2, of
# which transformers 5.23 knows none. Source: the table in llama.cpp's src/llama-vocab.cpp.
DIGITS_APART = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")


def gguf_config(file: Path) -> Any:
    """The model's configuration. Raises `UserError` where the file is damaged or transformers cannot read it."""
    return copy.deepcopy(_config(file, file.stat().st_mtime_ns))


def gguf_tokenizer(file: Path) -> Any:
    """The tokenizer with its chat format. Raises `UserError` as `gguf_config` does."""
    config = gguf_config(file)
    kind = importlib.import_module("transformers").AutoTokenizer
    tokenizer = kind.from_pretrained(file.parent, gguf_file=file.name, config=config)
    if _text_fields(file, file.stat().st_mtime_ns).get("tokenizer.ggml.pre") in DIGITS_APART:
        words = importlib.import_module("tokenizers.pre_tokenizers")
        backend = tokenizer.backend_tokenizer
        backend.pre_tokenizer = words.Sequence([words.Digits(individual_digits=True), backend.pre_tokenizer])
    return tokenizer


def gguf_weights(file: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The model, dequantised to ``dtype``, as if it came from a folder. Raises `UserError` as `gguf_config` does."""
    kind = importlib.import_module("transformers").AutoModelForCausalLM
    config = gguf_config(file)
    with redirect_stderr(io.StringIO()):  # a progress bar of its own, which no setting of transformers switches off
        read = kind.from_pretrained(file.parent, gguf_file=file.name, config=config, dtype=dtype)
    with importlib.import_module("transformers.initialization").no_init_weights():
        model: PreTrainedModel = kind.from_config(config, dtype=dtype)
    model.load_state_dict(read.state_dict())
    return model


@cache
def _config(file: Path, modified: int) -> Any:
    """Read once: a pass over a vocabulary takes seconds. ``modified`` tells the versions of a file apart."""
    architecture = _text_fields(file, modified)["general.architecture"]
    transformers = importlib.import_module("transformers")
    try:
        config = transformers.AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
    except (ValueError, KeyError):
        raise UserError(
            f"{file} holds a model of the architecture '{architecture}', which transformers {transformers.__version__} "
            "cannot read from a GGUF file: use its original weights, as a folder or by their id on the hub."
        ) from None
    for name, value in config.to_dict().items():
        if isinstance(value, (float, dict)):
            setattr(config, name, shortest(value))
    return config


def shortest(value: Any) -> Any:
    """A float32 as the shortest decimal that stands for it, within dictionaries too; other values as they are."""
    if isinstance(value, dict):
        return {name: shortest(inner) for name, inner in value.items()}
    return float(str(np.float32(value))) if isinstance(value, float) else value


@cache
def _text_fields(file: Path, modified: int) -> dict[str, str]:
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
