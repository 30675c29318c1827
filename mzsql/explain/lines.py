"""An indented text, line by line."""

from __future__ import annotations


class Lines:
    """Lines with their indentation; a level is two spaces."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, level: int, text: str) -> None:
        """Append a line."""
        self._lines.append(f"{'  ' * level}{text}".rstrip())

    def text(self) -> str:
        """All of it, each line ended by a newline."""
        return "".join(f"{line}\n" for line in self._lines)
