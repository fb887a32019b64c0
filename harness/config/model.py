"""Models and tokenizers: shipped with the package, in a folder, or in the local hub cache. Never fetched silently.

Also what depends on the device that a model runs on: which device, and whether it computes in the model's dtype.
"""

from __future__ import annotations

import importlib
import importlib.util
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from harness.config import gguf_model, model_files
from harness.config.type_check import check_names, check_settings
from harness.errors import MissingInputError, UserError
from policies.view import ModelShape

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class ModelSpec:
    """Which model, exactly. ``path`` is ``bundled/<name>``, a folder, a GGUF file, or a hub id."""

    name: str
    path: str
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"  # auto: what this machine is good at
    revision: str | None = None
    gguf_file: str | None = None  # the file of a folder or hub repository that holds the model, if it is a GGUF file
    fetch: str | None = None  # the command that fetches the model, where it is not 'hf download'
    gated: bool = False  # whether the hub requires that its licence is accepted
    download: bool = False  # whether missing files may be downloaded from the hub
    chat: bool | None = None  # whether chat tasks use the tokenizer's chat format; None = where it has one
    device_map: str | None = None  # accelerate's, such as auto, for models that do not fit one GPU
    double_bos: bool = False  # begin chat prompts with the beginning-of-text token twice (AdaKV's released code)

    def __post_init__(self) -> None:
        if self.dtype == "auto":  # cells are named by the type that they are computed in
            object.__setattr__(self, "dtype", auto_dtype())

    @staticmethod
    def parse(config: Mapping[str, Any]) -> ModelSpec:
        """From the ``model`` group. Raises `UserError` for a missing path or an unknown dtype or key."""
        check_names(config, list(ModelSpec.__dataclass_fields__), "The model")
        if not config.get("path"):
            raise UserError(
                "model=hf needs to know which model: add model.path=<folder or hub id>, for example "
                "model.path=Qwen/Qwen2.5-3B-Instruct."
            )
        name = config.get("name")
        if name is None:
            name = Path(str(config["path"]).removesuffix(model_files.GGUF)).name
        settings = {**config, "name": name}
        check_settings(ModelSpec, settings, "model")
        return ModelSpec(**settings)

    @property
    def folder(self) -> Path | None:
        """The local folder that holds the model, or None for a hub id."""
        return model_files.model_folder(self.path)

    @property
    def gguf(self) -> Path | None:
        """The GGUF file that holds the model, or None where it is no such file or not on this machine."""
        return model_files.gguf_model(self.path, self.gguf_file, self.revision)

    @property
    def location(self) -> str:
        """What transformers gets as the model's name; of a GGUF file the folder with its description."""
        return str(gguf_model.described(self.gguf) if self.gguf else self.folder or self.path)

    @property
    def weights_location(self) -> str:
        """The same for the weights, which a GGUF file has in a folder of their own for each dtype."""
        if self.gguf is None:
            return self.location
        return str(gguf_model.with_weights(self.gguf, self.dtype, DTYPES[self.dtype]))

    def identity(self) -> dict[str, str]:
        """The fields that change outputs: content of files, or id and commit on the hub; dtype and chat format."""
        how = {"dtype": self.dtype, "chat": str(self.chat), "double_bos": str(self.double_bos)}
        return {**model_files.model_version(self.path, self.revision, self.gguf_file), **how}

    def config(self) -> Any:
        """The model's configuration, without its weights."""
        return self._fetch("AutoConfig", self.location)

    def shape(self) -> ModelShape:
        """Layers and heads, read without the weights."""
        config = self.config().get_text_config()
        heads = config.num_attention_heads
        return ModelShape(config.num_hidden_layers, getattr(config, "num_key_value_heads", None) or heads, heads)

    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self._fetch("AutoTokenizer", self.location)

    def load(self, device: str) -> PreTrainedModel:
        """Weights on the device, in evaluation mode; over several devices where there is a ``device_map``.

        Raises `UserError` where the weights do not belong to the configuration, and for a ``device_map`` where
        accelerate is missing.
        """
        if self.device_map is not None:
            if importlib.util.find_spec("accelerate") is None:
                raise UserError(f"model.device_map={self.device_map} needs accelerate: pip install accelerate.")
            return self._with_weights(device_map=self.device_map).eval()
        return self._with_weights().to(device).eval()  # type: ignore[arg-type]

    def _with_weights(self, **options: Any) -> PreTrainedModel:
        """The model with the weights of its files. transformers fills in what is missing there with random numbers,
        so that a configuration beside the weights of another model would give rows of no model at all.
        """
        logging = importlib.import_module("transformers.utils.logging")
        logging.disable_progress_bar()
        before = logging.get_verbosity()
        logging.set_verbosity_error()  # what it would warn of is an error here
        try:
            model, found = self._fetch(
                "AutoModelForCausalLM",
                self.weights_location,
                dtype=DTYPES[self.dtype],
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **options,
            )
        finally:
            logging.set_verbosity(before)
        for what in ("missing", "unexpected", "mismatched"):
            if names := sorted(str(each[0] if isinstance(each, tuple) else each) for each in found[f"{what}_keys"]):
                raise UserError(
                    f"The weights of model {self.name} are not those that its config.json describes: {len(names)} are "
                    f"{what}, such as {names[0]}. Restore both from the same model."
                )
        loaded: PreTrainedModel = model
        return loaded

    def _fetch(self, kind: str, location: str, **options: Any) -> Any:
        """What transformers' class ``kind`` loads from there. Raises `UserError` where the model is not here."""
        loader = getattr(importlib.import_module("transformers"), kind)
        try:
            return loader.from_pretrained(
                location,
                revision=self.revision,
                local_files_only=not self.download,
                trust_remote_code=False,  # else transformers asks on a terminal, and "y" runs what lies in the folder
                **options,
            )
        except (OSError, ValueError) as error:
            raise (MissingInputError if self._can_be_fetched else UserError)(self._missing_message(error)) from error
        except Exception as error:  # of a damaged file each reader has its own: safetensors, tokenizers, pickle, JSON
            raise UserError(self._missing_message(error)) from error

    @property
    def _can_be_fetched(self) -> bool:
        """Whether it is a model of the hub or of a package, and not a path that leads nowhere."""
        is_path = self.path.endswith(model_files.GGUF) or self.path.startswith(("/", "./", "../", "~"))
        return self.folder is None and (self.fetch is not None or not is_path)

    def _missing_message(self, error: Exception) -> str:
        if self.folder is not None:
            return f"The folder {self.location} holds no model that transformers can load: {_first_line(error)}"
        if not isinstance(error, OSError | ValueError):
            return f"Model {self.path} cannot be loaded ({type(error).__name__}: {_first_line(error)})."
        if self.fetch is not None:
            return f"Model {self.name} is not on this machine: fetch it with '{self.fetch}'."
        if self.path.endswith(model_files.GGUF):
            return f"There is no file {self.path}: correct model.path."
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
    """The model's stop tokens, from its generation config. Raises `UserError` where they are no tokens."""
    stops = model.generation_config.eos_token_id if model.generation_config is not None else None
    listed = () if stops is None else (stops,) if type(stops) is int else stops
    if not isinstance(listed, (list, tuple)) or not all(type(stop) is int for stop in listed):
        raise UserError(
            f"The stop tokens of the model are {stops!r}, not a number or a list of numbers: mend eos_token_id in its "
            "generation_config.json."
        )
    return tuple(listed)


