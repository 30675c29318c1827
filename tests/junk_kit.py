"""What programs give to calls by mistake: values of every kind, and some that fail whatever they are asked."""

from __future__ import annotations

import datetime as dt
import decimal
import threading
from pathlib import Path
from typing import Any

import numpy as np


class Unfriendly:
    """Fails whatever it is asked."""

    def _fails(self, *_: object) -> Any:
        raise RuntimeError("unfriendly")

    __str__ = __repr__ = __iter__ = __len__ = __getitem__ = __fspath__ = __eq__ = _fails
    __contains__ = __hash__ = __bool__ = __int__ = __index__ = __float__ = _fails


class UnfriendlyMapping(dict[str, object]):
    """Has what it is asked for, and fails to give it."""

    def __getitem__(self, _: str) -> object:
        raise RuntimeError("unfriendly")


class UnfriendlyText(str):
    """A text that cannot be shown."""

    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("unfriendly")


JUNK: list[Any] = [
    *(None, True, -1, 0, 2**70, 10**5000, 1.5, float("nan"), float("inf"), 1j),
    *("", "x", "a\0b", "\ud800", UnfriendlyText("SELECT 1"), b"SELECT 1", b"\xff"),
    *([], [[]], [1, "x"], (), {}, {"a": 1}, {1, 2}, UnfriendlyMapping(a=1), range(3)),
    *(object(), int, len, Unfriendly(), Path("x\0y"), Path("/dev/null/x"), np.zeros(2)),
    *(decimal.Decimal("sNaN"), dt.datetime.max, dt.timedelta.max, threading.Lock()),
]
