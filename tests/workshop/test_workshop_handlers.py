"""No exception is swallowed: a handler of more than one kind of failure raises, tells what it caught, or has its reason beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Of what any mistake in the code may raise.
BROAD = frozenset(
    {"Exception", "BaseException", "TypeError", "AttributeError", "KeyError", "LookupError"}
)


def kinds(caught: ast.expr | None) -> set[str]:
    if caught is None:
        return {"BaseException"}
    if isinstance(caught, ast.Tuple):
        return set().union(*(kinds(one) for one in caught.elts))
    return {ast.unparse(caught).rpartition(".")[2]}


def silent(source: str) -> Iterator[int]:
    """The lines of handlers that give no account of what they catch."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ExceptHandler) or not kinds(node.type) & BROAD:
            continue
        inside = [inner for statement in node.body for inner in ast.walk(statement)]
        raises = any(isinstance(inner, ast.Raise) for inner in inside)
        told = node.name is not None and any(
            isinstance(inner, ast.Name) and inner.id == node.name for inner in inside
        )
        reason = any("#" in line for line in lines[node.lineno - 1 : node.end_lineno])
        if not (raises or told or reason):
            yield node.lineno


def test_no_exception_is_swallowed() -> None:
    files = [*ROOT.glob("mzsql/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]
    assert len(files) > 300
    found = [
        f"{file.relative_to(ROOT)}:{line}" for file in files for line in silent(file.read_text())
    ]
    assert found == []


def test_the_parser_lets_bugs_through() -> None:
    """Only sqlglot's errors and ours become syntax errors; in the frontend nothing else is caught broadly."""
    frontend = ROOT / "mzsql" / "frontend"
    files = [*frontend.glob("parse/*.py"), *frontend.glob("grammar/*.py")]
    files.remove(frontend / "grammar" / "dialect.py")  # its one handler is of sqlglot's build
    files.remove(frontend / "parse" / "parameters.py")  # runs methods of the caller's own objects
    assert len(files) > 15
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ExceptHandler):
                assert not kinds(node.type) & BROAD, f"{file.name}:{node.lineno}"


def test_a_silent_handler_is_seen() -> None:
    quiet = "try:\n    f()\nexcept {}:\n    x = 1{}\n"
    assert list(silent(quiet.format("Exception", ""))) == [3]
    assert list(silent(quiet.format("(OSError, KeyError)", ""))) == [3]
    assert list(silent(quiet.format("OSError", ""))) == []
    assert list(silent(quiet.format("Exception", "  # a reason"))) == []
