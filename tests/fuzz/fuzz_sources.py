"""What stands in FROM: tables, views, CTEs, queries, table functions, recursions, and joins of them of every kind."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from fuzz_expressions import Expressions, Ref, Scope, without_subqueries
from fuzz_made import Made, Options, columns_of, joined, qualified, reads
from fuzz_schema import Table, cast_name
from fuzz_tree import Node, clause, expr, text


class Sources:
    """What `Queries` reads from."""

    rng: random.Random
    options: Options
    expressions: Expressions
    tables: list[Table]
    _ctes: list[tuple[str, Made]]
    _any: Callable[..., Made]
    _kinds: Callable[..., tuple[str, ...]]
    _name: Callable[[str], str]

    def _where(self, scope: Scope, depth: int, chance: float = 0.6) -> Node:
        if self.rng.random() > chance:
            return text()
        if depth <= 0 or not self.options.subqueries:
            scope = without_subqueries(scope)
        return clause(" WHERE ", self.expressions.predicate(scope, min(max(depth, 1), 2)))

    def _source(self, outer: tuple[Ref, ...], depth: int) -> tuple[Node, tuple[Ref, ...]]:
        if self.rng.random() < 0.1:
            return self._joined_by_name()
        source, refs = self._item(outer, depth)
        parts: list[Node | str] = [source]
        for _ in range(self.rng.choice([0, 0, 1, 1, 2] if depth > 0 else [0, 0, 0, 1])):
            more, added = self._join(refs, outer, depth)
            parts.append(more)
            refs = (*refs, *added)
        return Node(tuple(parts)), refs

    def _item(self, outer: tuple[Ref, ...], depth: int) -> tuple[Node, tuple[Ref, ...]]:
        roll = self.rng.random()
        if self._ctes and roll < 0.4:
            name, made = self.rng.choice(self._ctes)
            alias = self._name("q")
            return text(f"{name} AS {alias}"), made.refs(alias)
        if depth > 0 and roll > 0.77:
            # A derived table does not see its neighbours, but it does see the queries around.
            made = self._any(self._kinds(self.rng.randint(1, 3)), outer, depth - 1)
            alias = self._name("q")
            return text("(", made.node, f") AS {alias}"), made.refs(alias)
        if depth > 0 and roll > 0.74:
            # A join in parentheses, which an outer join may leave whole.
            source, refs = self._item(outer, 0)
            more, added = self._join(refs, outer, 0)
            return text("(", source, Node(more.parts), ")"), (*refs, *added)
        if roll > 0.71:
            return self._function((), 0)
        return self._table()

    def _table(self) -> tuple[Node, tuple[Ref, ...]]:
        table = self.rng.choice(self.tables)
        alias = self._name("t")
        return text(f"{table.name} AS {alias}"), columns_of(table, alias)

    def _function(self, refs: tuple[Ref, ...], depth: int) -> tuple[Node, tuple[Ref, ...]]:
        """A table function, of columns to its left where there are some."""
        alias = self._name("g")
        scope = Scope(refs, (), subqueries=False)
        value = self.expressions.value
        match self.rng.randrange(4 if self.options.rare else 2):
            case 0:
                parts, kind, bound = (
                    [f"generate_series(1, {self.rng.randint(0, 4)})"],
                    "integer",
                    5.0,
                )
            case 1:
                start = value("integer", scope, depth, 1000)
                steps = self.rng.randint(-1, 3)
                parts = ["generate_series(", start, ", ", start, f" + {steps})"]
                kind, bound = "integer", start.bound + 4
            case 2:
                array = value("integers", scope, depth)
                parts, kind, bound = ["unnest((", array, ")::integer[])"], "integer", array.bound
            case _:
                made = value("text", scope, depth)
                parts, kind, bound = (
                    ["regexp_split_to_table(", made, ", '[ab]')"],
                    "text",
                    made.bound,
                )
        found = [Ref(text(f"{alias}.x0"), kind, bound)]
        names, numbered = "x0", ""
        if self.rng.random() < 0.3:
            found.append(Ref(text(f"{alias}.x1"), "bigint", 1000))
            names, numbered = "x0, x1", " WITH ORDINALITY"
        return text(*parts, f"{numbered} AS {alias} ({names})"), tuple(found)

    # --- joins ------------------------------------------------------------------------------------

    def _join(
        self, refs: tuple[Ref, ...], outer: tuple[Ref, ...], depth: int
    ) -> tuple[Node, tuple[Ref, ...]]:
        word = self.rng.choice(["CROSS", "INNER", "INNER", "LEFT", "LEFT", "RIGHT", "FULL", ","])
        lateral = word in ("CROSS", "LEFT", ",", "INNER") and self.rng.random() < 0.25
        if lateral and self.rng.random() < 0.3:
            item, more = self._function(qualified(refs), 1)
        elif lateral and depth > 0:
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
            sides = [a.sql, b.sql]
            if word != "FULL":
                sides = [self._side(a, left), self._side(b, right)]
            equal.append(expr("boolean", sides[0], " = ", sides[1]))
        if word == "FULL":
            # PostgreSQL has no other full joins; `fuzz_partitions` has.
            return joined(" AND ", equal) if equal else text("true")
        if not equal or self.rng.random() < 0.4:
            equal.append(self.expressions.predicate(scope, 1))
        return joined(" AND ", equal)

    def _side(self, ref: Ref, refs: tuple[Ref, ...]) -> Node:
        """One side of an equality: a column, or an expression over its relation."""
        if self.rng.random() < 0.2:
            made = self.expressions.value(ref.kind, Scope(refs, (), subqueries=False), 1)
            if reads(made, refs):
                return made
        return ref.sql

    def _joined_by_name(self) -> tuple[Node, tuple[Ref, ...]]:
        """NATURAL and USING, of two tables."""
        stored = [table for table in self.tables if not table.query]
        tables = self.rng.choice(stored), self.rng.choice(stored)
        left, right = self._name("t"), self._name("t")
        word = self.rng.choice(["", "LEFT ", "RIGHT ", "FULL "])
        refs = [*columns_of(tables[0], left), *columns_of(tables[1], right)]
        kinds = {c.name: c.kind for c in tables[0].columns}
        others = {c.name: c.kind for c in tables[1].columns}
        names = kinds.keys() & others.keys()
        if all(kinds[n] == others[n] for n in names) and self.rng.random() < 0.5:
            using, how, condition = sorted(names), f"NATURAL {word}JOIN", ""
        else:
            using, how, condition = ["k"], f"{word}JOIN", " USING (k)"
        merged = []
        for name in using:
            bounds = [c.bound for table in tables for c in table.columns if c.name == name]
            merged.append(Ref(text(name), kinds[name], max(bounds)))
        return text(f"{tables[0].name} AS {left} {how} {tables[1].name} AS {right}{condition}"), (
            *merged,
            *merged,
            *refs,
        )

    # --- recursion --------------------------------------------------------------------------------

    def _recursion(self) -> Node:
        """A binding of WITH MUTUALLY RECURSIVE that is one of PostgreSQL's WITH RECURSIVE too; it becomes a CTE.

        Either a path, whose values are those of a table, or a count of three rounds.
        """
        name = self._name("r")
        first, refs = self._table()
        second, more = self._table()
        if self.rng.random() < 0.4:
            kinds: tuple[str, ...] = ("integer", "integer")
            bounds = (math.inf, math.inf)
            start = f"SELECT {self._leaf(refs)}, {self._leaf(refs)} FROM "
            step = f"SELECT {name}.x0, {self._leaf(more)} FROM {name} INNER JOIN "
            on = text(f" ON {name}.x1 = {self._leaf(more)}")
            word, base = "UNION", text(start, first)
            step_of = text(step, second, on)
        else:
            kind = self._kinds(1, ordered=True)[0]
            kinds, bounds = ("integer", kind), (5.0, math.inf)
            # A numeric of a column is not a numeric of any other scale to PostgreSQL.
            cast = f")::{cast_name(kind)}"
            value = self.expressions.value(kind, Scope(refs, (), subqueries=False), 1)
            base = text(
                "SELECT 1, (", value, f"{cast} FROM ", first, self._where(Scope(refs), 0, 0.3)
            )
            own = (Ref(text(f"{name}.x0"), "integer", 5), Ref(text(f"{name}.x1"), kind, math.inf))
            again = self.expressions.value(kind, Scope((*own, *more), (), subqueries=False), 1)
            on = self._condition("INNER", own, more, Scope((*own, *more), (), subqueries=False))
            step_of = text(
                f"SELECT {name}.x0 + 1, (", again, f"{cast} FROM {name} INNER JOIN ", second,
                " ON ", on, f" WHERE {name}.x0 < 3",
            )  # fmt: skip
            word = self.rng.choice(["UNION", "UNION ALL"])
        made = Made(text(), kinds, bounds)
        self._ctes.append((name, made))
        return text(f"{typed_name(name, kinds)} AS (", base, f" {word} ", step_of, ")")

    def _leaf(self, refs: tuple[Ref, ...]) -> str:
        found = [str(ref.sql) for ref in refs if ref.kind == "integer"]
        return self.rng.choice(found) if found else "1"


def typed_name(name: str, kinds: tuple[str, ...]) -> str:
    """A binding's head; what stands between the comments is Materialize's."""
    columns = (f"x{n}/*mine*/ {cast_name(kind)}/*theirs*/" for n, kind in enumerate(kinds))
    return f"{name} ({', '.join(columns)})"
