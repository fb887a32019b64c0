"""BERTScore (Zhang et al., 2020), equal to bert-score 0.3.13, on transformers 5.

Our own embedding and greedy matching, because the package on transformers 5 fails on empty texts (it calls
``build_inputs_with_special_tokens``, which is gone) and on tokenizers that state no greatest length (OverflowError),
and quietly changes RoBERTa's scores: its ``add_prefix_space`` is ignored there, so that the first word is embedded as
if it went on from another. Here it has its blank. No idf weights and no rescaling, which is how HashEvict uses it
(tasks.md 5.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tasks.base import TaskError, import_package

_SPARE_POSITIONS = 2  # RoBERTa numbers positions from 2


class BertScores(NamedTuple):
    """Means of the best cosine similarity of each token, and their harmonic mean, each in [0, 1]."""

    precision: float  # over the prediction's tokens
    recall: float  # over the reference's tokens
    f1: float


@dataclass(frozen=True)
class BertScore:
    """Similarity of the contextual embeddings of two texts.

    ``model`` is a folder or a hub id; nothing is ever downloaded. Embeddings are the output of layer ``layer``: 17 is
    bert-score's choice for roberta-large, its table has others (bert-base-uncased 9, roberta-base 10). The model is
    loaded once per process, in float32, and without the layers above.
    """

    model: str = "roberta-large"
    layer: int = 17
    device: str = "cpu"

    def check(self) -> None:
        """Raises `TaskError`, with the command that helps, where the model cannot be loaded from this machine."""
        _encoder(self.model, self.layer, self.device)

    def score(self, prediction: str, reference: str) -> BertScores:
        """Of one pair; all 0 where either text is empty. Texts longer than the model's limit are cut at their ends.

        Tokens match the other text's special tokens too, but those carry no weight of their own: as in the package.
        Raises `TaskError` as `check` does.
        """
        encoder = _encoder(self.model, self.layer, self.device)
        if not prediction.strip() or not reference.strip():
            return BertScores(0.0, 0.0, 0.0)
        said, said_counts = encoder.embed(prediction)
        meant, meant_counts = encoder.embed(reference)
        if not (said_counts.any() and meant_counts.any()):  # nothing but special tokens
            return BertScores(0.0, 0.0, 0.0)
        similarity = said @ meant.T
        precision = _unit(similarity.amax(1)[said_counts].mean())
        recall = _unit(similarity.amax(0)[meant_counts].mean())
        both = precision + recall
        return BertScores(precision, recall, 2 * precision * recall / both if both else 0.0)


def _unit(value: Any) -> float:
    return min(max(float(value), 0.0), 1.0)  # cosines pass 1 by rounding, and random models reach below 0


@dataclass(frozen=True)
class _Encoder:
    tokenizer: Any
    model: Any
    limit: int  # tokens, special ones included
    blank: str  # what goes before a text

    def embed(self, text: str) -> tuple[Any, Any]:
        """Unit vectors of all tokens [tokens, width], and which of them count [tokens]."""
        torch = import_package("torch", "torch", "BERTScore")
        encoded = self.tokenizer(
            self.blank + text.strip(), truncation=True, max_length=self.limit, return_tensors="pt"
        ).to(self.model.device)
        with torch.no_grad():
            vectors = self.model(**encoded).last_hidden_state[0]
        ids = encoded["input_ids"][0]
        counts = (ids != self.tokenizer.cls_token_id) & (ids != self.tokenizer.sep_token_id)
        return vectors / vectors.norm(dim=-1, keepdim=True), counts


@lru_cache(maxsize=2)
def _encoder(model: str, layer: int, device: str) -> _Encoder:
    torch = import_package("torch", "torch", "BERTScore")
    config = _local("AutoConfig", model)
    if not 1 <= layer <= config.num_hidden_layers:
        raise TaskError(
            f"BERTScore asks for layer {layer}, but {model} has layers 1 to {config.num_hidden_layers}: choose one of "
            "them (bert-score's table has a tested one for many models)."
        )
    tokenizer = _local("AutoTokenizer", model)
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise TaskError(f"BERTScore needs an encoder like BERT or RoBERTa, and {model} is none: give another model.")
    network = _local("AutoModel", model, num_hidden_layers=layer, dtype=torch.float32)
    stated, positions = tokenizer.model_max_length, config.max_position_embeddings
    limit = stated if stated <= positions else positions - _SPARE_POSITIONS
    blank = " " if config.model_type == "roberta" else ""
    return _Encoder(tokenizer, network.to(device).eval(), limit, blank)


def _local(kind: str, model: str, **options: Any) -> Any:
    transformers = import_package("transformers", "transformers", "BERTScore")
    folder = Path(model).expanduser()
    location = str(folder) if folder.is_dir() else model
    try:
        with _quiet(transformers.utils.logging):
            return getattr(transformers, kind).from_pretrained(location, local_files_only=True, **options)
    except (OSError, ValueError, KeyError) as error:
        raise TaskError(_absence(model, folder, error)) from error


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Without the report on weights that are left out on purpose."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _absence(model: str, folder: Path, error: Exception) -> str:
    if folder.is_dir():
        reason = str(error).partition("\n")[0]
        return f"The folder {model} holds no model that BERTScore can load: {reason}"
    if model.startswith(("/", "./", "../", "~")):
        return f"There is no folder {model} with BERTScore's model: correct the path, or give a hub id (roberta-large)."
    return (
        f"BERTScore's model {model} is not on this machine: fetch it with 'hf download {model}', or give the path of a "
        "folder that has it."
    )
