"""Tasks by name, their settings files, and what the package may import."""

import dataclasses
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tasks import TASKS, Task, TaskError, build, summary, task_class

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_settings_file_states_every_default(name):
    root = OmegaConf.create(
        {"seed": 0, "data": "auto", "max_length": None, "task": OmegaConf.load(ROOT / f"conf/task/{name}.yaml")}
    )
    settings = OmegaConf.to_container(root, resolve=True)["task"]
    assert settings.pop("name") == name
    assert settings.keys() == {field.name for field in dataclasses.fields(task_class(name))}
    assert build(name, **settings) == build(name)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_tasks_fulfil_the_contract(name):
    task = build(name)
    assert isinstance(task, Task)
    assert task.name == name
    assert len(summary(name)) > 40
    assert hash(task) == hash(build(name))


def test_every_task_class_is_in_the_table_under_its_name():
    modules = [module.name for module in pkgutil.walk_packages([str(ROOT / "tasks")], "tasks.")]
    found = {
        f"{module}:{kind.__name__}": kind.name
        for module in modules
        for kind in vars(importlib.import_module(module)).values()
        if inspect.isclass(kind)
        and issubclass(kind, Task)
        and kind.__module__ == module
        and isinstance(vars(kind).get("name"), str)  # not `SampledAnswers`, which has that of its task
    }
    assert found == {place: name for name, place in TASKS.items()}


def test_only_the_task_that_is_built_is_imported():
    code = """
import sys
import tasks
tasks.build("wikitext")
print(*sorted(module for module in sys.modules if module.partition(".")[0] == "tasks"))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    of_other_tasks = {place.partition(":")[0] for place in TASKS.values()} - {"tasks.perplexity"}
    assert not of_other_tasks & set(done.stdout.split())


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(TaskError, match=r"There is no task 'nia'\. Did you mean niah\?"):
        build("nia")
    with pytest.raises(TaskError, match=rf"The nearest of {len(TASKS)} are \w+"):
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
for name in tasks.TASKS:
    if name == "lm_eval": continue  # the tasks of another package
    here = {"data": "fixture"} if "data" in tasks.task_class(name).__dataclass_fields__ else {}
    tasks.build(name, **here).first(Words(), 1)
print(*sorted({module.partition(".")[0] for module in sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "harness", "policies", "hydra", "omegaconf"} & set(done.stdout.split())
