"""Our engine as a model of lm-evaluation-harness: dense it is `HFLM`, and a policy makes a difference."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from lm_eval import evaluate, simple_evaluate
from lm_eval.tasks import TaskManager
from lm_eval_examples import TASKS, TESTBED, stand_in_for_accelerate, write_tasks

from harness.cli.error_messages import errors_in_plain_words
from harness.errors import UserError
from harness.integrations.lm_eval import KVReplica
from tasks import TaskError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("lm_eval"))


@pytest.fixture(scope="module")
def manager(folder):
    return TaskManager(include_path=folder, include_defaults=False)


def hflm(**options):
    stand_in_for_accelerate()
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=TESTBED.load("cpu"), tokenizer=TESTBED.tokenizer(), batch_size=1, **options)


def responses(lm, manager, names=TASKS, **options):
    """Everything that the model answered, by task and document."""
    results = evaluate(lm, manager.load(list(names)), bootstrap_iters=0, **options)
    return {
        name: {sample["doc_id"]: sample["resps"] for sample in samples} for name, samples in results["samples"].items()
    }


def values(answers, *names):
    """The log likelihoods among the answers, flat."""
    return [
        float(first[0]) if isinstance(first, tuple | list) else float(first)
        for name in names
        for _, resps in sorted(answers[name].items())
        for (first,) in resps
    ]


@pytest.fixture(scope="module")
def by_hflm(manager):
    return responses(hflm(), manager)


@pytest.fixture(scope="module")
def by_dense(manager):
    return responses(KVReplica(policy="dense", block_size=32), manager)


@pytest.mark.parametrize("name", ["needle_answers", "going_on"])
def test_dense_generates_what_hflm_generates(name, by_hflm, by_dense):
    assert by_dense[name] == by_hflm[name]
    assert all(text for resps in by_dense[name].values() for text in resps[0])


@pytest.mark.parametrize("name", ["needle_choices", "last_words", "passages"])
def test_dense_likelihoods_are_those_of_hflm(name, by_hflm, by_dense):
    assert values(by_dense, name) == pytest.approx(values(by_hflm, name), abs=1e-4)


@pytest.mark.parametrize("name", ["needle_choices", "last_words"])
def test_dense_is_greedy_where_hflm_is(name, by_hflm, by_dense):
    def greedy(answers):
        return [first[1] for _, resps in sorted(answers[name].items()) for (first,) in resps]

    assert greedy(by_dense) == greedy(by_hflm)
    assert name == "last_words" or True in greedy(by_dense)


def test_the_bar_counts_every_request_of_several_batches_once(manager):
    model = KVReplica(policy="dense", block_size=32)
    model.memory = 0  # a batch for each request
    responses(model, manager, ["needle_answers"])
    count = model.progress.count
    assert count.samples > 1
    assert count.done == count.planned


def test_stop_texts_end_answers_and_are_left_out(by_dense):
    said = [text for resps in by_dense["needle_answers"].values() for text in resps[0]]
    assert not any("\n" in text or "." in text for text in said)


def test_an_evicting_policy_gives_other_answers(manager, by_dense):
    evicted = responses(KVReplica(policy="keydiff", budget="10%", block_size=16, prompt="blocked"), manager)
    assert evicted["going_on"] != by_dense["going_on"]
    for name in ("needle_choices", "last_words", "passages"):
        before, after = values(by_dense, name), values(evicted, name)
        assert all(abs(a - b) > 1e-3 for a, b in zip(before, after, strict=True))


def test_a_policy_acts_between_a_context_read_at_once_and_its_continuation(manager, by_dense):
    """In one_shot nothing is evicted before the context is over, so any difference comes from after it."""
    evicted = responses(KVReplica(policy="keydiff", budget=16, prompt="one_shot"), manager, ["needle_choices"], limit=1)
    before, after = values(by_dense, "needle_choices")[:4], values(evicted, "needle_choices")
    assert all(abs(a - b) > 1e-3 for a, b in zip(before, after, strict=True))


def test_a_budget_for_everything_changes_nothing(manager, by_dense):
    kept = responses(KVReplica(policy="keydiff", budget=1024, block_size=32), manager)
    assert kept["going_on"] == by_dense["going_on"]
    likelihoods = ("needle_choices", "last_words", "passages")
    assert values(kept, *likelihoods) == pytest.approx(values(by_dense, *likelihoods), abs=1e-4)


def test_texts_longer_than_the_model_are_cut_as_hflm_cuts_them(manager, by_dense):
    """Contexts from the left. Rolling windows are one token shorter than HFLM's, so they get one more here."""
    ours, theirs = KVReplica(policy="dense", max_length=64), hflm(max_length=64)
    names = ("going_on", "passages")
    short, expected = responses(ours, manager, names), responses(theirs, manager, names)
    assert short["going_on"] == expected["going_on"] != by_dense["going_on"]
    windows = KVReplica(policy="dense", max_length=65)
    assert values(responses(windows, manager, names), "passages") == pytest.approx(
        values(expected, "passages"), abs=1e-3
    )


