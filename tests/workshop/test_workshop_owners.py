"""No component holds its owner's methods: who makes an object gives it what it needs, not functions that reach back into the maker.

With such functions two classes are one, in two files: neither can be read, made or tested without the other. What is looked for are
arguments of the project's classes, and what is put into attributes of others, that are methods of the class that gives them, or lambdas,
partials and inner functions over its `self`. A thread's own function, or one that is called before the call returns, is none.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from workshop_sources import Look, Module

#: Who may, by class and by what it is given to, with the reason.
PERMITTED = {
    ("Replica.__init__", "Commands"): "a queue with a thread, and what it queues for",
    (
        "Collections.__init__",
        "Followers",
    ): "a follower asks for the reader anew each time: the collection may be gone",
    (
        "DataflowLifecycle._hydration",
        "Hydration",
    ): "what it is at goes out as a status, which is made of all that is known of its dataflow",
    ("DataflowLifecycle._hydration", "HydrationHere"): "likewise",
    (
        "SqliteConsensus.__init__",
        "Database",
    ): "a fork is told to connections, and ends the waits of the store over them",
    (
        "Connection.spark",
        "MzSpark",
    ): "Spark's session runs statements in the connection's transaction, under its lock",
    ("Registered.__init__", "MzSpark"): "likewise: what they define is registered in that session",
    ("BlobContract.site", "BlobSite"): "a kit's contract is subclassed by who opens the backend",
    ("ConsensusContract.site", "ConsensusSite"): "likewise",
    ("OracleContract.site", "OracleSite"): "likewise",
}
_VALUES = ("property", "lazy_property", "cached_property")
#: Stands for a function over `self` that has no name.
_ANY = "self"


@dataclass(frozen=True)
class Class:
    """A class: the names of the methods that stand in it, and of what it inherits from."""

    name: str
    methods: frozenset[str]
    bases: tuple[str, ...]


@dataclass(frozen=True)
class Given:
    """What a method of a class gives to what it makes, or puts there: a name of `self`, or `_ANY`."""

    owner: Class
    where: str
    to: str
    name: str
    line: int


def _last(node: ast.expr) -> str:
    """The last name of an expression like ``package.Name[parameters]``."""
    return ast.unparse(node).partition("[")[0].rpartition(".")[2]


def _class(node: ast.ClassDef) -> Class:
    methods = (
        one.name
        for one in node.body
        if isinstance(one, ast.FunctionDef)
        and not any(_last(mark) in _VALUES for mark in one.decorator_list)
    )
    return Class(node.name, frozenset(methods), tuple(map(_last, node.bases)))


def _over_self(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "self" for one in ast.walk(node))


def _reaching(node: ast.expr, inner: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The names of `self` in an argument; `inner` has what names in the method stand for."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            yield name
        case ast.Name(id=name):
            yield from inner.get(name, ())
        case ast.Lambda() if _over_self(node.body):
            yield _ANY
        case ast.Call(func=func, args=args, keywords=keywords) if _last(func) == "partial":
            for part in (*args, *(one.value for one in keywords)):
                if isinstance(part, ast.Name) and part.id == "self":
                    yield _ANY
                yield from _reaching(part, inner)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.BoolOp(values=parts):
            for part in parts:
                yield from _reaching(part, inner)
        case ast.Dict(values=parts):
            for part in parts:
                yield from _reaching(part, inner)
        case ast.IfExp(body=one, orelse=other):
            yield from _reaching(one, inner)
            yield from _reaching(other, inner)


def _inner(function: ast.FunctionDef) -> dict[str, list[str]]:
    """What names in a method stand for, of those that are functions over `self`."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(function):
        match node:
            case ast.FunctionDef(name=name) if node is not function and _over_self(node):
                found[name] = [_ANY]
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).extend(_reaching(value, {}))
    return found


