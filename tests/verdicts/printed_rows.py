"""Rows whose cell means are chosen numbers: what a replication without any error would have measured.

Scores of a sample have a difficulty that all cells share, so that differences of cells are paired as they are in a real
sweep. Right-or-wrong tasks get zeros and ones, others scores between 0 and 1, perplexities normal nats per token.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from scipy.special import expit, ndtri

from harness.papers.printed_cases import GEOMETRIC_MEAN, PrintedPlace, numbers_in_print
from harness.papers.published import cells_as_text, our_model, presets, row_metrics, task_labels
from harness.runner.estimate import published_lengths

Numbers = dict[PrintedPlace, float]

# LongBench's own sizes (Bai et al. 2024, Table 1): 200 but for these. BookSum: chapters of its test set. The others are
# those of the authors' code, from which the task files are made (conf/estimates.yaml).
SIZES = {
    "longbench/multifieldqa_en": 150,
    "longbench/lcc": 500,
    "longbench/repobench-p": 500,
    "book_perplexity": 1431,
}
RIGHT_OR_WRONG = (
    "longbench/trec", "longbench/lsht", "longbench/passage_count", "longbench/passage_retrieval_en",
    "longbench/passage_retrieval_zh", "needle/grid", "needle/fu", "lost_in_the_middle/buzz", "ruler/niah_multikey_1",
    "hashevict/gsm8k_multiple_choice", "hashevict/medqa_multiple_choice",
)  # fmt: skip
SHARED = 0.95  # of a sample's variance on the scale of its logit, common to all cells
STEEPNESS = 2.0  # of scores between 0 and 1: standard deviation of their logits
NATS = 0.02, 0.4  # standard deviations over samples: of a cell's own, and of the common difficulty
COLUMNS = ("coverage", "kv_bytes+state_bytes")  # of rows, beside their scores
READINGS = {"hashevict": "median", "buzz": "prompt_and_new"}  # what the papers' shares are shares of


def sample_count(task: str) -> int:
    """Samples that the paper used."""
    whole = task.partition("#")[0]
    own = SIZES.get(whole) or (200 if whole.startswith("longbench/") else published_lengths(whole)[0])
    return own // 3 if "#" in task else own  # three positions of the answer


@cache
def printed_and_figures(paper: str) -> Numbers:
    """The printed numbers as numbers of cells: averages and means of metrics told apart, figures in numbers."""
    found: Numbers = dict(numbers_in_print(paper))
    _tell_metrics_apart(found)
    _tell_tasks_apart(paper, found)
    found |= _figures(paper, found)
    kept = (place for place in found if "/" in place.task or place.task == "book_perplexity")
    return {place: found[place] for place in kept if place.metric in COLUMNS or row_metrics(place.metric)}


def _tell_metrics_apart(found: Numbers) -> None:
    """BUZZ prints the geometric mean alone where a method's scores are left out: all three are it."""
    for place, value in list(found.items()):
        if place.metric == GEOMETRIC_MEAN:
            each = [replace(place, metric=metric) for metric in ("rouge1", "rouge2", "rougeL")]
            if not all(metric in found for metric in each):
                found |= dict.fromkeys(each, value)


def _tell_tasks_apart(paper: str, found: Numbers) -> None:
    """Where an average alone is printed, its tasks are those of a method that has them, in proportion."""
    for place, average in list(found.items()):
        labels = task_labels(paper, place.task) if "/" not in place.task else ()
        cells = [replace(place, task=label) for label in labels]
        known = [found[cell] for cell in cells if cell in found]
        if len(labels) < 2 or len(known) == len(labels):
            continue
        if known:  # the others share what is left of the average
            rest = (average * len(labels) - sum(known)) / (len(labels) - len(known))
            found |= {cell: rest for cell in cells if cell not in found}
            continue
        other = next(
            each for each in (replace(place, policy=policy) for policy in ("keydiff", "kvec", "sink"))
            if all(replace(each, task=label) in found for label in labels)
        )  # fmt: skip
        own = np.mean([found[replace(other, task=label)] for label in labels])
        found |= {cell: found[replace(other, task=cell.task)] * average / float(own) for cell in cells}


