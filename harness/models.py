"""Models and tokenizers: shipped with the package, in a folder, or in the local hub cache. Never fetched silently."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness import model_files
from harness.errors import UserError
from harness.model_files import BUNDLED
from harness.samples.wording import Wording
from policies import nearest
from policies.shape import ModelShape

if TYPE_CHECKING:  # its models take seconds to import, and commands that only name one need none of them
    from transformers import PreTrainedModel

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
__all__ = ["BUNDLED", "DTYPES", "ModelSpec", "eos_token_ids", "pick_device"]


@dataclass(frozen=True)
class ModelSpec:
    """Which model, exactly. ``path`` is ``bundled/<name>``, a folder, or a hub id."""

    name: str
    path: str
    dtype: str = "float32"
    revision: str | None = None
    gated: bool = False  # whether the hub asks for a licence first
    download: bool = False  # whether the hub may be asked at all
    chat: bool | None = None  # whether chat tasks use the tokenizer's chat format; None = where it has one
    device_map: str | None = None  # accelerate's, such as auto, for models that do not fit one GPU
    double_bos: bool = False  # begin chat prompts with the beginning-of-text token twice (AdaKV's released code)

    @staticmethod
    def parse(config: Mapping[str, Any]) -> ModelSpec:
        """From the ``model`` group. Raises `UserError` for a missing path or an unknown dtype or key."""
        known = ModelSpec.__dataclass_fields__
        for key in config:
            if key not in known:
                raise UserError(f"The model has no setting '{key}'. {nearest(key, known)}")
        if not config.get("path"):
            raise UserError(
                "model=hf needs to know which model: add model.path=<folder or hub id>, for example "
                "model.path=Qwen/Qwen2.5-3B-Instruct."
            )
        path = str(config["path"])
        spec = ModelSpec(**{**config, "path": path, "name": config.get("name") or Path(path).name})
        if spec.dtype not in DTYPES:
            raise UserError(f"model.dtype='{spec.dtype}' is not known. {nearest(spec.dtype, DTYPES)}")
        return spec

    @property
    def folder(self) -> Path | None:
        """The local folder that holds the model, or None for a hub id."""
        return model_files.folder_of(self.path)

    @property
    def location(self) -> str:
        """What transformers is asked for."""
        return str(self.folder or self.path)

    def identity(self) -> dict[str, str]:
        """The fields that change outputs: content of a folder, or id and commit on the hub; dtype, form of chat."""
        how = {"dtype": self.dtype, "chat": str(self.chat), "double_bos": str(self.double_bos)}
        return {**model_files.version(self.path, self.revision), **how}

    def config(self) -> Any:
        """The model's configuration, without its weights."""
        return self._fetch("AutoConfig")

    def shape(self) -> ModelShape:
        """Layers and heads, read without the weights."""
        config = self.config().get_text_config()
        heads = config.num_attention_heads
        return ModelShape(config.num_hidden_layers, getattr(config, "num_key_value_heads", None) or heads, heads)

    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self._fetch("AutoTokenizer")

    def wording(self) -> Wording:
        """How it is spoken to. Raises `UserError` where a chat format is asked for that the tokenizer does not have."""
        tokenizer = self.tokenizer()
        has_one = getattr(tokenizer, "chat_template", None) is not None
        if self.chat and not has_one:
            raise UserError(f"The tokenizer of model {self.name} has no chat format: set model.chat=false.")
        context = getattr(self.config().get_text_config(), "max_position_embeddings", None)
        return Wording(tokenizer, has_one if self.chat is None else self.chat, self.double_bos, context)

    def load(self, device: str) -> PreTrainedModel:
        """Weights on the device, in evaluation mode; over several devices where there is a ``device_map``.

        Raises `UserError` for a ``device_map`` where accelerate is missing.
        """
        importlib.import_module("transformers.utils.logging").disable_progress_bar()
        model: PreTrainedModel
        if self.device_map is not None:
            if importlib.util.find_spec("accelerate") is None:
                raise UserError(f"model.device_map={self.device_map} needs accelerate: pip install accelerate.")
            model = self._fetch("AutoModelForCausalLM", dtype=DTYPES[self.dtype], device_map=self.device_map)
            return model.eval()
        model = self._fetch("AutoModelForCausalLM", dtype=DTYPES[self.dtype])
        return model.to(device).eval()  # type: ignore[arg-type]

    def _fetch(self, kind: str, **options: Any) -> Any:
        """What transformers' class of that name loads."""
        loader = getattr(importlib.import_module("transformers"), kind)
        try:
            return loader.from_pretrained(
                self.location, revision=self.revision, local_files_only=not self.download, **options
            )
        except (OSError, ValueError) as error:
            raise UserError(self._absence(error)) from error

    def _absence(self, error: Exception) -> str:
        if self.folder is not None:
            return f"The folder {self.location} holds no model that transformers can load: {_first_line(error)}"
        if self.path.startswith(("/", "./", "../", "~")):
            return f"There is no folder {self.path}: correct model.path, or give a hub id such as Qwen/Qwen2.5-3B."
        licence = (
            f"accept its licence at https://huggingface.co/{self.path}, log in with 'hf auth login', then "
            if self.gated
            else ""
        )
        return (
            f"Model {self.path} is not on this machine: {licence}fetch it with 'hf download {self.path}', "
            "or point model.path at a folder that has it."
        )


def eos_token_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """The model's stop tokens, from its generation config."""
    stops = model.generation_config.eos_token_id if model.generation_config is not None else None
    return () if stops is None else (stops,) if isinstance(stops, int) else tuple(stops)


def pick_device(wanted: str) -> str:
    """``auto`` takes CUDA where there is one. Raises `UserError` where the wanted device is missing."""
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"device={wanted} is not on this machine: use device=cpu, or install a CUDA build of torch.")
    return wanted


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
