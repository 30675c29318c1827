"""Which test files reach the place of a fault: the others cannot notice it and need not be asked.

A probe is a call in front of the statement that a fault is in. All faults of a run are probed at once, and each test file runs once, in a
process of its own, so that what a process does only once (a cache filled, Spark started) counts for every file that does it. Processes
that a test starts tell it too, as they find the same modules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path

from mutation_faults import Fault

PROBE = "mutation_probe"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def probe_module(reached: Path) -> str:
    """The text of the module that the probes call; what is reached becomes a file in ``reached``."""
    return (
        "from pathlib import Path\n"
        "_told = set()\n\n\n"
        "def reached(place):\n"
        "    if place not in _told:\n"
        "        _told.add(place)\n"
        f"        (Path({str(reached)!r}) / str(place)).touch()\n"
    )


def place_of(fault: Fault, source: str) -> int | None:
    """The line that a probe of ``fault`` stands in front of; nothing where every import of the module reaches it."""
    lines = source.split("\n")
    around = _around(ast.parse(source), fault.line)
    for depth in range(len(around) - 1, -1, -1):
        if not any(isinstance(one, _FUNCTIONS) for one in around[:depth]):
            return None
        node = around[depth]
        if not isinstance(node, ast.stmt):
            continue
        first = _first_line(node)
        text = lines[first - 1]
        if text[: node.col_offset].strip() in ("", "@") and not text.lstrip().startswith("elif"):
            return first
    return None


def probed(source: str, places: Iterable[tuple[int, int]]) -> str:
    """``source`` with a probe in front of each line.

    Args:
        source: a file's text.
        places: lines, from 1, each with the number that its probe tells.
    """
    lines = source.split("\n")
    for line, number in sorted(places, reverse=True):
        text = lines[line - 1]
        indentation = text[: len(text) - len(text.lstrip())]
        lines.insert(line - 1, f'{indentation}__import__("{PROBE}").reached({number})')
    return "\n".join(lines)


def _around(tree: ast.Module, line: int) -> Sequence[ast.AST]:
    """What the line is in, the outermost first; of a function's own line only what defines it."""
    found: list[ast.AST] = []
    node: ast.AST | None = tree
    while node is not None:
        node = next((child for child in _children(node) if _spans(child, line)), None)
        if node is None:
            break
        found.append(node)
        if isinstance(node, _FUNCTIONS[:2]) and line < _first_line(node.body[0]):
            break
    return found


def _children(node: ast.AST) -> Iterable[ast.AST]:
    for child in ast.iter_child_nodes(node):
        # handlers and cases of a match have no line of their own that a statement could stand in front of
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield child


def _spans(node: ast.AST, line: int) -> bool:
    if isinstance(node, ast.match_case):
        return any(_spans(one, line) for one in node.body)
    if isinstance(node, (ast.stmt, ast.ExceptHandler)):
        return _first_line(node) <= line <= (node.end_lineno or node.lineno)
    return False


def _first_line(node: ast.stmt | ast.ExceptHandler) -> int:
    decorated = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorated)])
