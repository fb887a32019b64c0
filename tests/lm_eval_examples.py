"""Tasks for lm-evaluation-harness whose data is made here: needles and passages of novels, one task of each kind."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from types import ModuleType

import yaml

import tasks
from harness.config.model import ModelSpec
from tasks.haystack import passage
from tasks.niah import DIGITS

TESTBED = ModelSpec("testbed", "bundled/testbed")
GENERATION = {
    "output_type": "generate_until",
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}
AVERAGED = [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")]
DOCUMENTS = 3  # of each task
TASKS = {
    "needle_answers": {
        **GENERATION,
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["\n", "."], "max_gen_toks": 12, "do_sample": False},
        "filter_list": [
            {
                "name": "number",
                "filter": [{"function": "regex", "regex_pattern": f"([0-9]{{{DIGITS}}})"}, {"function": "take_first"}],
            },
            {"name": "whole", "filter": [{"function": "take_first"}]},
        ],
    },
    "going_on": {
        **GENERATION,
        "doc_to_text": "{{passage}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": [" and the", "!"], "max_gen_toks": 40, "temperature": 0.0},
    },
    "needle_choices": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{choices.index(answer)}}",
        "doc_to_choice": "{{choices}}",
        "metric_list": AVERAGED,
    },
    "last_words": {
        "output_type": "loglikelihood",
        "doc_to_text": "{{passage}} ",
        "doc_to_target": "{{last}}",
        "metric_list": [*AVERAGED[:1], {"metric": "perplexity", "aggregation": "perplexity"}],
    },
    "passages": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{passage}}",
        "metric_list": [{"metric": "word_perplexity"}],
    },
}


def write_tasks(folder: Path, documents: int = DOCUMENTS) -> Path:
    """A folder for ``--include_path``: `TASKS` over documents of their own."""
    needles = tasks.build("niah", lengths=[160], depths=[30, 70], repeats=documents).samples(TESTBED.tokenizer())
    draw = random.Random("choices")
    records = []
    for number, sample in enumerate(needles[:documents]):
        answer = sample.references[0]
        choices = [answer, *(str(draw.randrange(10 ** (DIGITS - 1), 10**DIGITS)) for _ in range(3))]
        draw.shuffle(choices)
        text = passage(number % 3, 9000 + 5000 * number, 400)
        start, _, last = text.rpartition(" ")
        records.append({"prompt": sample.prompt, "answer": answer, "choices": choices, "passage": start, "last": last})
    data = folder / "documents.jsonl"
    data.write_text("".join(json.dumps(record) + "\n" for record in records))
    for name, settings in TASKS.items():
        task = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}},
            "test_split": "test",
            "fewshot_split": "test",
            "metadata": {"version": 1},
            **settings,
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(task))
    return folder


def stand_in_for_accelerate() -> None:
    """lm-eval's `HFLM` imports accelerate, and needs none of it for a model that is loaded already."""
    try:
        import accelerate  # noqa: F401
    except ImportError:
        package, inner = ModuleType("accelerate"), ModuleType("accelerate.utils")
        for name in ("Accelerator", "InitProcessGroupKwargs", "find_executable_batch_size"):
            setattr(package, name, None)
        inner.get_max_memory = None  # type: ignore[attr-defined]
        sys.modules |= {"accelerate": package, "accelerate.utils": inner}
