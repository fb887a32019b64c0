"""Rows as reports use them: checked, with invalid ones marked."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from harness.errors import UserError

# Scores are comparable only within one context: everything else that changes outputs is policy or budget.
CONTEXT = ("model", "prompt", "block_size", "dtype", "seed")
PROVENANCE = ("git", "versions", "hardware", "device", "created")
_IDENTITY = ("cell_id", "policy", "budget", "task", "config")
_SAMPLE = ("sample_id", "metric", "value", "weight", "prediction", "reference", "document", "invalid")
LEDGER_COLUMNS = (
    "slots_requested",
    "slots_kept_max",
    "slots_kept_mean",
    "slots_peak",
    "kv_bytes",
    "state_bytes",
    "tokens_evicted",
    "coverage",
)
_SAMPLE_TEXT = ("sample_id", "metric", "prediction", "reference", "document", "invalid")
_TEXT = ("model", "prompt", "dtype", *PROVENANCE, *_IDENTITY, *_SAMPLE_TEXT)
_NUMBERS = ("block_size", "seed")


def checked_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """A copy with gaps filled, the columns ``cluster`` and ``dense``, and unusable scores marked invalid.

    Raises `UserError` for rows that no honest table can be made of.
    """
    if not isinstance(rows, pd.DataFrame):
        raise UserError(f"Rows are a pandas frame, as load_rows or run gives it, not {type(rows).__name__}.")
    if rows.empty:
        raise UserError("There are no rows to report: run at least one cell, or check the filter that left none.")
    required = (*_IDENTITY, *CONTEXT, *PROVENANCE, *_SAMPLE, *LEDGER_COLUMNS)
    missing = [name for name in required if name not in rows.columns]
    if missing:
        raise UserError(f"The rows lack columns of the results schema: {', '.join(missing)}.")
    out = rows.reset_index(drop=True)
    for name in _TEXT:
        if pd.api.types.infer_dtype(out[name], skipna=False) == "string":
            continue
        given = zip(out[name].tolist(), out[name].notna(), strict=True)
        out[name] = pd.Series([str(value) if known else "" for value, known in given], out.index, dtype=object)
    for name in _NUMBERS:
        out[name] = _numbers(out, name).fillna(-1).astype(int)
    repeated = out[out.duplicated(["cell_id", "sample_id", "metric"])]
    if not repeated.empty:
        first = repeated.iloc[0]
        raise UserError(
            f"{len(repeated)} rows repeat another row's cell, sample and metric, the first of them "
            f"{first['cell_id']}, {first['sample_id']}, {first['metric']}; "
            "counted twice they would narrow every interval."
        )
    out["cluster"] = cluster_names(out["sample_id"], out["document"])
    out["slots_requested"] = _numbers(out, "slots_requested").fillna(-1)
    out["dense"] = out["slots_requested"] < 0
    _mark_invalid(out, ~np.isfinite(_numbers(out, "value").to_numpy(float)), "the score is not a finite number")
    _mark_invalid(out, ~(_numbers(out, "weight").to_numpy(float) > 0), "the weight is not a positive number")
    return with_plain_texts(out)


def cluster_names(samples: Iterable[object], documents: pd.Series) -> list[str]:
    """The cluster of each sample: its document, since samples of one may be dependent, or, where none is named, the
    sample itself."""
    pairs = zip(samples, documents.astype(object).fillna(""), strict=True)  # Arrow's texts are slow one by one
    return [f"document {document}" if document != "" else f"sample {sample}" for sample, document in pairs]


def with_plain_texts(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with their texts as Python's own: single ones are asked for often, and cost less than Arrow's.

    Columns of one type lie together, so that parts of the rows are taken in few pieces.
    """
    texts = {name: object for name in rows.columns if isinstance(rows[name].dtype, pd.StringDtype)}
    return rows.astype(texts).copy()


def _numbers(rows: pd.DataFrame, name: str) -> pd.Series:
    try:
        return pd.to_numeric(rows[name])
    except (TypeError, ValueError) as error:
        raise UserError(f"The column {name} of the rows holds what is no number: {error}.") from error


def _mark_invalid(rows: pd.DataFrame, wrong: np.ndarray, sentence: str) -> None:
    rows.loc[wrong & (rows["invalid"] == "").to_numpy(), "invalid"] = sentence


def invalid_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that broke an invariant."""
    return rows[rows["invalid"] != ""]


def valid_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of cells without any invalid row: a cell that broke an invariant once is left out whole."""
    return rows[~rows["cell_id"].isin(invalid_rows(rows)["cell_id"])]


def invalid_messages(rows: pd.DataFrame) -> list[str]:
    """The cells that broke an invariant, as sentences; empty if none did."""
    accepted = checked_rows(rows)
    return [
        f"Invalid, and left out of tables and figures: {', '.join(sorted(set(part['policy'])))}. {sentence}"
        for sentence, part in accepted[accepted["invalid"] != ""].groupby("invalid")
    ]