def pick_device(requested: str) -> str:
    """``auto`` takes CUDA where there is one. Raises `UserError` where the requested device is missing."""
    if requested == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if requested.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"device={requested} is not on this machine: use device=cpu, or install a CUDA build of torch.")
    return requested


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def has_native_dtype(dtype: torch.dtype, device: str | torch.device) -> bool:
    """Whether a device has instructions for products of this type; true of float32."""
    if dtype not in (torch.bfloat16, torch.float16):
        return True
    if torch.device(device).type == "cpu":  # what torch asks before it leaves a product to oneDNN
        if not torch._C._has_mkldnn:  # as in builds for Apple's processors, which have no oneDNN
            return False
        mkldnn = torch.ops.mkldnn
        supported = mkldnn._is_mkldnn_bf16_supported if dtype == torch.bfloat16 else mkldnn._is_mkldnn_fp16_supported
        return bool(supported())
    if torch.device(device).type == "cuda" and dtype == torch.bfloat16:
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return True


def auto_dtype() -> Literal["float32", "bfloat16", "float16"]:
    """What ``model.dtype=auto`` means here: 16 bits on a GPU, and on a processor with instructions for bfloat16.

    AVX-512 alone is not enough: products of bfloat16 are then made of float32 ones (see `dtype_advice`).
    """
    if torch.cuda.is_available():
        return "bfloat16" if has_native_dtype(torch.bfloat16, "cuda") else "float16"
    if platform.machine().lower() in ("x86_64", "amd64"):
        return "bfloat16" if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported() else "float32"
    return "bfloat16" if has_native_dtype(torch.bfloat16, "cpu") else "float32"


def dtype_advice(model: str, dtype: torch.dtype, device: str | torch.device) -> str:
    """One sentence where a model computes in a type that its device only emulates; empty elsewhere.

    Measured on an AVX2 processor (torch 2.13): bfloat16 and float16 take eight times as long as float32 in the linear
    layers of a prompt and twice as long in those of a decode step.
    """
    if has_native_dtype(dtype, device):
        return ""
    name, kind = str(dtype).removeprefix("torch."), "processor" if torch.device(device).type == "cpu" else "GPU"
    return (
        f"Model {model} computes in {name}, which this {kind} has no instructions for: with model.dtype=float32 it "
        "reads prompts several times as fast, in cells of their own."
    )
