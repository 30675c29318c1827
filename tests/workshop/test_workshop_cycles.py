"""No modules of the engine import each other in a circle, not from inside of functions either, nor for types alone.

`lint-imports` holds rooms to their order; this tells a circle inside of a room by the modules on it, without being asked for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

import pytest
from workshop_sources import Look, Module


@Look
def imports_of(module: Module) -> tuple[set[str], set[str]]:
    """The names that a module imports from the engine, wherever in it: when it runs, and for types alone."""
    for_types = {
        id(node)
        for block in module.nodes
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for statement in block.body
        for node in ast.walk(statement)
    }
    running, typing = set[str](), set[str]()
    for node in module.nodes:
        (typing if id(node) in for_types else running).update(_imported(node))
    return running, typing


def _imported(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ImportFrom(module=str(module), level=0):
            yield from (f"{module}.{alias.name}" for alias in node.names)
        case ast.Import():
            yield from (alias.name for alias in node.names)


def _name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def graph(found: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """From each module to those that it imports; a name that is no module is of the module before its last dot."""
    return {
        module: {
            one if one in found else one.rpartition(".")[0]
            for one in names
            if one in found or one.rpartition(".")[0] in found
        }
        - {module}
        for module, names in found.items()
    }


def circle(found: Mapping[str, set[str]]) -> list[str]:
    """The modules of a circle; empty if there is none."""
    try:
        TopologicalSorter(graph(found)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _engine(*, types: bool) -> dict[str, set[str]]:
    return {
        _name(path): running | typing if types else running
        for path, (running, typing) in imports_of().items()
        if path.startswith("mzsql/")
    }


@pytest.mark.parametrize("types", [False, True], ids=["running", "types"])
def test_no_modules_import_each_other_in_a_circle(types: bool) -> None:
    found = _engine(types=types)
    assert sum(map(len, graph(found).values())) > 3000
    assert circle(found) == []


def test_a_circle_is_seen() -> None:
    late = Module("a/b.py", "def f():\n    from a.c import g\n    return g")
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import b"
    assert imports_of.of(late) == ({"a.c.g"}, set())
    assert imports_of.of(Module("a/c.py", typed)) == ({"typing.TYPE_CHECKING"}, {"a.b"})
    assert set(circle({"a.b": {"a.c.g"}, "a.c": {"a.b"}})) == {"a.b", "a.c"}
    assert circle({"a.b": {"a.c.g"}, "a.c": {"a.d.h"}}) == []
