"""Tasks by name, their settings files, and what the package may import."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tasks import TASKS, Task, TaskError, build, summary

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_settings_file_states_every_default(name):
    root = OmegaConf.create(
        {"seed": 0, "data": "auto", "max_length": None, "task": OmegaConf.load(ROOT / f"conf/task/{name}.yaml")}
    )
    settings = OmegaConf.to_container(root, resolve=True)["task"]
    assert settings.pop("name") == name
    assert settings.keys() == {field.name for field in dataclasses.fields(TASKS[name])}
    assert build(name, **settings) == build(name)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_tasks_fulfil_the_contract(name):
    task = build(name)
    assert isinstance(task, Task)
    assert task.name == name
    assert len(summary(name)) > 40
    assert hash(task) == hash(build(name))


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(TaskError, match=r"There is no task 'nia'\. Did you mean niah\?"):
        build("nia")
    with pytest.raises(TaskError, match=r"Known: book_perplexity, .*niah"):
        build("zzz")


def test_an_unknown_parameter_gets_the_nearest():
    with pytest.raises(TaskError, match=r"Task niah has no parameter 'depth'\. Did you mean depths"):
        build("niah", depth=[50])


def test_tasks_import_no_model_library_and_no_other_part_of_the_project():
    code = """
import sys
import tasks
class Words:
    def encode(self, text): return text.split()
for name, task in tasks.TASKS.items():
    if name == "lm_eval": continue  # the tasks of another package
    here = {"data": "fixture"} if "data" in task.__dataclass_fields__ else {}
    tasks.build(name, **here).samples(Words())
print(*sorted({module.partition(".")[0] for module in sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "harness", "policies", "hydra", "omegaconf"} & set(done.stdout.split())
