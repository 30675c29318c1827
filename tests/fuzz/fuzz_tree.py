"""Generated SQL as a tree of pieces that knows where it can be made smaller.

Promise: `str` of a `Node` is its SQL. `smaller` yields the trees with one thing less: a clause or an element of a list left out, an
expression replaced by one of its own parts of the same type or by a constant, a query by a query inside of it with the same columns.
Not each of them is a statement (a name may have lost its relation): whoever asks runs them and keeps what still shows the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["text", "expr", "query", "clause", "list"]

#: The least constant of each type.
CONSTANTS = {
    "boolean": "true",
    "smallint": "(1)::smallint",
    "integer": "1",
    "bigint": "(1)::bigint",
    "numeric": "1.5",
    "double": "(1)::double precision",
    "text": "'a'",
    "date": "DATE '2020-02-29'",
    "timestamp": "TIMESTAMP '2020-02-29 12:34:56'",
    "real": "(1)::real",
    "time": "TIME '12:34:56'",
    "timestamptz": "TIMESTAMPTZ '2020-02-29 12:34:56+00'",
    "uuid": "('00000000-0000-0000-0000-000000000000'::uuid)",
    "bytea": "('a'::bytea)",
    "jsonb": "('1'::jsonb)",
    "integers": "ARRAY[1]",
    "texts": "ARRAY['a']",
    "range": "int4range(1, 3)",
}


@dataclass(frozen=True)
class Node:
    """A piece of SQL.

    Attributes:
        parts: texts and pieces, in order.
        kind: what may become of it when it is made smaller.
        typ: of an expression its type, of a query its columns' types.
        bound: no value of the expression is further from zero; infinite where arithmetic may fail.
        separator: what stands between the elements of a list.
    """

    parts: tuple[Node | str, ...]
    kind: Kind = "text"
    typ: tuple[str, ...] = ()
    bound: float = math.inf
    separator: str = ""

    def __str__(self) -> str:
        return self.separator.join(map(str, self.parts))


def text(*parts: Node | str) -> Node:
    """A piece that stays as it is, around pieces that need not."""
    return Node(parts)


def expr(typ: str, *parts: Node | str, bound: float = math.inf) -> Node:
    """An expression."""
    return Node(parts, "expr", (typ,), bound)


def clause(*parts: Node | str) -> Node:
    """What may be left out."""
    return Node(parts, "clause")


def listed(separator: str, parts: list[Node]) -> Node:
    """What may lose elements, but for one."""
    return Node(tuple(parts), "list", separator=separator)


def size(node: Node) -> int:
    """How much there is to leave out."""
    return 1 + sum(size(part) for part in node.parts if isinstance(part, Node))


def smaller(root: Node) -> Iterator[Node]:
    """The trees with one thing less, those that lose most first."""
    for path, node in _walk(root, ()):
        for less in _less(node):
            yield _replaced(root, path, less)


def _walk(node: Node, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Node]]:
    """Every piece and its place, level by level."""
    level = [(path, node)]
    while level:
        yield from level
        level = [
            ((*at, place), part)
            for at, above in level
            for place, part in enumerate(above.parts)
            if isinstance(part, Node)
        ]


def _less(node: Node) -> Iterator[Node]:
    if node.kind == "clause":
        yield text()
    elif node.kind == "list" and len(node.parts) > 1:
        for place in range(len(node.parts)):
            yield replace(node, parts=node.parts[:place] + node.parts[place + 1 :])
    elif node.kind in ("expr", "query"):
        inner = (found for _, found in _walk(node, ()) if found is not node)
        yield from (found for found in inner if (found.kind, found.typ) == (node.kind, node.typ))
        if node.kind == "expr" and size(node) > 1 and node.typ[0] in CONSTANTS:
            yield expr(node.typ[0], CONSTANTS[node.typ[0]])


def _replaced(node: Node, path: tuple[int, ...], new: Node) -> Node:
    if not path:
        return new
    parts = list(node.parts)
    part = parts[path[0]]
    assert isinstance(part, Node)
    parts[path[0]] = _replaced(part, path[1:], new)
    return replace(node, parts=tuple(parts))
