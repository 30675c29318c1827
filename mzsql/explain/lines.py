"""An indented text, line by line, and the tree that its indentation says."""

from __future__ import annotations

import msgspec


class Line(msgspec.Struct, frozen=True):
    """A line; `is_node`: an operator or a binding stands in it, what follows more deeply indented belongs to that."""

    level: int
    text: str
    is_node: bool


class Lines:
    """Lines with their indentation; a level is two spaces."""

    def __init__(self) -> None:
        self._lines: list[Line] = []

    def add(self, level: int, text: str, *, node: bool = False) -> None:
        """Append a line."""
        self._lines.append(Line(level, text.rstrip(), node))

    def text(self) -> str:
        """All of it, each line ended by a newline."""
        return "".join(f"{'  ' * line.level}{line.text}\n" for line in self._lines)

    def all(self) -> tuple[Line, ...]:
        """The lines."""
        return tuple(self._lines)
