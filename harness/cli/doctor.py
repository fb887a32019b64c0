"""``python -m harness doctor``: what works on this machine, what does not, and how to fix it.

Imports no package of others at its top, so that it can say which one is missing.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.cli.results_folder import add_results_dir

State = Literal["ok", "no", "FAIL"]  # FAIL: without it nothing works
GIB = 2**30
SECONDS_FOR_THE_HUB = 4
NEEDED = ("torch", "transformers", "hydra", "omegaconf", "pandas", "pyarrow", "numpy", "rich")
EXTRAS = {  # by module: what needs it, and the extra that installs it
    "wandb": ("logger=wandb", "wandb"),
    "lm_eval": ("task=lm_eval/… and python -m harness lm_eval", "lm-eval"),
    "openai": ("task.judge, scores by a model", "judge"),
    "ray": ("launcher=ray", "ray"),
    "submitit": ("launcher=slurm", "slurm"),
    "accelerate": ("model.device_map for models larger than one GPU", "device-map"),
    "datasets": ("fetching data sets that lie on the hub in other forms than JSON lines", "datasets"),
    "ipykernel": ("the notebooks", "notebooks"),
    "mkdocs": ("make docs", "docs"),
}


@dataclass(frozen=True)
class CheckResult:
    """One line of the output: what was checked, its state, and the consequence."""

    state: State
    what: str
    words: str

    @property
    def line(self) -> str:
        """As it is printed."""
        return f"{self.state:<5}{self.what:<20}{self.words}"


def main(words: Sequence[str] = ()) -> int:
    """Print every check. Exit code 0 = the quick start will run, 1 = nothing will."""
    found = []
    for check in checks(_results_dir(words)):
        found.append(check)
        print(check.line, flush=True)
    failed = [check.what for check in found if check.state == "FAIL"]
    lacking = [check.what for check in found if check.state == "no"]
    if failed:
        print(f"\nNothing can run until this is fixed: {', '.join(failed)}.")
        return 1
    print("\nThe quick start will run: python -m harness" + (f". Without: {', '.join(lacking)}." if lacking else "."))
    return 0


def _results_dir(words: Sequence[str]) -> Path:
    parser = argparse.ArgumentParser(prog="python -m harness doctor", description=__doc__)
    add_results_dir(parser)
    folder: Path = parser.parse_args(list(words)).results_dir
    return folder


def checks(results_dir: Path) -> Iterator[CheckResult]:
    """All checks, the necessary packages first; without them no other check is made."""
    yield CheckResult("ok", "python", f"{sys.version.split()[0]} ({sys.executable})")
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        yield CheckResult("FAIL", "packages", f"missing: {', '.join(missing)}; run 'make setup', or pip install -e .")
        return
    yield from (look() for look in (_torch, _device, _memory, _shipped_model))
    yield _disk("results", results_dir)
    yield from _hub()
    yield from _models()
    yield from _data()
    yield from _extras()


def _torch() -> CheckResult:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers"))
    return CheckResult("ok", "packages", versions)


def _device() -> CheckResult:
    torch = importlib.import_module("torch")
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        room = torch.cuda.mem_get_info()
        name = torch.cuda.get_device_name(0)
        return CheckResult(
            "ok", "device", f"cuda: {count} × {name}, {room[0] / GIB:.0f} of {room[1] / GIB:.0f} GiB free on the first"
        )
    from harness.config.model import auto_dtype

    words = f"cpu, {torch.get_num_threads()} threads: enough for the testbed; 3B models and larger want CUDA"
    rates = ", ".join(f"{name} {_products(torch, name):.0f} GFLOP/s" for name in ("float32", "bfloat16"))
    words += f"; products: {rates}, model.dtype=auto takes {auto_dtype()}"
    return CheckResult("ok", "device", words)


def _products(torch: Any, dtype: str) -> float:
    """Products of a layer's size that the processor makes in this type, 10^9 operations a second: the best of three."""
    rows, width = 256, 1024
    left, right = (torch.ones(size, width, dtype=getattr(torch, dtype)) for size in (rows, width))
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        left @ right.T
        seconds.append(time.perf_counter() - start)
    return 2 * rows * width * width / min(seconds) / 1e9


def _memory() -> CheckResult:
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return CheckResult("ok", "memory", "this system does not say how much is free")
    numbers = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in meminfo.read_text().splitlines()}
    free, total = numbers["MemAvailable"], numbers["MemTotal"]
    return CheckResult("ok" if free > GIB else "no", "memory", f"{free / GIB:.1f} of {total / GIB:.1f} GiB free")


