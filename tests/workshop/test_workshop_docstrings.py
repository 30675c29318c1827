"""Whoever calls a public function reads in its docstring what it gives and which errors it raises.

Looked at are the errors that a function raises itself, not those of what it calls, which have docstrings of their own. An error that
the function catches again is not its caller's business. A command's docstring is what `--help` prints, so it tells of no exceptions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from workshop_sources import Look, Module

_UNTOLD = ("overload", "override", ".setter", ".deleter")
#: An error's class, or another function whose errors they are; not what a value that is returned does later.
_TOLD_IN_PROSE = re.compile(r"^Raise [A-Z]|\b[Rr]aises (as\b|what\b|`?[A-Z])", re.MULTILINE)
_COMMAND = (".command(", ".callback(")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Found:
    """A public function, and where it stands."""

    place: str
    node: Function

    @property
    def decorators(self) -> str:
        return " ".join(ast.unparse(one) for one in self.node.decorator_list)


def public_functions(body: Sequence[ast.stmt], place: str) -> Iterator[Found]:
    """The public functions of a module or class, those of its public classes included."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if not node.name.startswith("_"):
                yield Found(f"{place}{node.name}", node)
            case ast.ClassDef() if not node.name.startswith("_"):
                yield from public_functions(node.body, f"{place}{node.name}.")
            case ast.If() | ast.Try() | ast.With():
                yield from public_functions(node.body, place)


def _catches(handler: ast.ExceptHandler, raised: str) -> bool:
    caught = "Exception" if handler.type is None else ast.unparse(handler.type)
    return bool({"Exception", "BaseException", raised} & set(re.findall(r"\w+", caught)))


def raised_by(node: Function) -> set[str]:
    """The classes that a function raises itself; "" where another function makes the error."""
    found: set[str] = set()

    def look(one: ast.AST, around: tuple[ast.ExceptHandler, ...]) -> None:
        match one:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
                return
            case ast.Raise(exc=ast.expr() as error):
                made = error.func if isinstance(error, ast.Call) else error
                name = made.id if isinstance(made, ast.Name) else ast.unparse(made)
                kind = name.rsplit(".", maxsplit=1)[-1]
                if not any(_catches(handler, kind) for handler in around):
                    found.add(kind if kind[:1].isupper() else "")
            case ast.Try():
                for part in one.body:
                    look(part, (*around, *one.handlers))
                for part in (*one.handlers, *one.orelse, *one.finalbody):
                    look(part, around)
                return
        for below in ast.iter_child_nodes(one):
            look(below, around)

    for statement in node.body:
        look(statement, ())
    return found


def shortcomings(found: Found) -> Iterator[str]:
    """What a function's docstring lacks."""
    text = ast.get_docstring(found.node)
    if text is None:
        if not any(word in found.decorators for word in _UNTOLD):
            yield f"{found.place} has no docstring"
        return
    if _TOLD_IN_PROSE.search(text.partition("Raises:")[0]):
        yield f"{found.place} tells in prose what it raises, not in a section Raises"
    raised = raised_by(found.node)
    if not raised or any(word in found.decorators for word in _COMMAND):
        return
    if "Raises:" not in text:
        yield f"{found.place} raises {', '.join(sorted(raised - {''})) or 'an error'}, and has no section Raises"


@Look
def lacking_in(module: Module) -> list[str]:
    """What the docstrings of a module lack."""
    found = public_functions(module.tree.body, "")
    return [text for one in found for text in shortcomings(one)]


def test_docstrings_say_what_functions_raise() -> None:
    lacking = [f"{file}: {text}" for file, texts in lacking_in().items() for text in texts]
    assert not lacking, "\n".join(lacking)


@pytest.mark.parametrize(
    ("text", "lacking"),
    [
        ("def f():\n    '''Be.'''\n    raise ValueError('no')", True),
        ("def f():\n    '''Be.\n\n    Raises:\n        ValueError: no.\n    '''\n    raise ValueError", False),
        ("def f():\n    '''Be.'''\n    try:\n        raise ValueError\n    except (KeyError, ValueError):\n        pass", False),
        ("def f():\n    '''Be.'''\n    try:\n        go()\n    except ValueError:\n        raise wrong() from None", True),
        ("def f():\n    '''Be.'''\n    try:\n        go()\n    except ValueError:\n        raise", False),
        ("def f():\n    pass", True),
        ("def f():\n    '''Be; raises as `g`.'''\n    g()", True),
        ("def f():\n    '''Raise Absent where it is not there.'''\n    g()", True),
        ("def f():\n    '''Raise both to at least `ts`.'''\n    g()", False),
        ("class A:\n    def f(self):\n        '''Be.'''\n        if self:\n            raise self.failed()", True),
        ("class _A:\n    def f(self):\n        raise self.failed()", False),
        ("def _f():\n    raise ValueError", False),
        ("def f():\n    '''Be.'''\n    def g():\n        raise ValueError\n    return g", False),
        ("@app.command()\ndef f():\n    '''Be.'''\n    raise Exit(1)", False),
    ],
)  # fmt: skip
def test_what_is_looked_for(text: str, lacking: bool) -> None:
    found = [one for f in public_functions(ast.parse(text).body, "") for one in shortcomings(f)]
    assert bool(found) == lacking
