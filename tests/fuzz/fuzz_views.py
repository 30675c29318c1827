"""Random queries for views to keep: every node that a dataflow has, keyed by values of every type.

Promise: a query has one right answer as a bag, whatever its expressions are: what depends on an order has a total one. Its columns are
called x0, x1, …, so that another view can read it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from fuzz_awkward import COMMON, FAMILIES, KINDS, Column, Table, value_of
from fuzz_calls import Calls, Ref, common_functions
from fuzz_tree import Node, clause, expr, listed, text

_SUMS = (
    "smallint",
    "integer",
    "bigint",
    "uint2",
    "uint4",
    "uint8",
    "numeric2",
    "numeric4",
    "numeric",
    "real",
    "double",
)
_INTEGERS = ("smallint", "integer")
_EXTREMES = tuple(
    k
    for k in KINDS
    if k not in ("jsonb", "integers", "texts", "list", "map", "range", "numrange", "tstzrange")
)
_COLLECTED = ("array_agg", "list_agg", "jsonb_agg")


@dataclass(frozen=True)
class View:
    """A view: its query and its columns."""

    query: Node
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Source:
    """A relation under a name."""

    node: Node
    refs: tuple[Ref, ...]


class Views:
    """Queries from a generator of random numbers.

    Args:
        tables: what they read: tables, and views as tables.
        common: whether they say only what PostgreSQL understands and answers alike.
    """

    def __init__(
        self,
        rng: random.Random,
        tables: Sequence[Table],
        *,
        common: bool = False,
    ) -> None:
        self.rng = rng
        self.tables = list(tables)
        self.calls = Calls(rng, common_functions() if common else None)
        self.common = common
        self._names = itertools.count()

    def view(self) -> View:
        """A query of any shape."""
        shapes = [
            self._selected, self._grouped, self._grouped, self._joined, self._joined, self._semijoined, self._set_operation,
            self._distinct_on, self._limited, self._top_of_groups, self._with_scalar, self._flat_mapped, self._joined_groups,
            self._recursive,
        ]  # fmt: skip
        return self.rng.choice(shapes)()

    # --- pieces -----------------------------------------------------------------------------------

    def _source(self, table: Table | None = None) -> Source:
        table = table or self.rng.choice(self.tables)
        alias = f"r{next(self._names)}"
        refs = tuple(Ref(f"{alias}.{c.name}", c.kind) for c in table.columns)
        return Source(text(f"{table.name} AS {alias}"), refs)

    def _item(self, refs: Sequence[Ref]) -> Node:
        """A column, or a call over columns; sometimes of some rows alone, as it may fail."""
        roll = self.rng.random()
        if roll < 0.45:
            ref = self.rng.choice(refs)
            return expr(ref.kind or "?", ref.sql)
        made = self.calls.any(refs)
        numbered = [ref for ref in refs if ref.kind == "integer"]
        if roll < 0.8 or not numbered:
            return made
        test = f"CASE WHEN {self.rng.choice(numbered).sql} % 3 = 0 THEN "
        return expr(made.typ[0], test, made, " END")

    def _condition(self, refs: Sequence[Ref]) -> Node:
        """A condition."""
        match self.rng.randrange(6):
            case 5:
                ref = self.rng.choice(refs)
                if ref.kind is None:
                    return expr("boolean", "true")
                low, high = (
                    f"{value_of(self.rng, ref.kind, nulls=0.05)}::{KINDS[ref.kind][0]}"
                    for _ in "ab"
                )
                word = self.rng.choice(["", "", "NOT "])
                return expr("boolean", f"({ref.sql} {word}BETWEEN {low} AND {high})")
            case 0:
                ref = self.rng.choice(refs)
                return expr("boolean", f"({ref.sql} IS {self.rng.choice(['', 'NOT '])}NULL)")
            case 1 | 2:
                pair = self._pair(refs, refs)
                operator = self.rng.choice(["=", "<>", "<", ">=", "IS DISTINCT FROM"])
                return expr("boolean", "(", pair[0], f" {operator} ", pair[1], ")")
            case 3:
                left, right = self._condition(refs), self._condition(refs)
                return expr("boolean", "(", left, self.rng.choice([" AND ", " OR "]), right, ")")
            case _:
                made = self.calls.of_kind("boolean", refs, 1)
                return expr("boolean", "true") if made is None else made

    def _where(self, refs: Sequence[Ref], chance: float = 0.4) -> Node:
        return clause(" WHERE ", self._condition(refs)) if self.rng.random() < chance else text()

    def _pair(self, left: Sequence[Ref], right: Sequence[Ref]) -> tuple[Node, Node]:
        """Two values that compare: columns of one family, or a function's values of either side."""
        if self.rng.random() < 0.25:
            func = self.calls.fitting(self.calls.allowed, left)
            one, other = self.calls.call(func, left, 0), self.calls.call(func, right, 0)
            if one.typ[0] in KINDS:
                return one, other
        pairs = [
            (a, b)
            for a in left
            for b in right
            if a.kind and b.kind and a is not b and _family(a.kind) == _family(b.kind)
        ]
        if not pairs:
            return expr("integer", "1"), expr("integer", "1")
        a, b = self.rng.choice(pairs)
        return expr(str(a.kind), a.sql), expr(str(b.kind), b.sql)

    def _on(self, left: Source, right: Source) -> Node:
        """Equalities of both sides, and sometimes more."""
        many = [self._equal(left.refs, right.refs) for _ in range(self.rng.choice([1, 1, 1, 2]))]
        if self.rng.random() < 0.15:
            many.append(self._condition((*left.refs, *right.refs)))
        return listed(" AND ", many)

    def _equal(self, left: Sequence[Ref], right: Sequence[Ref]) -> Node:
        one, other = self._pair(left, right)
        word = " = "
        if self.rng.random() < 0.1:
            word = " IS NOT DISTINCT FROM "
        return expr("boolean", one, word, other)

    def _named(self, items: Sequence[Node], before: str = "SELECT ") -> Node:
        columns = [text(item, f" AS x{n}") for n, item in enumerate(items)]
        return text(before, *_separated(columns))

    def _made(self, items: Sequence[Node], *parts: Node | str) -> View:
        kinds = [item.typ[0] if item.typ and item.typ[0] in KINDS else None for item in items]
        columns = tuple(Column(f"x{n}", kind) for n, kind in enumerate(kinds))
        return View(Node(parts, "query", tuple(str(kind) for kind in kinds)), columns)

    def _items(self, refs: Sequence[Ref], low: int = 1, high: int = 3) -> list[Node]:
        return [self._item(refs) for _ in range(self.rng.randint(low, high))]

    def _from(self) -> Source:
        """One relation, or two joined."""
        left = self._source()
        if self.rng.random() < 0.7:
            return left
        right = self._source()
        word = self.rng.choice(["INNER", "LEFT", "FULL"])
        on = self._full_on(left, right) if word == "FULL" else self._on(left, right)
        node = text(left.node, f" {word} JOIN ", right.node, " ON ", on)
        return Source(node, (*left.refs, *right.refs))

    def _full_on(self, left: Source, right: Source) -> Node:
        """PostgreSQL has full joins of equalities of columns alone."""
        one, other = self._pair(left.refs, right.refs)
        return expr("boolean", one, " = ", other)

    # --- shapes -----------------------------------------------------------------------------------

    def _selected(self) -> View:
        source = self._from()
        items = self._items(source.refs)
        word = self.rng.choice(["SELECT ", "SELECT DISTINCT "])
        return self._made(
            items, self._named(items, word), " FROM ", source.node, self._where(source.refs)
        )

    def _aggregate(self, refs: Sequence[Ref]) -> Node:
        """Any aggregate."""
        rng, calls = self.rng, self.calls
        distinct = rng.choice(["", "", "DISTINCT "])
        where = text()
        if rng.random() < 0.2:
            where = clause(" FILTER (WHERE ", self._condition(refs), ")")
        match rng.randrange(8):
            case 0:
                return expr("bigint", "count(*)", where)
            case 1:
                return expr("bigint", f"count({distinct}", self._item(refs), ")", where)
            case 2 | 3:
                name = rng.choice(["sum", "sum", "avg", "stddev", "variance", "var_pop"])
                sums = _INTEGERS if self.common else _SUMS
                inner = calls.value((self._there(refs, sums),), refs, 1)
                if self.common:
                    return expr("?", f"sum({distinct}", inner, ")", where)
                return expr("?", f"{name}({distinct}", inner, ")", where)
            case 4 | 5:
                kind = self._there(refs, _EXTREMES)
                inner = calls.value((kind,), refs, 1)
                return expr(kind, f"{rng.choice(['min', 'max'])}(", inner, ")", where)
            case 6:
                name = rng.choice(["bool_and", "bool_or"])
                inner = calls.value(("boolean",), refs, 1)
                return expr("boolean", f"{name}({distinct}", inner, ")", where)
            case _:
                return self._collected(refs, where)

    def _there(self, refs: Sequence[Ref], kinds: Sequence[str]) -> str:
        """A kind of which there is a column, where there is one."""
        known = [kind for kind in kinds if kind in COMMON or not self.common]
        there = [str(ref.kind) for ref in refs if ref.kind in known]
        return self.rng.choice(there or known)

    def _collected(self, refs: Sequence[Ref], where: Node) -> Node:
        """What puts values together, in an order that is total."""
        if self.rng.random() < 0.3:
            inner = text("(", self.calls.value(("text",), refs, 1), ")::text")
            return expr("text", "string_agg(", inner, ", ',' ORDER BY ", inner, ")", where)
        if self.rng.random() < 0.2 and not self.common:
            key = self.calls.value(("text",), refs, 0)
            inner = self.calls.value(("integer",), refs, 0)
            name = self.rng.choice(["jsonb_object_agg", "map_agg"])
            return expr(
                "?", f"{name}((", key, ")::text, ", inner, f" ORDER BY {inner}, {key})", where
            )
        ref = self.rng.choice(refs)
        name = "array_agg" if self.common else self.rng.choice(_COLLECTED)
        if ref.kind in ("integers", "texts", "list", "map") or ref.kind is None:
            name = "jsonb_agg" if ref.kind else "count"
        order = "" if name == "count" else f" ORDER BY {ref.sql}"
        return expr("?", f"{name}({ref.sql}{order})", where)

    def _keys(self, refs: Sequence[Ref]) -> list[Node]:
        return [self._item(refs) for _ in range(self.rng.choice([0, 1, 1, 2]))]

    def _groups(self, source: Source) -> tuple[list[Node], list[Node | str]]:
        keys = self._keys(source.refs)
        items = [*keys, *(self._aggregate(source.refs) for _ in range(self.rng.randint(1, 2)))]
        parts: list[Node | str] = [
            self._named(items),
            " FROM ",
            source.node,
            self._where(source.refs, 0.25),
        ]
        if keys:
            parts.append(f" GROUP BY {', '.join(str(n + 1) for n in range(len(keys)))}")
        if self.rng.random() < 0.25:
            having = self.rng.choice(["count(*) > 1", "count(*) % 2 = 1", "min(1) = 1"])
            parts.append(clause(f" HAVING {having}"))
        return items, parts

    def _grouped(self) -> View:
        items, parts = self._groups(self._from())
        return self._made(items, *parts)

    def _joined(self) -> View:
        left, right = self._source(), self._source()
        word = self.rng.choice(["INNER", "INNER", "LEFT", "RIGHT", "FULL"])
        on = self._full_on(left, right) if word == "FULL" else self._on(left, right)
        refs = (*left.refs, *right.refs)
        node = text(left.node, f" {word} JOIN ", right.node, " ON ", on)
        if self.rng.random() < 0.4:
            third = self._source()
            word = self.rng.choice(["INNER", "LEFT"])
            onto = Source(node, refs)
            node = text(node, clause(f" {word} JOIN ", third.node, " ON ", self._on(onto, third)))
            if self.rng.random() < 0.5:
                refs = (*refs, *third.refs)
        items = self._items(refs, 1, 4)
        return self._made(items, self._named(items), " FROM ", node, self._where(refs, 0.2))

    def _semijoined(self) -> View:
        left, right = self._source(), self._source()
        one, other = self._pair(left.refs, right.refs)
        inner = self._where(right.refs, 0.3)
        if self.rng.random() < 0.5:
            word = self.rng.choice(["IN", "IN", "NOT IN"])
            test = text(one, f" {word} (SELECT ", other, " FROM ", right.node, inner, ")")
        else:
            word = self.rng.choice(["EXISTS", "NOT EXISTS"])
            more = clause(" AND ", self._condition((*left.refs, *right.refs)))
            more = more if self.rng.random() < 0.2 else text()
            test = text(
                f"{word} (SELECT 1 FROM ", right.node, " WHERE ", one, " = ", other, more, ")"
            )
        items = self._items(left.refs)
        if self.rng.random() < 0.25:
            shown = expr("boolean", test)
            items.append(shown)
            return self._made(items, self._named(items), " FROM ", left.node)
        return self._made(items, self._named(items), " FROM ", left.node, " WHERE ", test)

    def _set_operation(self) -> View:
        left, right = self._source(), self._source()
        items, others = [], []
        for _ in range(self.rng.randint(1, 2)):
            one, other = self._pair(left.refs, right.refs)
            items.append(one)
            others.append(other)
        word = self.rng.choice(
            ["UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"]
        )
        arms = (
            text(self._named(items), " FROM ", left.node, self._where(left.refs, 0.3)),
            text(self._named(others), " FROM ", right.node, self._where(right.refs, 0.3)),
        )
        unknown = [expr("?", str(item)) for item in items]
        same = [a if a.typ == b.typ else u for a, b, u in zip(items, others, unknown, strict=True)]
        if self.rng.random() < 0.4 and (met := self._met(same)) is not None:
            other, ref, n = met
            more = [
                expr(one.typ[0], f"q.x{i}") for i, one in enumerate(same) if one.typ[0] in KINDS
            ]
            shown = [*self._items(other.refs, 1, 2), *more]
            both = text("((", arms[0], f") {word} (", arms[1], ")) AS q")
            on = text(" ON ", ref, f" = q.x{n}")
            return self._made(shown, self._named(shown), " FROM ", other.node, " JOIN ", both, on)
        return self._made(same, "(", arms[0], f") {word} (", arms[1], ")")

    def _met(self, items: Sequence[Node]) -> tuple[Source, Node, int] | None:
        """A relation to be joined with rows of these items, its column, and the item that equals it; None: none has its type."""
        source = self._source()
        found = [
            (expr(str(ref.kind), ref.sql), n)
            for ref in source.refs
            for n, item in enumerate(items)
            if item.typ and ref.kind in KINDS and ref.kind == item.typ[0]
        ]
        return (source, *self.rng.choice(found)) if found else None

    def _order(self, count: int, first: Sequence[int] = ()) -> str:
        places = [*first, *(n for n in self.rng.sample(range(count), count) if n not in first)]
        ways = ["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]
        return ", ".join(f"q.x{n}{self.rng.choice(ways)}" for n in places)

    def _subquery(self) -> tuple[list[Node], Node, str]:
        source = self._source()
        items = self._items(source.refs, 2, 4)
        node = text(
            "(", self._named(items), " FROM ", source.node, self._where(source.refs, 0.3), ") AS q"
        )
        return items, node, ", ".join(f"q.x{n}" for n in range(len(items)))

    def _distinct_on(self) -> View:
        items, node, names = self._subquery()
        count = self.rng.randint(1, 2)
        on = ", ".join(f"q.x{n}" for n in range(count))
        order = self._order(len(items), tuple(range(count)))
        return self._made(
            items, f"SELECT DISTINCT ON ({on}) {names} FROM ", node, f" ORDER BY {order}"
        )

    def _limited(self) -> View:
        items, node, names = self._subquery()
        limit = f" LIMIT {self.rng.choice([1, 1, 2, 3])}"
        offset = clause(f" OFFSET {self.rng.randint(1, 2)}") if self.rng.random() < 0.3 else text()
        order = f" ORDER BY {self._order(len(items))}"
        return self._made(items, f"SELECT {names} FROM ", node, order, limit, offset)

    def _top_of_groups(self) -> View:
        """The first rows of each group, by LATERAL."""
        left, right = self._source(), self._source()
        one, other = self._pair(left.refs, right.refs)
        items = self._items(right.refs, 1, 2)
        names = ", ".join(f"q.x{n} AS y{n}" for n in range(len(items)))
        inner = text(
            f"SELECT {names} FROM (", self._named(items), " FROM ", right.node, " WHERE ", other, " = ", one,
            f") AS q ORDER BY {self._order(len(items))} LIMIT {self.rng.randint(1, 2)}",
        )  # fmt: skip
        outer = self._item(left.refs)
        word = self.rng.choice(["CROSS JOIN LATERAL", "LEFT JOIN LATERAL"])
        on = " ON true" if word.startswith("LEFT") else ""
        shown = [outer, *(expr(item.typ[0], f"l.y{n}") for n, item in enumerate(items))]
        head = "SELECT DISTINCT " if self.rng.random() < 0.3 else "SELECT "
        return self._made(
            shown, self._named(shown, head), " FROM ", left.node, f" {word} (", inner, f") AS l{on}"
        )

    def _with_scalar(self) -> View:
        left, right = self._source(), self._source()
        one, other = self._pair(left.refs, right.refs)
        where = clause(" WHERE ", other, " = ", one)
        inner = self._aggregate(right.refs)
        scalar = expr(inner.typ[0], "(SELECT ", inner, " FROM ", right.node, where, ")")
        items = [self._item(left.refs), scalar]
        return self._made(
            items, self._named(items), " FROM ", left.node, self._where(left.refs, 0.2)
        )

    def _flat_mapped(self) -> View:
        source = self._from()
        calls = self.calls
        kinds = {
            "integers": "unnest(",
            "jsonb": "jsonb_array_elements(",
            "integer": "generate_series(1, ",
            "text": "regexp_split_to_table(",
        }
        if not self.common:
            kinds |= {"list": "unnest(", "map": "unnest("}
        kind = self._there(source.refs, tuple(kinds))
        inner = calls.leaf((kind,), source.refs)
        if kind == "integer":
            inner = text("(", inner, " % 4)")
        if kind == "jsonb":
            inner = text(
                "CASE WHEN jsonb_typeof(",
                inner,
                ") = 'array' THEN ",
                inner,
                " ELSE '[1]'::jsonb END",
            )
        more = ", '[aß]'" if kind == "text" else ""
        names = "y0, y1" if kind == "map" else "y0"
        items = [self._item(source.refs), expr("?", "g.y0")]
        function = text(f" CROSS JOIN LATERAL {kinds[kind]}", inner, f"{more}) AS g ({names})")
        return self._made(items, self._named(items), " FROM ", source.node, function)

    def _joined_groups(self) -> View:
        """Groups of a join of groups."""
        left = self._source()
        items, parts = self._groups(self._source())
        grouped = tuple(
            Ref(f"g.x{n}", i.typ[0] if i.typ[0] in KINDS else None) for n, i in enumerate(items)
        )
        right = Source(text("(", *parts, ") AS g"), grouped)
        on = self._on(left, right)
        word = self.rng.choice(["INNER", "LEFT"])
        return self._over(
            Source(
                text(left.node, f" {word} JOIN ", right.node, " ON ", on), (*left.refs, *grouped)
            )
        )

    def _over(self, source: Source) -> View:
        if self.rng.random() < 0.5:
            items, parts = self._groups(source)
            return self._made(items, *parts)
        items = self._items(source.refs)
        return self._made(items, self._named(items), " FROM ", source.node)

    def _recursive(self) -> View:
        """What is reached from a table's rows by another's."""
        if self.common:
            return self._joined_groups()
        first, second = self._source(), self._source()
        one, other = self._pair(first.refs, second.refs)
        kind = one.typ[0]
        typ = KINDS[kind][0] if kind in KINDS and kind == other.typ[0] else "text"
        items = [expr(kind if typ != "text" else "text", "q.x0"), expr("bigint", "count(*)")]
        head = f"WITH MUTUALLY RECURSIVE r (x0 {typ}, x1 integer) AS (SELECT ("
        step = f" UNION SELECT r.x0, {second.refs[0].sql} FROM r JOIN "
        if second.refs[0].kind != "integer" or first.refs[0].kind != "integer":
            return self._joined()
        return self._made(
            items, head, one, f")::{typ}, {first.refs[0].sql} FROM ", first.node, step, second.node, " ON r.x0 = (", other,
            f")::{typ} AND {second.refs[0].sql} <> r.x1) SELECT q.x0 AS x0, count(*) AS x1 FROM r AS q GROUP BY 1",
        )  # fmt: skip


def _family(kind: str) -> object:
    return next((number for number, family in enumerate(FAMILIES) if kind in family), kind)


def _separated(parts: Sequence[Node]) -> list[Node | str]:
    made: list[Node | str] = []
    for place, part in enumerate(parts):
        made += [", ", part] if place else [part]
    return made


def as_table(name: str, view: View) -> Table:
    """A view as what another one reads."""
    return Table(name, view.columns)
