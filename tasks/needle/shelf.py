"""What haystacks are cut from: the carried novels, or a folder of the user's text files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tasks import revision
from tasks.base import TaskError
from tasks.novels import BOOKS, Novel, novels

NOVELS = "novels"


@dataclass(frozen=True)
class Shelf:
    """Texts in the order of their names; behind the last one stands the first again."""

    texts: tuple[Novel, ...]

    def running(self, text: int, offset: int, characters: int) -> str:
        """``characters`` of running text from ``offset`` of text number ``text``, repeated until long enough."""
        parts, missing = [], characters
        while missing > 0:
            part = self.texts[text].text[offset : offset + missing]
            parts.append(part)
            missing -= len(part)
            text, offset = (text + 1) % len(self.texts), 0
        return "\n\n".join(parts)


def shelf(haystack: str) -> Shelf:
    """The novels, or every ``*.txt`` of a folder; `TaskError` for a folder without text, or a file without UTF-8."""
    return Shelf(novels()) if haystack == NOVELS else Shelf(_folder(haystack, _stamps(haystack)))


def shelf_revision(haystack: str) -> str:
    """Content hash of what `shelf` gives."""
    if haystack == NOVELS:
        return revision.of_files(*BOOKS)
    return revision.of_text(*(part for text in shelf(haystack).texts for part in (text.name, text.text)))


def _stamps(haystack: str) -> tuple[tuple[Path, int], ...]:
    folder = Path(haystack)
    files = sorted(folder.glob("*.txt")) if folder.is_dir() else []
    if not files:
        raise TaskError(
            f"needle.haystack={haystack} is no folder with text files (*.txt): give one, or {NOVELS} for the carried "
            "novels. Paul Graham's essays may not be passed on; put your own copy there."
        )
    return tuple((file, file.stat().st_mtime_ns) for file in files)


@lru_cache(maxsize=2)
def _folder(haystack: str, stamps: tuple[tuple[Path, int], ...]) -> tuple[Novel, ...]:
    return tuple(Novel(file.name, _read(file)) for file, _ in stamps)


def _read(file: Path) -> str:
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise TaskError(f"{file} is not UTF-8 (byte {error.start}). Convert it or take it out of the folder.") from None
    if not text.strip():
        raise TaskError(f"{file} is empty: take it out of the folder.")
    return text