def _figures(paper: str, printed: Numbers) -> Numbers:
    """What figures and captions without numbers say, in numbers that are made up from their sentences."""
    found: Numbers = {}

    def put(
        model: str, task: str, metric: str, budget: str, scores: Mapping[str, float], prompt: str = "", size: int = 0
    ):
        for policy, value in scores.items():
            at = ("full", "", 0) if policy == "dense" else (budget, prompt, size)
            found[PrintedPlace(our_model(model), policy, *at, task, metric)] = value

    if paper == "keydiff":
        needles = {"keydiff": 0.95, "tova/keydiff": 0.7, "sink": 0.65, "dense": 1.0}
        put("llama-3.2-3b-instruct", "needle/grid", "accuracy", "6144", needles, "blocked", 128)
        # Table 7 is a caption: whole prompts cost nearly nothing, whatever the method.
        for place, dense in printed.items():
            if place.policy == "dense" and place.task.startswith("longbench/"):
                for budget in ("2048", "4096", "6144", "8192"):
                    for policy in ("keydiff", "h2o/keydiff", "tova/keydiff", "sink", "snapkv/keydiff"):
                        found[replace(place, policy=policy, budget=budget, prompt="one_shot")] = dense
    if paper == "buzz":
        model, xsum = "llama-2-7b", "buzz/xsum"
        for metric in ("rouge1", "rouge2", "rougeL"):
            buzz = {
                budget: printed[PrintedPlace("llama2-7b", "buzz", budget, "", 0, xsum, metric)]
                for budget in ("60%", "50%", "40%", "30%", "20%", "10%")
            }
            put(model, xsum, metric, "", {"dense": buzz["40%"]})
            for budget, value in buzz.items():
                loss = {"60%": 0.9, "10%": 0.4}.get(budget, 0.7)
                put(model, xsum, metric, budget, {"buzz/swapped": value * loss, "buzz/no_max": value * 0.7})
        for place, own in {0: (0.5, 0.5, 0.5), 4: (0.5, 0.2, 0.25), 9: (0.5, 0.6, 0.6)}.items():
            scores = dict(zip(("buzz", "h2o/buzz", "sink/buzz"), own, strict=True)) | {"dense": 0.55}
            put(model, f"lost_in_the_middle/buzz#gold_at={place}", "exact_match", "300", scores)
        for budget in ("30%", "20%", "10%"):
            put(model, "buzz/self_bleu", "self_bleu", budget, {"dense": 0.5, "buzz": 0.45, "sink/buzz": 0.2})
    if paper == "hashevict":
        for budget in ("10%", "30%", "50%", "70%", "90%"):
            choice = {"hashevict/paper": 0.6, "l2/hashevict": 0.4, "dense": 0.5}
            put("llama-3-8b-instruct", "hashevict/gsm8k_multiple_choice", "accuracy", budget, choice)
            put("llama-3-8b-instruct", "hashevict/medqa_multiple_choice", "accuracy", budget, choice)
            needle = {"hashevict/paper": 0.5, "l2/hashevict": 0.2, "dense": 0.95}
            put("llama-3-8b-instruct", "ruler/niah_multikey_1", "string_match", budget, needle)
            words = {"hashevict/paper": 0.6, "l2/hashevict": 0.6, "dense": 0.6}
            put("llama-3-8b-instruct", "ruler/cwe", "string_match", budget, words)
            report = {"hashevict/paper": 0.15, "l2/hashevict": 0.15, "h2o/coldcompress": 0.3, "scissorhands": 0.3}
            put("llama-3.1-8b-instruct", "hashevict/gov_report", "rougeL", budget, report | {"dense": 0.3})
        found |= _cache_sizes()
    if paper == "kvec":
        needle = {"kvec": 0.982, "headkv_r": 0.982, "snapkv/kvec": 0.874, "dense": 1.0}
        put("llama-3.1-8b-instruct", "needle/fu", "accuracy", "1024", needle, "one_shot")
    return found


def _cache_sizes() -> Numbers:
    """HashEvict's Table 2, in billions of bytes."""
    lines = cells_as_text("hashevict.csv").query("table == 'Table 2' and metric == 'cache_gb' and method != 'dense'")
    return {
        PrintedPlace(
            our_model(line.model), presets("hashevict", line.method)[0], f"{line.budget}%", "", 0,
            task_labels("hashevict", line.task)[0], "kv_bytes+state_bytes",
        ): float(line.value)
        for line in lines.itertuples()
    }  # fmt: skip


def rows_of(
    paper: str, numbers: Mapping[PrintedPlace, float], seed: int, exact: bool = True, most: int = 10_000
) -> pd.DataFrame:
    """The rows of these cells. ``exact``: their means are the numbers themselves, else those of their distribution.

    ``most``: samples of a task at most.
    """
    cells: dict[PrintedPlace, dict[str, float]] = defaultdict(dict)
    for place, value in numbers.items():
        cells[replace(place, metric="")][place.metric] = value
    groups: dict[tuple[str, str], list[PrintedPlace]] = defaultdict(list)
    for cell in cells:
        groups[cell.model, cell.task].append(cell)
    rng = np.random.default_rng(seed)
    blocks: list[tuple[PrintedPlace, Mapping[str, float], np.ndarray]] = []
    for (_, task), members in sorted(groups.items()):
        count = min(most, sample_count(task))
        common, own = rng.standard_normal(count), rng.standard_normal((len(members), count))
        for cell in members:  # rows have a score, whatever column of them is compared
            if not set(cells[cell]) - set(COLUMNS):
                cells[cell]["official_score"] = 0.4
        for metric in sorted({name for cell in members for name in cells[cell]} - set(COLUMNS)):
            having = [i for i, cell in enumerate(members) if metric in cells[cell]]
            means = np.array([cells[members[i]][metric] for i in having])
            values = _scores(task, metric, means, common, own[having], exact)
            blocks += [
                (replace(members[i], metric=metric), cells[members[i]], scores)
                for i, scores in zip(having, values, strict=True)
            ]
    return _table(paper, blocks)


