"""Window functions and their frames.

Promise: what depends on the order of rows has a total one; frames that reach by peers or by distances stand over what does not depend on
the order of peers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from fuzz_expressions import Expressions, Ref, Scope
from fuzz_made import Made, Options, made_of, ordered
from fuzz_schema import EXTREMES, Table
from fuzz_tree import Node, clause, expr, text

#: By columns of which types a frame may reach, and how far.
_DISTANCES = {
    "smallint": ("1::smallint", "3::smallint"), "integer": ("0", "1", "5"), "bigint": ("1::bigint", "4::bigint"),
    "numeric": ("0.5", "2"), "date": ("INTERVAL '1 day'", "INTERVAL '2 months'"), "timestamp": ("INTERVAL '1 day'", "INTERVAL '1 month'"),
}  # fmt: skip


class Windows:
    """What `Queries` makes of windows."""

    rng: random.Random
    options: Options
    expressions: Expressions
    tables: list[Table]
    _any: Callable[..., Made]
    _kinds: Callable[..., tuple[str, ...]]
    _name: Callable[[str], str]
    _table: Callable[[], tuple[Node, tuple[Ref, ...]]]
    _where: Callable[..., Node]
    _named: Callable[[list[Node]], Node]
    _direction: Callable[[str], str]
    _aggregate: Callable[[str, Scope], Node]

    def _windowed(self, kinds: tuple[str, ...], outer: tuple[Ref, ...], depth: int) -> Made | None:
        """A query with window functions; None where its rows have no order."""
        if depth > 0 and self.rng.random() < 0.5:
            inner = self._any(self._kinds(3, ordered=True), outer, depth - 1)
            alias = self._name("q")
            source, refs = text("(", inner.node, f") AS {alias}"), inner.refs(alias)
        else:
            source, refs = self._table()
        if not ordered(tuple(ref.kind for ref in refs)):
            return None
        if len(kinds) > 1:
            # Which of two equal rows comes first may be another to each window.
            source, refs = self._once(source, refs)
        scope = Scope(refs, (), subqueries=False)
        leaves = [Ref(self._window(kind, scope), kind, math.inf) for kind in kinds]
        windowed = Scope((*refs, *leaves, *leaves), outer, subqueries=False)
        items = [self.expressions.value(kind, windowed, min(depth, 1)) for kind in kinds]
        where = self._where(Scope(refs, outer), 0, 0.3)
        return made_of(("SELECT ", self._named(items), " FROM ", source, where), items)

    def _once(self, source: Node, refs: tuple[Ref, ...]) -> tuple[Node, tuple[Ref, ...]]:
        """The rows of a source, each once."""
        alias = self._name("q")
        items = ", ".join(f"{ref.sql} AS x{n}" for n, ref in enumerate(refs))
        named = (Ref(text(f"{alias}.x{n}"), r.kind, r.bound) for n, r in enumerate(refs))
        return text(f"(SELECT DISTINCT {items} FROM ", source, f") AS {alias}"), tuple(named)

    def _window(self, kind: str, scope: Scope) -> Node:
        rng = self.rng
        total = [self._direction(str(ref.sql)) for ref in scope.own]
        rng.shuffle(total)
        partition = ""
        if rng.random() < 0.6:
            partition = f"PARTITION BY {rng.choice(scope.own).sql} "
        order = f"({partition}ORDER BY {', '.join(total)}"
        inner = self.expressions.value(kind, scope, 1)
        # PostgreSQL has no type for a bare constant in first_value and its like.
        inner = expr(kind, "(", inner, ")::text", bound=inner.bound) if kind == "text" else inner
        if kind == "bigint" and rng.random() < 0.5:
            some = ", ".join(total[: rng.randint(1, len(total))])
            name = rng.choice(["row_number", "rank", "dense_rank"])
            window = f"{order})" if name == "row_number" else f"({partition}ORDER BY {some})"
            return expr(kind, f"{name}() OVER {window}")
        match rng.randrange(4):
            case 0:
                name = rng.choice(["lag", "lead"])
                offset = clause(
                    f", {rng.randint(0, 3)}", clause(", ", self.expressions.value(kind, scope, 0))
                )
                return expr(kind, f"{name}(", inner, offset, f") OVER {order})")
            case 1:
                name = rng.choice(["first_value", "last_value"])
                return expr(kind, f"{name}(", inner, f") OVER {order}", self._frame(), ")")
            case 2:
                aggregate = self._over_rows(kind, inner, scope)
                if aggregate is not None:
                    return self._by_peers(aggregate, scope, partition)
                return expr(kind, "last_value(", inner, f") OVER {order}", self._frame(), ")")
            case _:
                aggregate = self._over_rows(kind, inner, scope)
                if aggregate is None:
                    return expr(kind, "first_value(", inner, f") OVER {order}", self._frame(), ")")
                frame = self._frame()
                if not frame.parts and rng.random() < 0.5:
                    some = ", ".join(total[: rng.randint(1, len(total))])
                    return expr(kind, aggregate, f" OVER ({partition}ORDER BY {some})")
                if rng.random() < 0.2:
                    return expr(kind, aggregate, f" OVER ({partition})")
                return expr(kind, aggregate, f" OVER {order}", frame, ")")

    def _over_rows(self, kind: str, inner: Node, scope: Scope) -> Node | None:
        """An aggregate that a window may have; None where a type has none."""
        aggregate = self._aggregate(kind, scope)
        told = str(aggregate)
        if any(word in told for word in ("DISTINCT ", "_agg(", "round(")):
            if kind != "boolean" and kind not in EXTREMES:
                return None
            name = "bool_or" if kind == "boolean" else "max"
            aggregate = expr(kind, f"{name}(", inner, ")")
        return aggregate

    def _frame(self) -> Node:
        if self.rng.random() < 0.5:
            return text()
        return clause(f" ROWS BETWEEN {self._ends('2', '1')}", self._less(peers=False))

    def _ends(self, far: str, near: str) -> str:
        start = self.rng.choice(
            ["UNBOUNDED PRECEDING", f"{far} PRECEDING", f"{near} PRECEDING", "CURRENT ROW"]
        )
        ends = ["UNBOUNDED FOLLOWING", f"{near} FOLLOWING", "CURRENT ROW"]
        if start[0] == "U" or start.startswith(far):
            ends.append(f"{near} PRECEDING")
        return f"{start} AND {self.rng.choice(ends)}"

    def _less(self, *, peers: bool = True) -> Node:
        what = ["NO OTHERS", "CURRENT ROW", *(["GROUP", "TIES"] if peers else [])]
        return clause(f" EXCLUDE {self.rng.choice(what)}") if self.rng.random() < 0.25 else text()

    def _by_peers(self, aggregate: Node, scope: Scope, partition: str) -> Node:
        """A frame of peers or of distances."""
        rng = self.rng
        reach = [ref for ref in scope.own if ref.kind in _DISTANCES and ref.bound < 1000]
        if reach and rng.random() < 0.6:
            ref = rng.choice(reach)
            direction = rng.choice(["", " DESC", " NULLS FIRST"])
            far, near = rng.choice(_DISTANCES[ref.kind]), rng.choice(_DISTANCES[ref.kind])
            frame = f"RANGE BETWEEN {self._ends(far, near)}"
            order = f"{ref.sql}{direction}"
        else:
            order = self._direction(str(rng.choice(scope.own).sql))
            frame = f"GROUPS BETWEEN {self._ends('2', '1')}"
        framed = clause(" ", frame, self._less())
        return expr(aggregate.typ[0], aggregate, f" OVER ({partition}ORDER BY {order}", framed, ")")
