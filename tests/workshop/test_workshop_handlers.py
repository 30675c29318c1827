"""No exception is swallowed: a handler of more than one kind of failure raises, tells what it caught, or has its reason beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from workshop_sources import Look, Module

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


def handlers(module: Module) -> Iterator[ast.ExceptHandler]:
    """The handlers of what any mistake may raise."""
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler) and kinds(node.type) & BROAD:
            yield node


def silent(module: Module) -> Iterator[int]:
    """The lines of handlers that give no account of what they catch."""
    lines = module.text.splitlines()
    for node in handlers(module):
        inside = [inner for statement in node.body for inner in ast.walk(statement)]
        raises = any(isinstance(inner, ast.Raise) for inner in inside)
        told = node.name is not None and any(
            isinstance(inner, ast.Name) and inner.id == node.name for inner in inside
        )
        reason = any("#" in line for line in lines[node.lineno - 1 : node.end_lineno])
        if not (raises or told or reason):
            yield node.lineno


@Look
def handlers_of(module: Module) -> tuple[list[int], list[int]]:
    """The lines of a module's broad handlers, and of those among them that are silent."""
    return [node.lineno for node in handlers(module)], list(silent(module))


def test_no_exception_is_swallowed() -> None:
    assert len(handlers_of()) > 300
    assert [f"{file}:{line}" for file, (_, lines) in handlers_of().items() for line in lines] == []


def test_the_parser_lets_bugs_through() -> None:
    """Only sqlglot's errors and ours become syntax errors; in the frontend nothing else is caught broadly."""
    rooms = ("mzsql/frontend/parse/", "mzsql/frontend/grammar/")
    broad = {file: lines for file, (lines, _) in handlers_of().items() if file.startswith(rooms)}
    del broad["mzsql/frontend/grammar/dialect.py"]  # its one handler is of sqlglot's build
    del broad["mzsql/frontend/parse/parameters.py"]  # runs methods of the caller's own objects
    assert len(broad) > 15
    assert {file: lines for file, lines in broad.items() if lines} == {}


def test_a_silent_handler_is_seen() -> None:
    def silent_in(caught: str, behind: str = "") -> list[int]:
        text = f"try:\n    f()\nexcept {caught}:\n    x = 1{behind}\n"
        return list(silent(Module("a.py", text)))

    assert silent_in("Exception") == [3]
    assert silent_in("(OSError, KeyError)") == [3]
    assert silent_in("OSError") == []
    assert silent_in("Exception", "  # a reason") == []
