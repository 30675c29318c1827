"""The texts of DuckDB's types, as sqlglot writes them, each written once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlglot import expressions as exp
from sqlglot.generators.duckdb import DuckDBGenerator


class Unwritten(Exception):
    """The tree has something that is sqlglot's to write."""


_TYPE = frozenset(("this", "expressions"))


def type_text(node: Any) -> str:
    """A type's text; there are few of them, in many places.

    Raises:
        Unwritten: it is no type of sqlglot's.
    """
    if type(node) is not exp.DataType:
        raise Unwritten(type(node).__name__)
    args = node.args
    params = args.get("expressions")
    key = [args["this"]]
    for param in params or ():
        literal = param.args["this"]
        if type(param) is not exp.DataTypeParam or type(literal) is not exp.Literal:
            return _type_text(_Structure(node))
        key.append(literal.args["this"])
    if any(args.get(name) for name in args if name not in _TYPE):
        return _type_text(_Structure(node))
    return _plain_type(tuple(key))


@lru_cache(maxsize=1024)
def _plain_type(key: tuple[Any, ...]) -> str:
    kind, *params = key
    given = [exp.DataTypeParam(this=exp.Literal.number(one)) for one in params]
    return _by_sqlglot(exp.DataType(this=kind, expressions=given))


class _Structure:
    """A type as a key, equal to others of the same structure."""

    def __init__(self, node: exp.Expression) -> None:
        self.node = node

    def __hash__(self) -> int:
        return hash(self.node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Structure) and bool(self.node == other.node)


@lru_cache(maxsize=1024)
def _type_text(structure: _Structure) -> str:
    return _by_sqlglot(structure.node)


def _by_sqlglot(node: exp.Expression) -> str:
    return DuckDBGenerator(dialect="duckdb", identify=True, comments=False).generate(node)
