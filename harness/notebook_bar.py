"""The progress bar of a notebook: one line that is drawn again in its place, and goes when the work is done."""

from __future__ import annotations

import html
import importlib
import time
from types import TracebackType
from typing import Any

BETWEEN = 0.2  # seconds between two drawings: each is a message to the browser


class NotebookBar:
    """What `harness.terminal.Progress` asks of rich's bar, without the widgets that rich would need there."""

    def __init__(self) -> None:
        self.total, self.completed = 1.0, 0.0
        self.description, self.facts = "", ""
        self.since = self.drawn = time.monotonic()
        self.place: Any = None

    def add_task(self, description: str, total: float, facts: str) -> int:
        """One task only: its number is 0."""
        self.total, self.description, self.facts = total, description, facts
        return 0

    def update(self, task: int, completed: float | None = None, description: str = "", facts: str = "") -> None:
        """Draw again, unless that was done just now."""
        self.completed = self.completed if completed is None else completed
        self.description, self.facts = description or self.description, facts or self.facts
        if self.place is not None and time.monotonic() - self.drawn >= BETWEEN:
            self.drawn = time.monotonic()
            self.place.update(_Html(self.drawing()))

    def drawing(self) -> str:
        """HTML: the bar, its share, the time left, what is worked on, and the facts."""
        share = min(1.0, self.completed / max(1.0, self.total))
        seconds = (time.monotonic() - self.since) * (1 - share) / share if share else 0.0
        left = f"{int(seconds) // 60}:{int(seconds) % 60:02d} left · " if share else ""
        words = html.escape(f"{share:.0%} · {left}{self.description} · {self.facts}".strip(" ·"))
        return f'<progress value="{share:.4f}" max="1" style="width:16em"></progress> {words}'

    def __enter__(self) -> NotebookBar:
        self.since = time.monotonic()
        display = importlib.import_module("IPython.display").display
        self.place = display(_Html(self.drawing()), display_id=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.place is not None:
            self.place.update(_Html(""))


class _Html:
    """What IPython shows as HTML; as text, where nobody draws HTML, nothing."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_html_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return ""
