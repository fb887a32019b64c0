"""A YAML file of a stranger runs no code, and one that cannot be read is one sentence."""

from __future__ import annotations

import pytest

from harness.config.foreign_code import refuse_foreign_code
from harness.errors import UserError

HEAD = "# @package _global_\n"
UNREADABLE = {
    "a list without its end": b"a: [1,\n",
    "a tab": b"name:\tx\n\tb: 2\n",
    "bytes that are no text": b"name: \xff\xfe\n",
    "a key twice": b"name: a\nname: b\n",
    "an alias of itself": b"x: &a [*a]\n",
    "defaults that include the file": b"defaults:\n  - stranger\nname: a\n",
}
FOREIGN = {
    "a callback": "hydra: {callbacks: {x: {_target_: antigravity.fly}}}",
    "a log handler": 'hydra: {job_logging: {version: 1, handlers: {x: {"()": antigravity.fly}}}}',
    "a log formatter": "hydra: {hydra_logging: {version: 1, formatters: {x: {class: antigravity.Fly}}}}",
    "a trusted package": "trusted: [antigravity]",
}


def with_file(folder, content):
    (folder / "exp").mkdir()
    (folder / "exp" / "stranger.yaml").write_bytes(HEAD.encode() + content)
    return ["task=niah", "--config-dir", str(folder), "+exp=stranger"]


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_file_that_cannot_be_read_is_one_sentence(case, tmp_path):
    with pytest.raises(UserError, match=r"^[^\n]+$"):
        refuse_foreign_code(with_file(tmp_path, UNREADABLE[case]))


@pytest.mark.parametrize("case", FOREIGN)
def test_a_file_that_would_run_code_is_refused_before_anything_is_imported(case, tmp_path):
    with pytest.raises(UserError, match="antigravity"):
        refuse_foreign_code(with_file(tmp_path, FOREIGN[case].encode()))


@pytest.mark.parametrize("word", ["+hydra.callbacks.x._target_=antigravity.fly", "+hydra.job_logging.filters.x.()=a.b"])
def test_hydra_imports_nothing_from_the_command_line_either(word):
    with pytest.raises(UserError, match=r"would run code of its own|could not be read"):
        refuse_foreign_code(["task=niah", word])


def test_trust_comes_from_the_command_line(tmp_path):
    refuse_foreign_code([*with_file(tmp_path, FOREIGN["a trusted package"].encode()), "trusted=[antigravity]"])


@pytest.mark.parametrize("where", ["name", "results_dir", "grids"])
def test_a_file_reads_nothing_of_the_environment_and_a_command_may(where, tmp_path):
    secret = "${oc.env:KVREPLICA_SECRET}"
    line = f"grids: {{a: {{mini: [{{task: '{secret}'}}]}}}}" if where == "grids" else f"{where}: {secret}"
    with pytest.raises(
        UserError, match=r"^A configuration file reads the environment \(\$\{oc.env:KVREPLICA_SECRET\}\)"
    ):
        refuse_foreign_code(with_file(tmp_path, line.encode()))
    refuse_foreign_code(["task=niah", f"results_dir={secret}"])


@pytest.mark.parametrize(
    "words", [["policy=sink,tova", "-m"], ["+exp=quickstart"], ["--cfg", "job"], [f"--config-dir={__file__}"]]
)
def test_what_is_ordinary_passes(words):
    refuse_foreign_code(words)


@pytest.mark.parametrize(
    "flag", ["--config-path=/tmp", "-cp=/tmp", "--config-name=mine", "-cn=mine", "--config-n=mine"]
)
def test_our_own_configuration_is_not_replaced(flag):
    with pytest.raises(UserError, match=r"add files of yours with --config-dir"):
        refuse_foreign_code([flag, "policy=sink"])