def _is_class(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


def _made_by(node: ast.expr) -> Iterator[str]:
    """The classes that an expression may stand for."""
    match node:
        case ast.Name() | ast.Attribute() if _is_class(_last(node)):
            yield _last(node)
        case ast.IfExp(body=one, orelse=other):
            yield from _made_by(one)
            yield from _made_by(other)


def _kinds(function: ast.FunctionDef) -> dict[str, list[str]]:
    """Which classes names in a method stand for."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).extend(_made_by(value))
    return found


def _given(owner: Class, function: ast.FunctionDef) -> Iterator[Given]:
    inner, kinds = _inner(function), _kinds(function)
    for node in ast.walk(function):
        to: Sequence[str] = ()
        given: list[ast.expr] = []
        match node:
            case ast.Call(func=func, args=args, keywords=keywords):
                made = _last(func)
                to = [made] if _is_class(made) else kinds.get(made, ())
                given = [*args, *(one.value for one in keywords)]
            case ast.Assign(targets=[ast.Attribute(value=other) as target], value=value):
                if not (isinstance(other, ast.Name) and other.id == "self"):
                    to, given = [ast.unparse(target)], [value]
        for one in given if to else ():
            for name, whom in itertools.product(_reaching(one, inner), to):
                yield Given(owner, f"{owner.name}.{function.name}", whom, name, one.lineno)


def looked(module: Module) -> tuple[list[Class], list[Given]]:
    """A module's classes, and what they give to what they make."""
    classes: list[Class] = []
    given: list[Given] = []
    for node in module.nodes:
        if isinstance(node, ast.ClassDef):
            classes.append(_class(node))
            for function in (one for one in node.body if isinstance(one, ast.FunctionDef)):
                given += _given(classes[-1], function)
    return classes, given


found_in = Look(looked)


def handed(found: Mapping[str, tuple[list[Class], list[Given]]]) -> Iterator[tuple[str, Given]]:
    """Where a class's methods are handed to what it makes, with the module."""
    classes: dict[str, list[Class]] = {}
    for one in (one for of_module, _ in found.values() for one in of_module):
        classes.setdefault(one.name, []).append(one)

    def methods(of: Class, seen: frozenset[str] = frozenset()) -> frozenset[str]:
        bases = (
            methods(one, seen | {base})
            for base in of.bases
            if base not in seen
            for one in classes.get(base, ())
        )
        return of.methods.union(*bases)

    for file, (_, given) in found.items():
        for one in given:
            is_put = "." in one.to
            if (is_put or one.to in classes) and one.name in {_ANY, *methods(one.owner)}:
                yield file, one


def test_no_component_holds_its_owners_methods() -> None:
    found = list(handed(found_in()))
    reaching = [
        f"{file}:{one.line}: {one.where} gives {one.to} its own {one.name}"
        for file, one in found
        if (one.where, one.to) not in PERMITTED
    ]
    assert not reaching, "\n".join(reaching)
    there = {(one.where, one.to) for _, one in found}
    assert there == PERMITTED.keys(), "permitted, and not there"


def test_one_that_does_is_seen() -> None:
    source = """
class Part:
    def __init__(self, *given, **named): ...

class Base:
    def inherited(self): ...

class Owner(Base):
    def __init__(self, other):
        self.state = 1
        def inside():
            return self.state
        alias = self.own
        kind = Part if other else Unknown
        {}

    def own(self): ...

    @property
    def value(self): ...
"""
    for text in (
        "Part(self.own)",
        "Part(call=self.own)",
        "Part(self.inherited)",
        "Part(lambda: self.state)",
        "Part(partial(self.own, 1))",
        "Part(inside)",
        "Part(alias)",
        "kind(call=self.own)",
        "Part({'call': self.own})",
        "other.call = self.own",
    ):
        found = handed({"m": looked(Module("m", source.format(text)))})
        assert [one.where for _, one in found] == ["Owner.__init__"], text
    for text in ("Part(self.value)", "Part(self.state)", "Part(self.state.call)", "open(self.own)"):
        assert not list(handed({"m": looked(Module("m", source.format(text)))})), text
