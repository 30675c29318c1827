"""Random queries over random tables: joins of every kind, subqueries, set operations, groups, windows, limits, recursion.

Promise: a query has one right answer as a bag of rows, and in order where it says so. What depends on an order has a total one: LIMIT,
DISTINCT ON and ROWS frames order by every column there is. Names are numbered, so that a subquery's never hide those of the queries around
it, which it may read.

`Options` says what may stand in a query: a view has no windows, for example, as no dataflow maintains them.
"""

from __future__ import annotations

import itertools
import random
import re

from fuzz_expressions import Expressions, Ref, Scope
from fuzz_groups import Groups
from fuzz_made import Made, Options, joined, made_of, ordered, qualified
from fuzz_schema import Table, random_kind
from fuzz_sources import Sources, typed_name
from fuzz_tree import Node, clause, listed, text
from fuzz_windows import Windows

ANYTHING = Options()
#: At the end of a query whose rows come in an order.
IN_ORDER = " /* in order */"


class Queries(Sources, Groups, Windows):
    """Queries from a generator of random numbers."""

    def __init__(
        self, rng: random.Random, tables: list[Table], options: Options = ANYTHING
    ) -> None:
        self.rng = rng
        self.tables = tables
        self.options = options
        self.expressions = Expressions(rng, self, rare=options.rare)
        self._names = itertools.count()
        self._ctes: list[tuple[str, Made]] = []

    # --- what others ask for ----------------------------------------------------------------------

    def top(self) -> Node:
        """A query that stands for itself."""
        return self.whole().node

    def whole(self) -> Made:
        """A query that stands for itself, and its columns."""
        kinds = self._kinds(self.rng.randint(1, 4))
        head: list[Node] = []
        recursive = self.options.recursion and self.rng.random() < 0.07
        if recursive:
            head.append(self._recursion())
        if self.rng.random() < 0.15:
            for _ in range(self.rng.randint(1, 2)):
                made = self._any(self._kinds(2), (), 1)
                name = self._name("w")
                self._ctes.append((name, made))
                named = typed_name(name, made.kinds) if recursive else name
                head.append(text(f"{named} AS (", made.node, ")"))
        made = self._any(kinds, (), self.options.depth)
        node = made.node
        if self.rng.random() < 0.25 and ordered(kinds):
            limit = (
                clause(f" LIMIT {self.rng.randint(0, 5)}") if self.rng.random() < 0.3 else text()
            )
            node = Node((*self._ordered(made), limit, IN_ORDER), "query", kinds)
        elif head or self.options.spelled_out:
            # What the query begins with may be a WITH of its own.
            names = ", ".join(f"x{n}" for n in range(len(kinds)))
            node = Node((f"SELECT {names} FROM (", node, f") AS {self._name('q')}"), "query", kinds)
        return Made(self._headed(head, node, recursive=recursive), kinds, made.bounds)

    def _headed(self, head: list[Node], node: Node, *, recursive: bool) -> Node:
        """A query below its CTEs, and below the tables where these are constants."""
        if self.options.spelled_out and not recursive:
            told = " ".join(map(str, (*head, node)))
            used = [t for t in self.tables if re.search(rf"\b{t.name}\b", told)]
            head = [*(text(table.spelled_out()) for table in used), *head]
        if not head:
            return node
        word = "WITH /*mine*/MUTUALLY /*theirs*/RECURSIVE " if recursive else "WITH "
        return Node((word, listed(", ", head), " ", node), "query", node.typ)

    def query(self, kinds: tuple[str, ...], outer: tuple[Ref, ...], depth: int) -> Node:
        """A query with these columns, for IN and its like."""
        return self._any(kinds, qualified(outer), min(depth - 1, 1)).node

    def one_row(self, kind: str, outer: tuple[Ref, ...], depth: int) -> Node:
        """A query of at most one row."""
        outer = qualified(outer)
        if self.rng.random() < 0.5 and self.options.limits and ordered((kind,)):
            made = self._any((kind,), outer, min(depth - 1, 1))
            return Node((*self._ordered(made), " LIMIT 1"), "query", (kind,))
        source, refs = self._source(outer, min(depth - 1, 1))
        around = outer if self.rng.random() < 0.3 else ()
        item = self._aggregate(kind, Scope(refs, around, subqueries=False))
        where = self._where(Scope(refs, outer), depth - 1)
        return Node(("SELECT ", item, " AS x0 FROM ", source, where), "query", (kind,))

    def sorted_column(self, kind: str, outer: tuple[Ref, ...], depth: int) -> Node:
        """A query of one column, its rows in a total order."""
        made = self._any((kind,), qualified(outer), min(depth - 1, 1))
        return Node(self._ordered(made), "query", (kind,))

    def relation(self) -> tuple[Node, tuple[Ref, ...]]:
        """What may stand in a FROM clause, and its columns."""
        return self._source((), 1)

    def table(self) -> tuple[Node, tuple[Ref, ...]]:
        """A table under a name, and its columns."""
        return self._table()

    def condition(self, refs: tuple[Ref, ...]) -> Node:
        """A condition on columns."""
        return self.expressions.predicate(Scope(refs, (), self.options.subqueries), 2)

    # --- whole queries ----------------------------------------------------------------------------

    def _any(self, kinds: tuple[str, ...], outer: tuple[Ref, ...], depth: int) -> Made:
        roll = self.rng.random()
        if depth > 0 and roll < 0.14:
            return self._set_operation(kinds, outer, depth - 1)
        if depth > 0 and roll < 0.21 and self.options.limits and ordered(kinds):
            return self._limited(kinds, outer, depth - 1)
        if depth > 0 and roll < 0.27 and self.options.limits and ordered(kinds):
            return self._distinct_on(kinds, outer, depth - 1)
        if depth > 0 and roll < 0.3:
            return self._with(kinds, outer, depth - 1)
        if roll < 0.5:
            return self._grouped(kinds, outer, depth)
        if roll < 0.58 and self.options.windows:
            made = self._windowed(kinds, outer, depth)
            if made is not None:
                return made
        if roll < 0.62:
            return self._values(kinds, outer)
        return self._select(kinds, outer, depth)

    def _select(self, kinds: tuple[str, ...], outer: tuple[Ref, ...], depth: int) -> Made:
        source, refs = self._source(outer, depth)
        scope = Scope(refs, outer, self.options.subqueries)
        items = [self.expressions.value(kind, scope, depth) for kind in kinds]
        distinct = clause("DISTINCT ") if self.rng.random() < 0.15 else text()
        parts = (
            "SELECT ",
            distinct,
            self._named(items),
            " FROM ",
            source,
            self._where(scope, depth),
        )
        return made_of(parts, items)

    def _named(self, items: list[Node]) -> Node:
        return listed(", ", [text(item, f" AS x{n}") for n, item in enumerate(items)])

    def _with(self, kinds: tuple[str, ...], outer: tuple[Ref, ...], depth: int) -> Made:
        """A query with a CTE of its own, which no other sees."""
        inner = self._any(self._kinds(2), outer, depth)
        name, alias = self._name("w"), self._name("q")
        self._ctes.append((name, inner))
        made = self._any(kinds, outer, depth)
        self._ctes.remove((name, inner))
        names = ", ".join(f"{alias}.x{n}" for n in range(len(kinds)))
        parts = (
            f"WITH {name} AS (",
            inner.node,
            f") SELECT {names} FROM (",
            made.node,
            f") AS {alias}",
        )
        return Made(Node(parts, "query", kinds), kinds, made.bounds)

    def _values(self, kinds: tuple[str, ...], outer: tuple[Ref, ...]) -> Made:
        scope = Scope((), outer, subqueries=False)
        rows = [
            [self.expressions.value(k, scope, 1) for k in kinds]
            for _ in range(self.rng.randint(1, 3))
        ]
        alias = self._name("v")
        columns = ", ".join(f"x{n}" for n in range(len(kinds)))
        values = listed(", ", [text("(", joined(", ", row), ")") for row in rows])
        parts = (f"SELECT {columns} FROM (VALUES ", values, f") AS {alias} ({columns})")
        bounds = tuple(max(item.bound for item in column) for column in zip(*rows, strict=True))
        return Made(Node(parts, "query", kinds), kinds, bounds)

    def _set_operation(self, kinds: tuple[str, ...], outer: tuple[Ref, ...], depth: int) -> Made:
        left, right = self._any(kinds, outer, depth), self._any(kinds, outer, depth)
        word = self.rng.choice(
            ["UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]
        )
        parts = ("(", left.node, f") {word} (", right.node, ")")
        bounds = tuple(map(max, left.bounds, right.bounds))
        return Made(Node(parts, "query", kinds), kinds, bounds)

    # --- orders -----------------------------------------------------------------------------------

    def _ordered(self, made: Made) -> tuple[Node | str, ...]:
        """A query under a name, in an order that is total; without its limit."""
        alias = self._name("q")
        names = ", ".join(f"{alias}.x{n}" for n in range(len(made.kinds)))
        order = [self._direction(f"{alias}.x{n}") for n in range(len(made.kinds))]
        self.rng.shuffle(order)
        return (f"SELECT {names} FROM (", made.node, f") AS {alias} ORDER BY {', '.join(order)}")

    def _direction(self, what: str) -> str:
        return what + self.rng.choice(["", "", " DESC", " ASC", " NULLS FIRST", " DESC NULLS LAST"])

    def _limited(self, kinds: tuple[str, ...], outer: tuple[Ref, ...], depth: int) -> Made:
        made = self._any(kinds, outer, depth)
        limit = clause(f" LIMIT {self.rng.choice([0, 1, 1, 2, 3, 5])}")
        offset = clause(f" OFFSET {self.rng.randint(0, 3)}") if self.rng.random() < 0.4 else text()
        return Made(Node((*self._ordered(made), limit, offset), "query", kinds), kinds, made.bounds)

    def _distinct_on(self, kinds: tuple[str, ...], outer: tuple[Ref, ...], depth: int) -> Made:
        made = self._any(kinds, outer, depth)
        alias = self._name("q")
        names = [f"{alias}.x{n}" for n in range(len(kinds))]
        places = list(range(len(kinds)))
        self.rng.shuffle(places)
        keys = places[: self.rng.randint(1, len(places))]
        order = ", ".join(self._direction(names[n]) for n in places)
        on = ", ".join(names[n] for n in keys)
        parts = (
            f"SELECT DISTINCT ON ({on}) {', '.join(names)} FROM (",
            made.node,
            f") AS {alias} ORDER BY {order}",
        )
        return Made(Node(parts, "query", kinds), kinds, made.bounds)

    # --- small things -----------------------------------------------------------------------------

    def _kinds(self, count: int, *, ordered: bool = False) -> tuple[str, ...]:
        always = ordered or self.rng.random() < 0.7
        rare = self.options.rare
        return tuple(random_kind(self.rng, ordered=always, rare=rare) for _ in range(count))

    def _name(self, letter: str) -> str:
        return f"{letter}{next(self._names)}"
