"""The source files of the engine, its plugins and its examples, and what tests look for in them."""

from __future__ import annotations

import ast
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

ROOT = Path(__file__).resolve().parents[2]
T = TypeVar("T")


@dataclass(frozen=True)
class Module:
    """A module: its path from the project's root, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The module parsed."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree."""
        return list(ast.walk(self.tree))


def is_engine(path: str) -> bool:
    """Whether a module is of the engine itself; what only tests the engine is not."""
    return path.startswith("mzsql/") and not path.startswith("mzsql/testing/")


class Look(Generic[T]):
    """What a test wants to know of each module: a function, called in the one pass over the modules that all looks share.

    Parsing all modules takes seconds, and their trees at once are a million objects that each collection of garbage would go through; so
    no tree is kept, only what was found, and the looks of all test files that are loaded are taken at the first question.
    """

    def __init__(self, function: Callable[[Module], T]) -> None:
        self._function = function
        self._found: dict[str, T] | None = None
        _LOOKS.append(self)

    def __call__(self) -> dict[str, T]:
        """What was found, by the modules' paths."""
        if self._found is None:
            _look()
        assert self._found is not None
        return self._found

    def of(self, module: Module) -> T:
        """What is found in one module."""
        return self._function(module)

    def take(self, module: Module) -> None:
        """Look at a module, for the answer."""
        if self._found is None:
            self._found = {}
        self._found[module.path] = self.of(module)

    @property
    def taken(self) -> bool:
        """Whether there is an answer."""
        return self._found is not None


_LOOKS: list[Look[Any]] = []


def _look() -> None:
    waiting = [look for look in _LOOKS if not look.taken]
    collects = gc.isenabled()
    gc.disable()  # a tree has no circles: what is dropped is gone
    try:
        for module in modules():
            for look in waiting:
                look.take(module)
    finally:
        if collects:
            gc.enable()


def modules() -> Iterator[Module]:
    """The modules, one after the other."""
    files = [
        *(ROOT / "mzsql").rglob("*.py"),
        *(ROOT / "plugins").glob("*/src/**/*.py"),
        *(ROOT / "examples").glob("*/src/**/*.py"),
    ]
    for file in sorted(files):
        yield Module(file.relative_to(ROOT).as_posix(), file.read_text())