def _shipped_model() -> CheckResult:
    """One short generation under a policy: it needs the engine, the model and the policies."""
    try:
        generation = _generation()
    except Exception as error:  # of any kind: reporting it is what this check is for
        return CheckResult("FAIL", "testbed", f"{type(error).__name__}: {' '.join(str(error).split())}")
    return CheckResult(
        "ok", "testbed", f"the shipped model generates under keydiff with {generation.ledger.slots_kept_max} slots"
    )


def _generation() -> Any:
    transformers = importlib.import_module("transformers")
    from harness.api.generate import generate

    folder = Path(__file__).parents[1] / "testbed"
    importlib.import_module("transformers.utils.logging").disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return generate(model, tokenizer, "Call me Ishmael. " * 20, "keydiff", 24, max_new_tokens=2, block_size=8)


def _disk(what: str, folder: Path) -> CheckResult:
    """Free space and permission to write, in the nearest folder that exists."""
    nearest = next(each for each in [folder.resolve(), *folder.resolve().parents] if each.exists())
    free = shutil.disk_usage(nearest).free
    if not os.access(nearest, os.W_OK):
        return CheckResult("no", what, f"{folder} cannot be written to: choose another results_dir=<folder>")
    state: State = "ok" if free > GIB else "no"
    return CheckResult(state, what, f"{folder} can be written to, {free / GIB:.0f} GiB free")


def _hub() -> Iterator[CheckResult]:
    hub = importlib.import_module("huggingface_hub")
    if hub.constants.HF_HUB_OFFLINE:
        yield CheckResult("no", "hub", "switched off (HF_HUB_OFFLINE): models and data must be on this disk")
    elif reason := _unreachable(hub.constants.ENDPOINT):
        yield CheckResult("no", "hub", f"no answer ({reason}): models and data must be on this disk")
    else:
        yield CheckResult("ok", "hub", "answers; nothing is fetched unless you say so")
    logged_in = hub.get_token() is not None
    words = "logged in" if logged_in else "not logged in: gated models (Llama) need 'hf auth login'"
    yield CheckResult("ok" if logged_in else "no", "hub login", words)


def _unreachable(address: str) -> str:
    """Why the server did not answer; empty where it did, with any status."""
    request = importlib.import_module("urllib.request")
    errors = importlib.import_module("urllib.error")
    try:
        request.urlopen(request.Request(address, method="HEAD"), timeout=SECONDS_FOR_THE_HUB).close()
    except errors.HTTPError:
        return ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
    return ""


def _models() -> Iterator[CheckResult]:
    """Which of the configured models are on this disk."""
    import yaml

    from harness.config.experiments import CONF, option_names
    from harness.config.model_files import cached_commit, model_folder

    settings = [yaml.safe_load((CONF / "model" / f"{name}.yaml").read_text()) for name in option_names("model")]
    known = {each["name"]: each for each in settings if each["path"]}
    here = [name for name, each in known.items() if model_folder(each["path"]) or cached_commit(each["path"], None)]
    yield CheckResult("ok", "models here", ", ".join(here) or "none")
    absent = {name: each for name, each in known.items() if name not in here}
    for name, each in absent.items():
        if "fetch" in each:
            yield CheckResult("no", f"model {name}", each["fetch"])
    if on_hub := [name for name, each in absent.items() if "fetch" not in each]:
        example = f"'hf download {absent[on_hub[0]]['path']}'"
        yield CheckResult("no", "models", f"not here: {', '.join(on_hub)}; for example {example}")


def _data() -> Iterator[CheckResult]:
    """Which data sets are shipped, fetched or missing, by group."""
    data = importlib.import_module("tasks.data")
    base = importlib.import_module("tasks.base")

    def is_here(entry: Any) -> bool:
        try:
            data.table(entry.name)
        except base.TaskError:
            return False
        return True

    groups: dict[str, list[Any]] = {}
    for entry in data.CATALOGUE.values():
        groups.setdefault(entry.group, []).append(entry)
    here = {name: sum(map(is_here, members)) for name, members in groups.items()}
    complete = [name for name, members in groups.items() if here[name] == len(members)]
    yield CheckResult("ok", "data here", ", ".join(complete) or "none")
    for name, members in groups.items():
        if here[name] < len(members):
            lacking = next(entry for entry in members if not is_here(entry))
            count = f"{here[name]} of {len(members)} here; " if len(members) > 1 else ""
            yield CheckResult("no", f"data {name}", f"{count}{lacking.fetch_command}")


def _extras() -> Iterator[CheckResult]:
    for module, (what, extra) in EXTRAS.items():
        if importlib.util.find_spec(module) is None:
            yield CheckResult("no", module, f"no {what}: pip install -e '.[{extra}]'")
        else:
            yield CheckResult("ok", module, what)
