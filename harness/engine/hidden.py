"""Numbers of the host that a recorded pass must not depend on: whoever looks at them is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn


class CannotRepeatError(Exception):
    """A pass does something on the host that its repetition would not do again. The pass is computed as it is."""


class Hidden(tuple[int, ...]):
    """In place of numbers that differ from pass to pass. Any look at one raises `CannotRepeatError`."""

    __slots__ = ()

    def _refuse(self) -> NoReturn:
        raise CannotRepeatError("a policy reads view.lengths, numbers of the host, where view.seen is on the device")

    def __iter__(self) -> Iterator[int]:
        self._refuse()

    def __getitem__(self, index: Any) -> Any:
        self._refuse()

    def __len__(self) -> int:
        self._refuse()
