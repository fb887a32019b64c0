"""Where a model's files are and which exact version they have, found without loading anything."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from harness.config import identity

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

    Without a name it is the one such file of a folder that has no ``config.json``. None where there is none.
    """
    if path.endswith(GGUF):
        file = _on_disk(path)
        return file if file and file.is_file() else None
    folder = model_folder(path)
    if folder is None:
        cached = try_to_load_from_cache(path, name, revision=revision) if name else None
        return Path(cached) if isinstance(cached, str) else None
    if name is not None:
        return folder / name if (folder / name).is_file() else None
    files = [] if (folder / "config.json").is_file() else list(folder.glob(f"*{GGUF}"))
    return files[0] if len(files) == 1 else None


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
