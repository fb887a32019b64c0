"""A setting that cannot be is one sentence with its key, what was given and what is wanted; never a traceback."""

from __future__ import annotations

import itertools
import re
from copy import deepcopy

import pytest
from omegaconf import OmegaConf

from harness.config.cell import USER_ERRORS, Cell
from harness.config.compose import checked_config, compose_config
from harness.config.settings import check_config
from harness.runner.run_settings import RunSettings

NEVER = (float("nan"), float("-inf"), 10**20, {"a": 1}, [[None]])  # fits no setting
RARELY = (-1, 0, 1e9, 0.5, True, None, "", "abc", "ä☃", "a" * 300, "~nobody/x", "../x", [], [1], {})
FREE = {("launcher", "parameters")}  # submitit's, which checks them
COMPOSED = (
    ["policy=snapkv", "task=niah"],
    ["policy=buzz", "task=needle"],
    ["policy=headkv_r", "task=ruler"],
    ["policy=ada_snapkv", "task=gsm8k", "launcher=local"],
    ["policy=caote_h2o", "task=book_perplexity", "launcher=ray"],
    ["policy=h2o/coldcompress", "task=longbench", "data=fixture", "logger=wandb"],
    ["policy=gemfilter", "task=key_value", "launcher=slurm"],
)


def plain(overrides):
    found = OmegaConf.to_container(compose_config(["prompt=auto", *overrides]), resolve=True)
    return {key: value for key, value in found.items() if key != "hydra"}


def places(config, before=()):
    for key, value in config.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from places(value, (*before, key))


def with_value(config, place, value):
    changed = deepcopy(config)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


def everything_checked(config):
    check_config(config)
    RunSettings.parse(config)
    return Cell.parse(config).id


def complaint_about(config):
    """The sentence of a user error; empty where the configuration is taken. Any other error is raised."""
    try:
        everything_checked(config)
    except USER_ERRORS as error:
        return str(error)
    return ""


@pytest.mark.parametrize("overrides", COMPOSED, ids=" ".join)
def test_no_value_of_any_setting_ends_in_a_traceback(overrides):
    config = plain(overrides)
    everything_checked(config)
    tried = [place for place in places(config) if place not in FREE and place[:2] not in FREE]
    for place, value in itertools.product(tried, (*NEVER, *RARELY)):
        complaint = complaint_about(with_value(config, place, value))
        assert complaint or value in RARELY, f"{'.'.join(place)}={value!r} was accepted"
        assert not complaint or re.search(r"\w \w.*[.?]$", complaint), f"{place}={value!r}: no sentence: {complaint}"


SENTENCES = {
    "policy=snapkv policy.scorer.kernel=nan": "policy.scorer.kernel=NaN does not fit: give a whole number.",
    "policy=chunkkv policy.scorer.base={name:snapkv,kernel:nan}": (
        "policy.scorer.base.kernel=NaN does not fit: give a whole number."
    ),
    "policy=chunkkv policy.scorer.base=7": "policy.scorer.base=7 does not fit: give a text, or settings with names.",
    "prompt_split=contxt": "prompt_split=contxt is not known. Did you mean context?",
    "policy=snapkv policy.scorer.pool=maxx": "policy.scorer.pool=maxx is not known. Did you mean max?",
    "policy=fastgen policy.structure.recovery=-1": (
        "fastgen recovery=-1 is a share of attention: give 0 or more; above 1 all stays."
    ),
    "policy.scorer=-1": "policy.scorer=-1 does not fit: give a text, or settings with names.",
    "policy.allocator=abc": (
        "There is no allocator called 'abc'. Known: ada, duo_attention, headkv, model_wide, pyramid, skip_layers."
    ),
    "task.lengths=512": "task.lengths=512 does not fit: give a list of whole numbers in brackets, task.lengths=[512].",
    "model.dtype=bfloat61": "model.dtype=bfloat61 is not known. Did you mean bfloat16 or float16 or float32?",
    "block_size=": "block_size='' does not fit: give a whole number, at least 1.",
    "block_size=true": "block_size=true does not fit: give a whole number, at least 1.",
    "lease=inf": "lease=Infinity does not fit: give a finite number, above 0 and at most 10,000,000.",
    "seed=99999999999999999999": ("seed=99999999999999999999 is too large: give at most 9,223,372,036,854,775,807."),
    "prompt=blokced": "prompt=blokced is not known. Did you mean blocked?",
    "budget_of=all": "budget_of=all is not known. Known: longest, median, prompt, prompt_and_new, so_far.",
    "budget_slots=often": "budget_slots=often is not known. Known: as_written, scaled.",
    "references=dense": "references=dense does not fit: give a list of texts in brackets, references=[dense].",
    "name=/elsewhere/x": (
        "name=/elsewhere/x does not fit: give a name of at most 100 characters without slashes, and no folder."
    ),
    "launcher.name=slrum": "There is no launcher called 'slrum'. Did you mean slurm?",
    "launcher=local launcher.workers=0": ("launcher.workers=0 does not fit: give a whole number, at least 1, or null."),
    "launcher=slurm launcher.cluster=moon": "launcher.cluster=moon is not known. Known: local, slurm.",
    "logger.name=wand": "There is no logger called 'wand'. Did you mean wandb?",
    "logger=wandb logger.mode=onlin": "logger.mode=onlin is not known. Did you mean online or offline?",
    "engine.compile=0": "engine.compile=0 does not fit: give one of auto, off, false.",
    "engine.compile=always": "engine.compile=always is not known. Known: False, auto, off.",
    "device=gpu": "device=gpu does not fit: give auto, cpu, cuda, or one GPU such as cuda:1.",
    "~task": "task is missing: give settings with names.",
    "~budget": "budget is missing: give a whole number, or a finite number, or a text.",
    "task=null": (
        "A group such as policy or task was given something that is no name: write policy=keydiff, for example."
    ),
    "task.lenghts=[128]": "There is no setting 'task.lenghts'. Did you mean lengths?",
    "+udget=48": "There is no setting 'udget'. Did you mean budget or budget_of?",
    "+budget=48": "budget is a setting already: write budget=48, without the +.",
    "++policy=tova": "Write policy=tova, without the ++.",
    "budget": "'budget' is not a setting: write key=value, for example budget=25%.",
    "budget=]": "'budget=]' could not be read: a bracket is not closed, or not opened.",
    "model.path=ä": (
        "'model.path=ä' could not be read: a text with such characters stands in two pairs of quotes, "
        "'model.path=\"ä\"'."
    ),
    "sampling=[3]": "sampling=[3] does not fit: sampling holds a value of another kind.",
    "~budgt": "There is no setting 'budgt' to take out.",
    "limit=choice(1,2)": "limit=choice(1,2) is a sweep: add -m to run each of its values.",
    "policy=sink,tova": (
        "policy=sink,tova is several values: add -m to run each of them, or write policy=[sink,tova] for a list."
    ),
    "policy=keydif": "There is no policy called 'keydif'. Did you mean keydiff or keydiff/dot or h2o/keydiff?",
}


@pytest.mark.parametrize("words", SENTENCES)
def test_the_sentence_names_the_key_what_was_given_and_what_is_wanted(words):
    with pytest.raises(USER_ERRORS) as found:
        everything_checked(checked_config(compose_config(words.split())))
    assert str(found.value) == SENTENCES[words]
