"""Random queries over random tables: joins of every kind, subqueries, set operations, groups, windows, limits.

Promise: a query has one right answer as a bag of rows. What depends on an order has a total one: LIMIT, DISTINCT ON and ROWS frames order
by every column there is. Names are numbered, so that a subquery's never hide those of the queries around it, which it may read.

`Options` says what may stand in a query: a view has no windows, for example, as no dataflow maintains them.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

from fuzz_expressions import INTEGERS, Expressions, Ref, Scope, without_subqueries
from fuzz_schema import KINDS, Table
from fuzz_tree import Node, clause, expr, listed, text

#: More than the rows that any query here can have in a group, times what sums them.
_ROWS = 1e5


@dataclass(frozen=True)
class Options:
    """What may stand in a query."""

    windows: bool = True
    subqueries: bool = True
    limits: bool = True
    depth: int = 3


ANYTHING = Options()


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


class Queries:
    """Queries from a generator of random numbers."""

    def __init__(
        self, rng: random.Random, tables: list[Table], options: Options = ANYTHING
    ) -> None:
        self.rng = rng
        self.tables = tables
        self.options = options
        self.expressions = Expressions(rng, self)
        self._names = itertools.count()
        self._ctes: list[tuple[str, Made]] = []

    # --- what others ask for ----------------------------------------------------------------------

    def top(self) -> Node:
        """A query that stands for itself."""
        kinds = self._kinds(self.rng.randint(1, 4))
        head: list[Node] = []
        if self.rng.random() < 0.15:
            for _ in range(self.rng.randint(1, 2)):
                made = self._any(self._kinds(2), (), 1)
                name = self._name("w")
                self._ctes.append((name, made))
                head.append(text(f"{name} AS (", made.node, ")"))
        made = self._any(kinds, (), self.options.depth)
        if not head:
            return made.node
        return Node(("WITH ", listed(", ", head), " ", made.node), "query", kinds)

    def query(self, kinds: tuple[str, ...], outer: tuple[Ref, ...], depth: int) -> Node:
        """A query with these columns, for IN and its like."""
        return self._any(kinds, qualified(outer), min(depth - 1, 1)).node

    def one_row(self, kind: str, outer: tuple[Ref, ...], depth: int) -> Node:
        """A query of at most one row."""
        outer = qualified(outer)
        if self.rng.random() < 0.5 and self.options.limits:
            made = self._any((kind,), outer, min(depth - 1, 1))
            return Node((*self._ordered(made), " LIMIT 1"), "query", (kind,))
        source, refs = self._source(outer, min(depth - 1, 1))
        item = self._aggregate(kind, Scope(refs, subqueries=False))
        where = self._where(Scope(refs, outer), depth - 1)
        return Node(("SELECT ", item, " AS x0 FROM ", source, where), "query", (kind,))

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
        if depth > 0 and roll < 0.22 and self.options.limits:
            return self._limited(kinds, outer, depth - 1)
        if depth > 0 and roll < 0.28 and self.options.limits:
            return self._distinct_on(kinds, outer, depth - 1)
        if roll < 0.48:
            return self._grouped(kinds, outer, depth)
        if roll < 0.56 and self.options.windows:
            return self._windowed(kinds, outer, depth)
        if roll < 0.6:
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
        return _made(parts, items)

    def _named(self, items: list[Node]) -> Node:
        return listed(", ", [text(item, f" AS x{n}") for n, item in enumerate(items)])

    def _where(self, scope: Scope, depth: int, chance: float = 0.6) -> Node:
        if self.rng.random() > chance:
            return text()
        if depth <= 0 or not self.options.subqueries:
            scope = without_subqueries(scope)
        return clause(" WHERE ", self.expressions.predicate(scope, min(max(depth, 1), 2)))

    def _values(self, kinds: tuple[str, ...], outer: tuple[Ref, ...]) -> Made:
        scope = Scope((), outer, subqueries=False)
        rows = [
            [self.expressions.value(k, scope, 1) for k in kinds]
            for _ in range(self.rng.randint(1, 3))
        ]
        alias = self._name("v")
        columns = ", ".join(f"x{n}" for n in range(len(kinds)))
        values = listed(", ", [text("(", _joined(", ", row), ")") for row in rows])
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

    # --- groups -----------------------------------------------------------------------------------

    def _grouped(self, kinds: tuple[str, ...], outer: tuple[Ref, ...], depth: int) -> Made:
        source, refs = self._source(outer, depth)
        scope = Scope(refs, (), subqueries=False)
        keys: list[Ref] = []
        for _ in range(self.rng.choice([0, 1, 1, 2])):
            if refs and self.rng.random() < 0.8:
                keys.append(self.rng.choice(refs))
            else:
                kind = self.rng.choice(KINDS)
                made = self.expressions.value(kind, scope, 1)
                if any(ref.sql in _leaves(made) for ref in refs):
                    keys.append(Ref(made, kind, made.bound))
        # An aggregate is a leaf of the expressions over a group, as its keys are.
        wanted = {*kinds, *self.rng.sample(KINDS, 2)}
        leaves = [
            Ref(a, kind, a.bound) for kind in sorted(wanted) for a in [self._aggregate(kind, scope)]
        ]
        grouped = Scope((*keys, *keys, *leaves), outer, subqueries=False)
        items = [self.expressions.value(kind, grouped, min(depth, 1)) for kind in kinds]
        parts: list[Node | str] = ["SELECT ", self._named(items), " FROM ", source]
        parts.append(self._where(Scope(refs, outer), depth, 0.4))
        if keys:
            parts += [" GROUP BY ", listed(", ", [key.sql for key in keys])]
        else:
            # So that it is a group whatever the items are.
            parts.append(" HAVING count(*) >= 0")
        if self.rng.random() < 0.3:
            condition = self.expressions.predicate(grouped, 1)
            parts += [clause(" HAVING ", condition) if keys else clause(" AND ", condition)]
        return _made(tuple(parts), items)

    def _aggregate(self, kind: str, scope: Scope) -> Node:
        """An aggregate of a type, over a scope without other queries' columns."""
        rng, made = self.rng, self.expressions.value
        distinct = text("DISTINCT ") if rng.random() < 0.2 else text()
        where = (
            clause(" FILTER (WHERE ", self.expressions.predicate(scope, 1), ")")
            if rng.random() < 0.2
            else text()
        )
        if kind == "boolean":
            name = rng.choice(["bool_and", "bool_or"])
            return expr(kind, f"{name}(", distinct, made(kind, scope, 2), ")", where)
        if kind == "bigint" and rng.random() < 0.8:
            match rng.randrange(3):
                case 0:
                    return expr(kind, "count(*)", where, bound=_ROWS)
                case 1:
                    other = made(rng.choice(KINDS), scope, 1)
                    return expr(kind, "count(", distinct, other, ")", where, bound=_ROWS)
                case _:
                    of = made(rng.choice(["smallint", "integer"]), scope, 2)
                    return expr(kind, "sum(", distinct, of, ")", where, bound=of.bound * _ROWS)
        if kind == "numeric" and rng.random() < 0.7:
            of = rng.choice([*INTEGERS, "numeric"])
            inner = made(of, scope, 2, 1e12)
            if of in ("bigint", "numeric") and rng.random() < 0.5:
                return expr(kind, "sum(", distinct, inner, ")", where, bound=inner.bound * _ROWS)
            name = rng.choice(["avg", "avg", "var_pop", "stddev"])
            if name != "avg":
                inner = made(rng.choice(INTEGERS), scope, 1, 1000)
            return expr(kind, f"round({name}(", distinct, inner, ")", where, ", 3)")
        if kind == "double" and rng.random() < 0.3:
            return expr(kind, "sum(", made(kind, scope, 0, 101), ")", where, bound=101 * _ROWS)
        if kind == "text" and rng.random() < 0.4:
            inner = made(kind, scope, 1, 20)
            return expr(
                kind,
                "string_agg(",
                inner,
                ", ',' ORDER BY ",
                self._direction(str(inner)),
                ")",
                where,
                bound=math.inf,
            )
        inner = made(kind, scope, 2)
        return expr(kind, f"{rng.choice(['min', 'max'])}(", inner, ")", where, bound=inner.bound)

    # --- windows ----------------------------------------------------------------------------------

    def _windowed(self, kinds: tuple[str, ...], outer: tuple[Ref, ...], depth: int) -> Made:
        if depth > 0 and self.rng.random() < 0.5:
            inner = self._any(self._kinds(3), outer, depth - 1)
            alias = self._name("q")
            source, refs = text("(", inner.node, f") AS {alias}"), inner.refs(alias)
        else:
            source, refs = self._table()
        scope = Scope(refs, (), subqueries=False)
        leaves = [Ref(self._window(kind, scope), kind, math.inf) for kind in kinds]
        windowed = Scope((*refs, *leaves, *leaves), outer, subqueries=False)
        items = [self.expressions.value(kind, windowed, min(depth, 1)) for kind in kinds]
        parts = (
            "SELECT ",
            self._named(items),
            " FROM ",
            source,
            self._where(Scope(refs, outer), 0, 0.3),
        )
        return _made(parts, items)

    def _window(self, kind: str, scope: Scope) -> Node:
        rng = self.rng
        total = [self._direction(str(ref.sql)) for ref in scope.own]
        rng.shuffle(total)
        partition = ""
        if rng.random() < 0.6:
            partition = f"PARTITION BY {rng.choice(scope.own).sql} "
        ordered = f"({partition}ORDER BY {', '.join(total)}"
        inner = self.expressions.value(kind, scope, 1)
        if kind == "text":
            # PostgreSQL has no type for a bare constant in first_value and its like.
            inner = expr(kind, "(", inner, ")::text", bound=inner.bound)
        if kind == "bigint" and rng.random() < 0.5:
            some = ", ".join(total[: rng.randint(1, len(total))])
            name = rng.choice(["row_number", "rank", "dense_rank"])
            window = f"{ordered})" if name == "row_number" else f"({partition}ORDER BY {some})"
            return expr(kind, f"{name}() OVER {window}")
        match rng.randrange(3):
            case 0:
                name = rng.choice(["lag", "lead"])
                offset = clause(
                    f", {rng.randint(0, 3)}", clause(", ", self.expressions.value(kind, scope, 0))
                )
                return expr(kind, f"{name}(", inner, offset, f") OVER {ordered})")
            case 1:
                name = rng.choice(["first_value", "last_value"])
                return expr(kind, f"{name}(", inner, f") OVER {ordered}", self._frame(), ")")
            case _:
                aggregate = self._aggregate(kind, scope)
                if (
                    "DISTINCT " in str(aggregate)
                    or "string_agg" in str(aggregate)
                    or "round(" in str(aggregate)
                ):
                    aggregate = expr(
                        kind, f"{'bool_or' if kind == 'boolean' else 'max'}(", inner, ")"
                    )
                frame = self._frame()
                if not frame.parts and rng.random() < 0.5:
                    some = ", ".join(total[: rng.randint(1, len(total))])
                    return expr(kind, aggregate, f" OVER ({partition}ORDER BY {some})")
                if rng.random() < 0.2:
                    return expr(kind, aggregate, f" OVER ({partition})")
                return expr(kind, aggregate, f" OVER {ordered}", frame, ")")

    def _frame(self) -> Node:
        if self.rng.random() < 0.5:
            return text()
        start = self.rng.choice(
            ["UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW"]
        )
        end = self.rng.choice(["UNBOUNDED FOLLOWING", "1 FOLLOWING", "CURRENT ROW"])
        return clause(f" ROWS BETWEEN {start} AND {end}")

    # --- FROM -------------------------------------------------------------------------------------

    def _source(self, outer: tuple[Ref, ...], depth: int) -> tuple[Node, tuple[Ref, ...]]:
        roll = self.rng.random()
        if roll < 0.12:
            return self._joined_by_name()
        source, refs = self._item(outer, depth)
        parts: list[Node | str] = [source]
        for _ in range(
            self.rng.choice([0, 0, 1, 1, 2]) if depth > 0 else self.rng.choice([0, 0, 0, 1])
        ):
            joined, more = self._join(refs, outer, depth)
            parts.append(joined)
            refs = (*refs, *more)
        return Node(tuple(parts)), refs

    def _item(self, outer: tuple[Ref, ...], depth: int) -> tuple[Node, tuple[Ref, ...]]:
        roll = self.rng.random()
        if self._ctes and roll < 0.4:
            name, made = self.rng.choice(self._ctes)
            alias = self._name("q")
            return text(f"{name} AS {alias}"), made.refs(alias)
        if depth > 0 and roll > 0.75:
            # A derived table does not see its neighbours, but it does see the queries around.
            made = self._any(self._kinds(self.rng.randint(1, 3)), outer, depth - 1)
            alias = self._name("q")
            return text("(", made.node, f") AS {alias}"), made.refs(alias)
        if roll > 0.72:
            alias = self._name("g")
            stop = self.rng.randint(0, 4)
            return text(f"generate_series(1, {stop}) AS {alias} (x0)"), (
                Ref(text(f"{alias}.x0"), "integer", 5),
            )
        return self._table()

    def _table(self) -> tuple[Node, tuple[Ref, ...]]:
        table = self.rng.choice(self.tables)
        alias = self._name("t")
        return text(f"{table.name} AS {alias}"), _columns(table, alias)

    def _join(
        self, refs: tuple[Ref, ...], outer: tuple[Ref, ...], depth: int
    ) -> tuple[Node, tuple[Ref, ...]]:
        word = self.rng.choice(["CROSS", "INNER", "INNER", "LEFT", "LEFT", "RIGHT", "FULL", ","])
        if word in ("CROSS", "LEFT", ",", "INNER") and depth > 0 and self.rng.random() < 0.2:
            made = self._any(self._kinds(2), qualified((*refs, *outer)), depth - 1)
            alias = self._name("l")
            item, more = text("LATERAL (", made.node, f") AS {alias}"), made.refs(alias)
        else:
            item, more = self._item(outer, depth - 1)
        if word == "CROSS":
            return clause(" CROSS JOIN ", item), more
        if word == ",":
            # A comma binds less than JOIN, so what follows could not read what stands before it.
            return clause(" INNER JOIN ", item, " ON true"), more
        condition = self._condition(
            word, refs, more, Scope((*refs, *more), outer, self.options.subqueries and depth > 0)
        )
        return clause(f" {word} JOIN ", item, " ON ", condition), more

    def _condition(
        self, word: str, left: tuple[Ref, ...], right: tuple[Ref, ...], scope: Scope
    ) -> Node:
        pairs = [(a, b) for a in left for b in right if a.kind == b.kind]
        equal: list[Node] = []
        if pairs and (word == "FULL" or self.rng.random() < 0.7):
            a, b = self.rng.choice(pairs)
            equal.append(expr("boolean", a.sql, " = ", b.sql))
        if word == "FULL":
            # PostgreSQL has no other full joins.
            return _joined(" AND ", equal) if equal else text("true")
        if not equal or self.rng.random() < 0.4:
            equal.append(self.expressions.predicate(scope, 1))
        return _joined(" AND ", equal)

    def _joined_by_name(self) -> tuple[Node, tuple[Ref, ...]]:
        """NATURAL and USING, of two tables."""
        tables = self.rng.choice(self.tables), self.rng.choice(self.tables)
        left, right = self._name("t"), self._name("t")
        word = self.rng.choice(["", "LEFT ", "RIGHT ", "FULL "])
        refs = [*_columns(tables[0], left), *_columns(tables[1], right)]
        shared = {c.name: c.kind for c in tables[0].columns}.items() & {
            c.name: c.kind for c in tables[1].columns
        }.items()
        names = {c.name for c in tables[0].columns} & {c.name for c in tables[1].columns}
        bounds = {
            c.name: max(c.bound, o.bound)
            for c in tables[0].columns
            for o in tables[1].columns
            if c.name == o.name
        }
        if len(shared) == len(names) and self.rng.random() < 0.5:
            using, how = sorted(names), f"NATURAL {word}JOIN"
            condition = ""
        else:
            using = ["k"]
            condition, how = " USING (k)", f"{word}JOIN"
        kinds = dict(shared)
        merged = [Ref(text(name), kinds[name], bounds[name]) for name in using]
        return text(f"{tables[0].name} AS {left} {how} {tables[1].name} AS {right}{condition}"), (
            *merged,
            *merged,
            *refs,
        )

    # --- small things -----------------------------------------------------------------------------

    def _kinds(self, count: int) -> tuple[str, ...]:
        return tuple(self.rng.choice(KINDS) for _ in range(count))

    def _name(self, letter: str) -> str:
        return f"{letter}{next(self._names)}"


def qualified(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
    """Those that a query inside can read: a merged column's plain name may be one of its own."""
    return tuple(ref for ref in refs if "." in str(ref.sql))


def _columns(table: Table, alias: str) -> tuple[Ref, ...]:
    return tuple(Ref(text(f"{alias}.{c.name}"), c.kind, c.bound) for c in table.columns)


def _joined(separator: str, parts: list[Node]) -> Node:
    return Node(tuple(parts), separator=separator)


def _leaves(node: Node) -> list[Node]:
    return [
        node,
        *(leaf for part in node.parts if isinstance(part, Node) for leaf in _leaves(part)),
    ]


def _made(parts: tuple[Node | str, ...], items: list[Node]) -> Made:
    kinds = tuple(item.typ[0] for item in items)
    return Made(Node(parts, "query", kinds), kinds, tuple(item.bound for item in items))
