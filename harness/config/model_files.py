"""Where a model's files are and which exact version they have, found without loading anything."""

from __future__ import annotations

import difflib
from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from harness.config import identity
from harness.errors import MissingInputError, UserError

BUNDLED = Path(__file__).parents[1]  # `bundled/testbed` is the folder harness/testbed
GGUF = ".gguf"
_DECIDING = {".json", ".jinja", ".safetensors", ".bin", ".model"}
_MEASURED = "numbers.json"  # results of the training script: measuring again does not change the model


def model_folder(path: str) -> Path | None:
    """The local folder that holds the model (``bundled/<name>`` or a path), or None for a hub id."""
    if path.startswith("bundled/"):
        return BUNDLED / path.removeprefix("bundled/")
    found = _on_disk(path)
    return found if found and found.is_dir() else None


def _on_disk(path: str) -> Path | None:
    try:
        found = Path(path).expanduser()
        return found if found.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long for a name, of a user who is not here, with a zero byte
        return None


def gguf_model(path: str, name: str | None, revision: str | None) -> Path | None:
    """The GGUF file that holds the model: ``path`` itself, or ``name`` in that folder or hub repository.

    Without a name it is the one such file of a folder that has no ``config.json``. None where there is none. Raises
    `UserError` where ``name`` is not there but another model would be loaded in its place.
    """
    if path.endswith(GGUF):
        if name not in (None, Path(path).name):
            raise UserError(f"model.path={path} is a file, and model.gguf_file={name} another: leave one of them out.")
        file = _on_disk(path)
        return file if file and file.is_file() else None
    folder = model_folder(path)
    if folder is None:
        return _cached_gguf(path, name, revision) if name else None
    if name is not None:
        return _named_gguf(folder, name)
    files = [] if (folder / "config.json").is_file() else list(folder.glob(f"*{GGUF}"))
    return files[0] if len(files) == 1 else None


def _named_gguf(folder: Path, name: str) -> Path:
    if (folder / name).is_file():
        return folder / name
    there = sorted(file.name for file in folder.glob(f"*{GGUF}"))
    remedies = [f"write model.gguf_file={difflib.get_close_matches(name, there, n=1, cutoff=0)[0]}"] if there else []
    if (folder / "config.json").is_file():
        remedies.append("leave model.gguf_file out for the model that its config.json describes")
    raise UserError(
        f"The folder {folder} has no file {name}, which model.gguf_file names; its GGUF files are "
        f"{', '.join(there) or 'none'}: {', or '.join(remedies) or 'correct model.path'}."
    )


def _cached_gguf(path: str, name: str, revision: str | None) -> Path | None:
    """The file of a hub repository that lies in the local cache."""
    try:
        cached = try_to_load_from_cache(path, name, revision=revision)
    except ValueError:  # not the form of a hub id; loading the model reports it
        return None
    if not isinstance(cached, str) and cached_commit(path, revision):
        raise MissingInputError(
            f"Model {path} is on this machine, but not its file {name}, which model.gguf_file names: fetch it with "
            f"'hf download {path} {name}', or leave model.gguf_file out for the model that its config.json describes."
        )
    return Path(cached) if isinstance(cached, str) else None


def model_version(path: str, revision: str | None, gguf_file: str | None = None) -> dict[str, str]:
    """The content of a GGUF file or a folder; of a hub id the commit that lies in the local cache.

    A branch such as ``main`` moves, so its name is used only while nothing of the model is on this machine.
    """
    file = gguf_model(path, gguf_file, revision)
    if file is not None:
        return {"content": identity.hash_files((file,))}
    folder = model_folder(path)
    if folder is not None:
        files = tuple(file for file in folder.iterdir() if file.suffix in _DECIDING and file.name != _MEASURED)
        return {"content": identity.hash_files(files)}
    return {"hub": path, "revision": cached_commit(path, revision) or revision or "main"}


def cached_commit(path: str, revision: str | None) -> str | None:
    """The commit of a hub id's revision that lies in the local cache; None where there is none."""
    try:
        cached = try_to_load_from_cache(path, "config.json", revision=revision)
    except ValueError:  # not the form of a hub id; loading the model reports it
        return None
    return Path(cached).parent.name if isinstance(cached, str) else None
