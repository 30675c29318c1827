"""The source files of the engine, its plugins and its examples."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def sources() -> Iterator[tuple[str, ast.Module]]:
    """The modules with their paths from the project's root, one after the other: all trees at once are millions of objects."""
    files = [
        *(ROOT / "mzsql").rglob("*.py"),
        *(ROOT / "plugins").glob("*/src/**/*.py"),
        *(ROOT / "examples").glob("*/src/**/*.py"),
    ]
    for file in sorted(files):
        yield str(file.relative_to(ROOT)), ast.parse(file.read_text())
