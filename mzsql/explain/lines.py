"""Indented text, line by line, and the tree that its indentation forms."""

from __future__ import annotations

import msgspec


class Line(msgspec.Struct, frozen=True):
    """A line; `is_node`: it names an operator or a binding, to which the more deeply indented lines after it belong."""

    level: int
    text: str
    is_node: bool


class Lines:
    """Lines with their indentation levels; a level is two spaces."""

    def __init__(self) -> None:
        self._lines: list[Line] = []

    def add(self, level: int, text: str, *, node: bool = False) -> None:
        """Append a line."""
        self._lines.append(Line(level, text.rstrip(), node))

    def text(self) -> str:
        """All lines, each with a newline."""
        return "".join(f"{'  ' * line.level}{line.text}\n" for line in self._lines)

    def all(self) -> tuple[Line, ...]:
        """The lines."""
        return tuple(self._lines)
