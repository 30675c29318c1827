"""What the parts of the generator of queries hand each other."""

from __future__ import annotations

from dataclasses import dataclass

from fuzz_expressions import Ref
from fuzz_schema import UNORDERED, Table
from fuzz_tree import Node, text

#: More than the rows that any query here can have in a group, times what sums them.
ROWS = 1e5


@dataclass(frozen=True)
class Options:
    """What may stand in a query.

    Attributes:
        rare: whether the types that stand in one column of five do.
        recursion: whether WITH MUTUALLY RECURSIVE does.
        spelled_out: whether the tables are constants, which the optimizer folds.
        depth: how many queries may stand in another.
    """

    windows: bool = True
    subqueries: bool = True
    limits: bool = True
    rare: bool = True
    recursion: bool = True
    spelled_out: bool = False
    depth: int = 3


@dataclass(frozen=True)
class Made:
    """A query, and its columns as whoever reads it under a name sees them."""

    node: Node
    kinds: tuple[str, ...]
    bounds: tuple[float, ...]

    def refs(self, alias: str) -> tuple[Ref, ...]:
        """Its columns under a relation's name; they are called x0, x1, …"""
        return tuple(
            Ref(text(f"{alias}.x{n}"), kind, bound)
            for n, (kind, bound) in enumerate(zip(self.kinds, self.bounds, strict=True))
        )


def made_of(parts: tuple[Node | str, ...], items: list[Node]) -> Made:
    """A query of these items."""
    kinds = tuple(item.typ[0] for item in items)
    return Made(Node(parts, "query", kinds), kinds, tuple(item.bound for item in items))


def ordered(kinds: tuple[str, ...]) -> bool:
    """Whether rows of these types have an order that everybody knows."""
    return not UNORDERED & set(kinds)


def qualified(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
    """Those that a query inside can read: a merged column's plain name may be one of its own."""
    return tuple(ref for ref in refs if "." in str(ref.sql))


def columns_of(table: Table, alias: str) -> tuple[Ref, ...]:
    """A table's columns under a name."""
    return tuple(Ref(text(f"{alias}.{c.name}"), c.kind, c.bound) for c in table.columns)


def joined(separator: str, parts: list[Node]) -> Node:
    """Pieces that all stay."""
    return Node(tuple(parts), separator=separator)


def reads(node: Node, refs: tuple[Ref, ...]) -> bool:
    """Whether an expression reads one of the columns."""
    leaves = leaves_of(node)
    return any(ref.sql in leaves for ref in refs)


def leaves_of(node: Node) -> list[Node]:
    """An expression and all in it."""
    return [
        node,
        *(leaf for part in node.parts if isinstance(part, Node) for leaf in leaves_of(part)),
    ]
