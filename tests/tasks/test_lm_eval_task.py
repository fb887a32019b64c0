"""Tasks of lm-evaluation-harness in our rows: its prompts, its scores, and one sentence where something is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from lm_eval_examples import DOCUMENTS, TASKS, write_tasks

from tasks import Likelihood, TaskError, build, lm_eval_library

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("lm_eval"))


@pytest.fixture(scope="module")
def task(folder):
    def built(name, **parameters):
        return build("lm_eval", task=name, include_path=str(folder), **parameters)

    return built


@pytest.fixture
def changed(tmp_path):
    """A task that differs from one of the examples, by the path of its file."""

    def written(name, **settings):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        file = write_tasks(folder) / f"{name}.yaml"
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **settings}))
        return build("lm_eval", task=str(file))

    return written


def test_output_types_become_modes(task):
    assert {name: task(name).mode for name in TASKS} == {
        "needle_answers": "generate",
        "going_on": "generate",
        "needle_choices": "continuations",
        "last_words": "continuations",
        "passages": "perplexity",
    }


def test_metrics_are_those_that_lm_eval_averages_one_for_each_filter(task):
    assert task("needle_answers").metrics == ("exact_match/number", "exact_match/whole")
    assert task("needle_choices").metrics == ("acc", "acc_norm")
    assert task("last_words").metrics == ("acc",)  # its perplexity is a figure of the whole set
    assert task("passages").metrics == ("nll",)


def test_samples_say_what_lm_eval_would_ask(task, testbed):
    answers = task("needle_answers").samples(testbed)
    assert len(answers) == DOCUMENTS
    assert len({sample.document for sample in answers}) == len({sample.id for sample in answers}) == DOCUMENTS
    first = answers[0]
    assert first.prompt == first.details["doc"]["prompt"]
    assert (first.until, first.max_new_tokens) == (("\n", "."), 12)
    assert first.references == (first.details["doc"]["answer"],)
    choices = task("needle_choices").samples(testbed)[0]
    assert choices.continuations == tuple(f" {choice}" for choice in choices.details["doc"]["choices"])
    assert choices.references == (choices.details["doc"]["answer"],)
    assert task("passages").samples(testbed)[0].prompt == answers[0].details["doc"]["passage"]


def test_examples_stand_before_the_question_and_are_the_same_every_time(task, testbed):
    once = [sample.prompt for sample in task("going_on", num_fewshot=2).samples(testbed)]
    assert once == [sample.prompt for sample in task("going_on", num_fewshot=2).samples(testbed)]
    for sample in task("going_on", num_fewshot=2).samples(testbed):
        assert sample.prompt.count("\n\n") >= 2
        assert sample.prompt.endswith(sample.details["doc"]["passage"])
        assert len(sample.prompt) > 2 * len(sample.details["doc"]["passage"])


def test_in_a_chat_the_prompt_is_a_message_and_the_description_the_system(changed, testbed):
    plain = changed("going_on", description="Go on.", gen_prefix="So")
    sample = build("lm_eval", task=plain.task, chat=True).samples(testbed)[0]
    assert sample.chat
    assert (sample.system, sample.prompt) == ("Go on.", sample.details["doc"]["passage"])
    assert sample.answer_prefix == "So"


def test_generated_text_is_scored_by_every_filter(task, testbed):
    needle = task("needle_answers")
    sample = needle.samples(testbed)[0]
    answer = sample.references[0]
    assert needle.score(sample, f" it is {answer}, I think") == {"exact_match/number": 1.0, "exact_match/whole": 0.0}
    assert needle.score(sample, answer) == {"exact_match/number": 1.0, "exact_match/whole": 1.0}
    assert needle.score(sample, "no idea") == {"exact_match/number": 0.0, "exact_match/whole": 0.0}


def test_choices_are_scored_by_likelihood_and_by_likelihood_per_character(changed, testbed):
    lengths = changed("needle_choices", doc_to_choice=["ab", "abcdefgh"], doc_to_target=1)
    sample = lengths.samples(testbed)[0]
    short, long = Likelihood(-2.0, 1, True), Likelihood(-4.0, 4, False)
    assert lengths.score_continuations(sample, [short, long]) == {"acc": 0.0, "acc_norm": 1.0}
    assert lengths.score_continuations(sample, [long, short]) == {"acc": 1.0, "acc_norm": 1.0}


def test_a_continuation_by_itself_is_right_if_it_is_greedy(task, testbed):
    words = task("last_words")
    sample = words.samples(testbed)[0]
    assert words.score_continuations(sample, [Likelihood(-0.1, 1, True)]) == {"acc": 1.0}
    assert words.score_continuations(sample, [Likelihood(-0.1, 1, False)]) == {"acc": 0.0}


def test_the_revision_follows_documents_prompts_and_scores(task, changed, testbed):
    base = task("needle_answers").revision()
    assert changed("needle_answers").revision() == base  # wherever the files lie
    assert {
        k for k, v in changed("needle_answers", doc_to_text="Q: {{prompt}}").revision().items() if v != base[k]
    } == {"prompts"}
    other = changed(
        "needle_answers", metric_list=[{"metric": "exact_match", "aggregation": "mean", "ignore_case": True}]
    )
    assert {k for k, v in other.revision().items() if v != base[k]} == {"metrics"}


def test_data_that_is_not_on_this_machine_is_named_with_the_command_that_fetches_it(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    fetch = r"python -c \"import datasets; datasets.load_dataset\('allenai/ai2_arc', 'ARC-Easy'\)\"\.$"
    with pytest.raises(TaskError, match=rf"^The data set allenai/ai2_arc of lm-eval task 'arc_easy' is not .*{fetch}"):
        _ = build("lm_eval", task="arc_easy").mode


@pytest.mark.parametrize("name", ["arc_easy", "mmlu", "mmlu_abstract_algebra", "lambada_openai"])
def test_what_a_name_means_is_the_same_without_an_index_of_all_files(name):
    whole = lm_eval_library._index(None, True)
    found = lm_eval_library._manager(name, None)
    assert found is not whole
    assert found.task_index[name].yaml_path == whole.task_index[name].yaml_path
    assert (name in found.all_groups) == (name in whole.all_groups)


BAD = {
    "no name": ({}, r"add task\.task=<name>"),
    "unknown": ({"task": "arc_eazy"}, r"lm-eval has no task 'arc_eazy'\. Did you mean .*arc_easy"),
    "a group": ({"task": "mmlu"}, r"'mmlu' is a group of lm-eval tasks, and a cell has one task"),
    "no such folder": ({"task": "x", "include_path": "/nowhere"}, r"include_path=/nowhere is no folder"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_task_is_refused_in_one_sentence(case):
    parameters, sentence = BAD[case]
    with pytest.raises(TaskError, match=sentence):
        _ = build("lm_eval", **parameters).mode


REFUSED = {
    "sampling": (("going_on",), {"generation_kwargs": {"do_sample": True, "temperature": 0.7}}, r"asks for sampling"),
    "penalties": (
        ("going_on",),
        {"generation_kwargs": {"until": ["."], "repetition_penalty": 1.2}},
        r"asks for repetition_penalty, and this engine decodes greedily",
    ),
    "code": (("going_on",), {"unsafe_code": True}, r"executes what the model wrote"),
    "unconditional likelihoods": (
        ("needle_choices",),
        {"metric_list": [{"metric": "acc_mutual_info", "aggregation": "mean", "higher_is_better": True}]},
        r"likelihoods after several contexts of one document \(row 0\)",
    ),
    "scores of the whole set": (
        ("going_on",),
        {"metric_list": [{"metric": "bleu", "aggregation": "bleu", "higher_is_better": True}]},
        r"only scores of the whole set",
    ),
    "missing file": (
        ("going_on",),
        {"dataset_kwargs": {"data_files": {"test": "/nowhere.jsonl"}}},
        r"'.*' cannot be loaded: .*nowhere.* Correct its YAML file",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_this_project_cannot_run_is_refused_in_one_sentence(case, changed, testbed):
    (name,), settings, sentence = REFUSED[case]
    with pytest.raises(TaskError, match=sentence):
        _ = changed(name, **settings).metrics, changed(name, **settings).samples(testbed)


BROKEN = {
    "no YAML": ("going_on.yaml", "task: [", r"cannot be loaded: while parsing"),
    "no JSON": ("documents.jsonl", '{"prompt": "a"', r"cannot be loaded: .* Correct its YAML file or the files"),
    "no documents": ("documents.jsonl", "", r"cannot be loaded: "),
    "a missing column": ("documents.jsonl", '{"prompt": "a"}\n', r"cannot be loaded: .*(passage|answer)"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_files_that_are_broken_are_named_in_one_sentence(case, tmp_path):
    file, content, sentence = BROKEN[case]
    write_tasks(tmp_path)
    (tmp_path / file).write_text(content)
    with pytest.raises(TaskError, match=sentence) as refused:
        _ = build("lm_eval", task=str(tmp_path / "going_on.yaml")).mode
    assert "\n" not in str(refused.value)


def test_without_lm_eval_there_is_one_sentence_and_every_other_task_works():
    code = """
import sys
sys.modules["lm_eval"] = None
import tasks
print(len(tasks.build("niah", lengths=[300], repeats=1).revision()))
try:
    tasks.build("lm_eval", task="arc_easy").mode
except tasks.TaskError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "pip install -e '.[lm-eval]'" in done.stdout
