"""Groups and aggregates.

Promise: an aggregate reads a column of its own query, else PostgreSQL counts it among those of the query around; what depends on the
order of its rows has a total one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from fuzz_expressions import INTEGERS, Expressions, Ref, Scope
from fuzz_made import ROWS, Made, Options, made_of, reads
from fuzz_schema import EXTREMES, random_kind
from fuzz_tree import Node, clause, expr, listed, text


class Groups:
    """What `Queries` makes of groups."""

    rng: random.Random
    options: Options
    expressions: Expressions
    _source: Callable[..., tuple[Node, tuple[Ref, ...]]]
    _where: Callable[..., Node]
    _named: Callable[[list[Node]], Node]
    _direction: Callable[[str], str]

    def _kind(self) -> str:
        return random_kind(self.rng, rare=self.options.rare)

    def _grouped(self, kinds: tuple[str, ...], outer: tuple[Ref, ...], depth: int) -> Made:
        source, refs = self._source(outer, depth)
        scope = Scope(refs, (), subqueries=False)
        keys = self._keys(scope)
        # An aggregate is a leaf of the expressions over a group, as its keys are.
        wanted = {*kinds, self._kind(), self._kind()}
        around = outer if self.rng.random() < 0.3 else ()
        over = Scope(refs, around, subqueries=depth > 1 and not around and self.rng.random() < 0.15)
        leaves = [
            Ref(a, kind, a.bound) for kind in sorted(wanted) for a in [self._aggregate(kind, over)]
        ]
        grouped = Scope((*keys, *keys, *leaves), outer, subqueries=False)
        shown = grouped
        if keys and self.options.windows and self.rng.random() < 0.15:
            shown = Scope((*grouped.own, *self._over_groups(keys, leaves)), outer, subqueries=False)
        items = [self.expressions.value(kind, shown, min(depth, 1)) for kind in kinds]
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
        return made_of(tuple(parts), items)

    def _keys(self, scope: Scope) -> list[Ref]:
        """What a query groups by."""
        keys: list[Ref] = []
        for _ in range(self.rng.choice([0, 1, 1, 2])):
            if scope.own and self.rng.random() < 0.8:
                keys.append(self.rng.choice(scope.own))
                continue
            kind = self._kind()
            made = self.expressions.value(kind, scope, 1)
            if reads(made, scope.own):
                keys.append(Ref(made, kind, made.bound))
        return keys

    def _over_groups(self, keys: list[Ref], leaves: list[Ref]) -> list[Ref]:
        """Window functions over the groups, which their keys put in order."""
        names = [str(key.sql) for key in keys if key.kind != "jsonb"]
        if len(names) < len(keys):
            return []
        total = ", ".join(map(self._direction, names))
        leaf = self.rng.choice(leaves)
        some = self._direction(str(leaf.sql)) if leaf.kind != "jsonb" else total
        name = self.rng.choice(["lag", "lead", "first_value"])
        return [
            Ref(expr("bigint", f"rank() OVER (ORDER BY {some})"), "bigint", ROWS),
            Ref(
                expr(leaf.kind, f"{name}({leaf.sql}) OVER (ORDER BY {total})"),
                leaf.kind,
                leaf.bound,
            ),
        ]

    # --- aggregates -------------------------------------------------------------------------------

    def _argument(self, kind: str, scope: Scope, depth: int, limit: float = math.inf) -> Node:
        made = self.expressions.value(kind, scope, depth, limit)
        if scope.outer and not reads(made, scope.own):
            own = Scope(scope.own, (), subqueries=False)
            return self.expressions.value(kind, own, depth, limit)
        return made

    def _aggregate(self, kind: str, scope: Scope) -> Node:
        """An aggregate of a type."""
        rng = self.rng
        distinct = text("DISTINCT ") if rng.random() < 0.2 else text()
        where = text()
        if rng.random() < 0.2:
            own = Scope(scope.own, (), scope.subqueries)
            where = clause(" FILTER (WHERE ", self.expressions.predicate(own, 1), ")")
        made = None
        if kind == "boolean":
            name = rng.choice(["bool_and", "bool_or"])
            return expr(kind, f"{name}(", distinct, self._argument(kind, scope, 2), ")", where)
        if kind == "bigint" and rng.random() < 0.8:
            made = self._counted(scope, distinct, where)
        elif kind == "numeric" and rng.random() < 0.7:
            made = self._summed(scope, distinct, where)
        elif kind in ("double", "real") and rng.random() < 0.3:
            inner = self._argument(kind, scope, 0, 101)
            made = expr(kind, "sum(", inner, ")", where, bound=101 * ROWS)
        elif kind in ("text", "integers", "texts", "jsonb"):
            made = self._collected(kind, scope, distinct, where)
        if made is not None:
            return made
        inner = self._argument(kind, scope, 2)
        if kind in EXTREMES:
            name = rng.choice(["min", "max"])
            return expr(kind, f"{name}(", inner, ")", where, bound=inner.bound)
        order = self._direction(f"({inner})")
        return expr(
            kind, "(array_agg(", inner, f" ORDER BY {order})", where, ")[1]", bound=inner.bound
        )

    def _counted(self, scope: Scope, distinct: Node, where: Node) -> Node:
        match self.rng.randrange(3):
            case 0:
                return expr("bigint", "count(*)", where, bound=ROWS)
            case 1:
                other = self._argument(self._kind(), scope, 1)
                return expr("bigint", "count(", distinct, other, ")", where, bound=ROWS)
            case _:
                of = self._argument(self.rng.choice(["smallint", "integer"]), scope, 2)
                return expr("bigint", "sum(", distinct, of, ")", where, bound=of.bound * ROWS)

    def _summed(self, scope: Scope, distinct: Node, where: Node) -> Node:
        rng = self.rng
        of = rng.choice([*INTEGERS, "numeric"])
        inner = self._argument(of, scope, 2, 1e12)
        if of in ("bigint", "numeric") and rng.random() < 0.5:
            return expr("numeric", "sum(", distinct, inner, ")", where, bound=inner.bound * ROWS)
        name = rng.choice(["avg", "avg", "var_pop", "stddev", "variance", "stddev_pop"])
        if name != "avg":
            inner = self._argument(rng.choice(INTEGERS), scope, 1, 1000)
        return expr("numeric", f"round({name}(", distinct, inner, ")", where, ", 3)")

    def _collected(self, kind: str, scope: Scope, distinct: Node, where: Node) -> Node | None:
        """What puts values together, in an order."""
        if kind == "text":
            if self.rng.random() < 0.6:
                return None
            inner = self._argument(kind, scope, 1, 20)
            order = f", ',' ORDER BY {self._direction(f'({inner})')}"
            return expr(kind, "string_agg(", inner, order, ")", where)
        element = {"integers": "integer", "texts": "text"}.get(
            kind, self.rng.choice(["integer", "text"])
        )
        inner = self._argument(element, scope, 1)
        if element == "text":
            inner = expr("text", "(", inner, ")::text", bound=inner.bound)
        name = "jsonb_agg" if kind == "jsonb" else "array_agg"
        order = f" ORDER BY {self._direction(f'({inner})')}"
        return expr(kind, f"{name}(", distinct, inner, f"{order})", where, bound=inner.bound)