def test_choices_of_one_question_read_their_context_once(manager):
    lm = KVReplica(policy="dense", block_size=256)
    embedded = []
    lm.engine.model.model.embed_tokens.register_forward_hook(lambda _, inputs, __: embedded.append(inputs[0].numel()))
    results = evaluate(lm, manager.load(["needle_choices"]), limit=1, bootstrap_iters=0)
    (sample,) = results["samples"]["needle_choices"]
    assert len(sample["arguments"]) == 4
    assert embedded[0] == max(embedded) == len(lm.tok_encode(sample["arguments"][0][0]))


def test_simple_evaluate_takes_the_model(manager):
    results = simple_evaluate(
        model=KVReplica(policy="keydiff", budget="50%", block_size=32),
        tasks=["needle_answers", "needle_choices"],
        task_manager=manager,
        bootstrap_iters=0,
    )
    assert {"exact_match,number", "exact_match,whole"} <= set(results["results"]["needle_answers"])
    assert 0 <= results["results"]["needle_choices"]["acc,none"] <= 1


def test_chat_formats_are_the_models_own(manager):
    lm = KVReplica(policy="dense")
    lm.tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
    results = evaluate(lm, manager.load(["going_on"]), limit=1, apply_chat_template=True, bootstrap_iters=0)
    (sample,) = results["samples"]["going_on"]
    assert sample["arguments"][0][0] == f"[user]{sample['doc']['passage']}[assistant]"
    assert lm.tokenizer_name


def test_a_model_without_a_chat_format_says_so(manager):
    with pytest.raises(UserError, match=r"has no chat format: leave out --apply_chat_template"):
        evaluate(KVReplica(policy="dense"), manager.load(["going_on"]), limit=1, apply_chat_template=True)


def test_a_text_that_begins_with_the_beginning_of_text_gets_no_second_one():
    lm = KVReplica(policy="dense")
    assert lm.tok_encode("<s>It was") == lm.tok_encode("It was")
    assert lm.tok_encode("It was")[0] == lm.prefix_token_id


def test_sampling_is_refused(manager):
    loaded = manager.load(["going_on"])
    loaded["tasks"]["going_on"].set_config("generation_kwargs", {"do_sample": True, "temperature": 0.7}, update=True)
    with pytest.raises(TaskError, match=r"'going_on' asks for sampling \(do_sample, temperature\)"):
        evaluate(KVReplica(policy="dense"), loaded, limit=1)


def test_rolling_likelihoods_that_would_be_dense_are_refused(manager):
    lm = KVReplica(policy="snapkv", budget=32, prompt="one_shot")
    with pytest.raises(UserError, match=r"use prompt=blocked or prompt=token_fed"):
        evaluate(lm, manager.load(["passages"]), limit=1)


def test_lm_evals_cache_of_answers_is_refused(manager, tmp_path):
    with pytest.raises(UserError, match=r"would give the answers of one policy for another"):
        simple_evaluate(
            model=KVReplica(policy="dense"), tasks=["going_on"], task_manager=manager, use_cache=str(tmp_path / "cache")
        )


IMPOSSIBLE = {
    "unknown policy": ({"policy": "keydif"}, "There is no policy called 'keydif'. Did you mean keydiff"),
    "unknown setting": ({"blocksize": 3}, "There is no setting 'blocksize'. Did you mean block_size?"),
    "unknown model": ({"model": "./nowhere"}, "There is no folder ./nowhere"),
    "budget below the protected": ({"policy": "snapkv", "budget": 20}, "raise the budget to at least 32"),
    "a layer that is not there": (
        {"policy": "gemfilter/llama31-8b", "prompt": "one_shot"},
        "this model has layers 0 to 5",
    ),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_cannot_work_is_one_sentence_before_the_model_is_loaded(case, monkeypatch, capfd):
    settings, sentence = IMPOSSIBLE[case]
    monkeypatch.setattr("harness.config.model.ModelSpec.load", lambda *_: pytest.fail("the model was loaded"))
    with pytest.raises(SystemExit) as end, errors_in_plain_words():
        KVReplica(**settings)
    assert end.value.code == 2
    assert sentence in capfd.readouterr().err


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "harness", "lm_eval", *arguments], cwd=ROOT, capture_output=True, text=True
    )


def test_the_command_line_runs_a_policy(folder, tmp_path):
    settings = "model=testbed,policy=keydiff,budget=25%,block_size=32,prompt=blocked"
    done = command(
        *("--model", "kvreplica", "--model_args", settings, "--tasks", "going_on", "--include_path", str(folder)),
        *("--limit", "2", "--device", "cpu", "--output_path", str(tmp_path)),
    )
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.rglob("results_*.json")
    assert "exact_match,none" in json.loads(file.read_text())["results"]["going_on"]
    assert "|going_on" in done.stdout


def test_without_the_package_one_sentence_names_the_remedy(monkeypatch):
    monkeypatch.delitem(sys.modules, "harness.integrations.lm_eval")
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(UserError, match=r"needs the package lm-eval .*pip install -e '\.\[lm-eval\]'"):
        importlib.import_module("harness.integrations.lm_eval")
