"""Ctrl-C at a moment that is counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class _CtrlC:
    def __init__(self, number: int, files: tuple[str, ...]) -> None:
        self._left = number
        self._files = files

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        if event not in ("call", "c_return"):
            return
        if not frame.f_code.co_filename.endswith(self._files):
            return
        self._left -= 1
        if self._left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt


@contextmanager
def ctrl_c_at(number: int, files: tuple[str, ...]) -> Iterator[None]:
    """Raise KeyboardInterrupt in the block, on this thread, at the ``number``-th moment at which Python would within ``files``.

    Python looks for signals after calls and at the start of functions. ``files`` are ends of paths of source files. Nothing is
    raised where there are fewer moments.
    """
    sys.setprofile(_CtrlC(number, files))
    try:
        yield
    finally:
        sys.setprofile(None)
