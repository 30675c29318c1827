"""No component holds its owner's methods: who makes an object gives it what it needs, not functions that reach back into the maker.

With such functions two classes are one, in two files: neither can be read, made or tested without the other. What is looked for are
arguments of the project's classes, and what is put into attributes of others, that are methods of the class that gives them, or lambdas,
partials and inner functions over its `self`. A thread's own function, or one that is called before the call returns, is none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from workshop_sources import sources

#: Who may, by class and by what it is given to, with the reason.
PERMITTED = {
    ("Replica.__init__", "Commands"): "a queue with a thread, and what it queues for",
    (
        "Collections.__init__",
        "Followers",
    ): "a follower asks for the reader anew each time: the collection may be gone",
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

Classes = Mapping[str, Sequence[ast.ClassDef]]


def _last(node: ast.expr) -> str:
    """The last name of an expression like ``package.Name[parameters]``."""
    return ast.unparse(node).partition("[")[0].rpartition(".")[2]


def _methods(cls: ast.ClassDef, classes: Classes, seen: frozenset[str] = frozenset()) -> set[str]:
    """The names of a class's methods, with those that it inherits."""
    own = {
        one.name
        for one in cls.body
        if isinstance(one, ast.FunctionDef)
        and not any(_last(mark) in _VALUES for mark in one.decorator_list)
    }
    for base in map(_last, cls.bases):
        if base not in seen:
            for found in classes.get(base, ()):
                own |= _methods(found, classes, seen | {base})
    return own


def _over_self(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "self" for one in ast.walk(node))


def _reaching(node: ast.expr, methods: set[str], inner: set[str]) -> Iterator[ast.expr]:
    """The parts of an argument that reach back: `inner` are names of such functions."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in methods:
            yield node
        case ast.Name(id=name) if name in inner:
            yield node
        case ast.Lambda() if _over_self(node.body):
            yield node
        case ast.Call(func=func, args=args, keywords=keywords) if _last(func) == "partial":
            for part in (*args, *(one.value for one in keywords)):
                if isinstance(part, ast.Name) and part.id == "self":
                    yield part
                yield from _reaching(part, methods, inner)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.BoolOp(values=parts):
            for part in parts:
                yield from _reaching(part, methods, inner)
        case ast.Dict(values=parts):
            for part in parts:
                yield from _reaching(part, methods, inner)
        case ast.IfExp(body=one, orelse=other):
            yield from _reaching(one, methods, inner)
            yield from _reaching(other, methods, inner)


def _inner(function: ast.FunctionDef, methods: set[str]) -> set[str]:
    """The names in a method that stand for functions over `self`."""
    found = set[str]()
    for node in ast.walk(function):
        match node:
            case ast.FunctionDef(name=name) if node is not function and _over_self(node):
                found.add(name)
            case ast.Assign(targets=targets, value=value) if any(_reaching(value, methods, set())):
                found.update(one.id for one in targets if isinstance(one, ast.Name))
    return found


def handed(tree: ast.Module, classes: Classes) -> Iterator[tuple[str, str, int]]:
    """Where a class's methods are handed to what it makes: the method that does, what it makes, and the line."""
    for cls in (one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)):
        methods = _methods(cls, classes)
        for function in (one for one in cls.body if isinstance(one, ast.FunctionDef)):
            where, inner = f"{cls.name}.{function.name}", _inner(function, methods)
            for node in ast.walk(function):
                given: list[ast.expr] = []
                match node:
                    case ast.Call(func=func, args=args, keywords=keywords):
                        to = _last(func)
                        if to in classes and to.lstrip("_")[:1].isupper():
                            given = [*args, *(one.value for one in keywords)]
                    case ast.Assign(targets=[ast.Attribute(value=owner) as target], value=value):
                        to = ast.unparse(target)
                        if not (isinstance(owner, ast.Name) and owner.id == "self"):
                            given = [value]
                for one in given:
                    for found in _reaching(one, methods, inner):
                        yield where, to, found.lineno


def _classes(trees: Sequence[ast.Module]) -> dict[str, list[ast.ClassDef]]:
    made: dict[str, list[ast.ClassDef]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                made.setdefault(node.name, []).append(node)
    return made


def test_no_component_holds_its_owners_methods() -> None:
    trees = dict(sources())
    classes = _classes(list(trees.values()))
    found = [(file, *one) for file, tree in trees.items() for one in handed(tree, classes)]
    reaching = [
        f"{file}:{line}: {where} gives {to} its own"
        for file, where, to, line in found
        if (where, to) not in PERMITTED
    ]
    assert not reaching, "\n".join(reaching)
    assert {(where, to) for _, where, to, _ in found} == PERMITTED.keys(), (
        "permitted, and not there"
    )


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
        "Part({'call': self.own})",
        "other.call = self.own",
    ):
        tree = ast.parse(source.format(text))
        assert [one[:1] for one in handed(tree, _classes([tree]))] == [("Owner.__init__",)], text
    for text in ("Part(self.value)", "Part(self.state)", "Part(self.state.call)", "open(self.own)"):
        tree = ast.parse(source.format(text))
        assert not list(handed(tree, _classes([tree]))), text