def _scores(task: str, metric: str, means: np.ndarray, common: np.ndarray, own: np.ndarray, exact: bool) -> np.ndarray:
    """(cells, samples): scores with these means."""
    if metric.startswith("ppl"):
        centred = own - own.mean(axis=1, keepdims=True) if exact else own
        return means[:, None] + NATS[1] * (common - common.mean() * exact) + NATS[0] * centred
    latent = math.sqrt(SHARED) * common + math.sqrt(1 - SHARED) * own
    if task.partition("#")[0] in RIGHT_OR_WRONG:
        if not exact:
            return (latent > -ndtri(means)[:, None]).astype(float)
        ranks = (-latent).argsort(axis=1).argsort(axis=1)
        return (ranks < np.rint(means * latent.shape[1])[:, None]).astype(float)
    over = latent if exact else math.sqrt(2) * _quantiles()[None, :]
    centre = np.log(means / (1 - means))
    for _ in range(12):  # the logit at which the mean score is the wanted one, by Newton's steps
        scores = expit(centre[:, None] + STEEPNESS * over)
        slope = (scores * (1 - scores)).mean(axis=1)
        centre = centre + np.clip((means - scores.mean(axis=1)) / slope, -2, 2)
    return expit(centre[:, None] + STEEPNESS * latent)


@cache
def _quantiles() -> np.ndarray:
    """Of the normal distribution, for means over it."""
    return ndtri((np.arange(400) + 0.5) / 400) / math.sqrt(2)


def _table(paper: str, blocks: Sequence[tuple[PrintedPlace, Mapping[str, float], np.ndarray]]) -> pd.DataFrame:
    """The tidy frame of blocks of rows: one cell and metric each, with the numbers of its columns and its scores."""
    sizes = [len(scores) for _, _, scores in blocks]
    place = np.repeat(np.arange(len(blocks)), sizes)

    def texts(each: Iterable[str]) -> pd.Categorical:
        codes, words = pd.factorize(np.array(list(each), dtype=object))
        return pd.Categorical.from_codes(codes[place], words)

    def floats(each: Iterable[float]) -> np.ndarray:
        return np.array(list(each))[place]

    tasks = [cell.task.partition("#") for cell, _, _ in blocks]
    reading = json.dumps({"budget": {"share": 0.5, "share_of": READINGS.get(paper, "prompt")}})
    samples = [[f"{part}{number}" for number in range(size)] for (_, _, part), size in zip(tasks, sizes, strict=True)]
    return pd.DataFrame(
        {
            "cell_id": texts(
                f"{cell.model}|{cell.cell}|{task}" for (cell, _, _), (task, _, _) in zip(blocks, tasks, strict=True)
            ),
            "sample_id": np.array([name for names in samples for name in names], dtype=object),
            "metric": texts(row_metrics(cell.metric)[-1] for cell, _, _ in blocks),
            "value": np.concatenate([scores for _, _, scores in blocks]),
            "weight": 1.0,
            "document": texts("" for _ in blocks),
            "invalid": texts("" for _ in blocks),
            "slots_requested": floats(
                -1.0 if cell.budget == "full" else float(cell.budget.rstrip("%")) for cell, _, _ in blocks
            ),
            "tokens_evicted": 100,
            "coverage": floats(numbers.get("coverage", 0.5) for _, numbers, _ in blocks),
            "kv_bytes": floats(numbers.get("kv_bytes+state_bytes", 0.1) * 1e9 for _, numbers, _ in blocks),
            "state_bytes": 0,
            "model": texts(cell.model for cell, _, _ in blocks),
            "policy": texts(cell.policy for cell, _, _ in blocks),
            "budget": texts(cell.budget for cell, _, _ in blocks),
            "prompt": texts(cell.prompt or "one_shot" for cell, _, _ in blocks),
            "block_size": floats(cell.block_size for cell, _, _ in blocks),
            "task": texts(task for task, _, _ in tasks),
            "created": texts("" for _ in blocks),
            "config": texts(reading if cell.budget.endswith("%") else "{}" for cell, _, _ in blocks),
            "axis_gold_at": floats(int(part.partition("=")[2] or -1) for _, _, part in tasks),
        }
    )
