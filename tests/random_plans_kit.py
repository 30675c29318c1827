"""Random MIR plans over small integer tables, for comparing plans before and after."""

from __future__ import annotations

import random
from collections import Counter

from plan_interpreter_kit import Bag

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import BIGINT, BOOLEAN, INTEGER, ColumnType, RelationType

Columns = tuple[ColumnType, ...]
_NULLABLE = ColumnType(INTEGER)

#: Three tables: one of nullable columns, one with a primary key, one of a single column.
TABLES: dict[GlobalId, RelationType] = {
    GlobalId("u1"): RelationType((_NULLABLE, _NULLABLE)),
    GlobalId("u2"): RelationType(
        (ColumnType(INTEGER, False), _NULLABLE, ColumnType(INTEGER, False)), ((0,),)
    ),
    GlobalId("u3"): RelationType((_NULLABLE,)),
}


def random_tables(rng: random.Random) -> dict[GlobalId, Bag]:
    """Contents that keep what the types say."""
    tables: dict[GlobalId, Bag] = {}
    for gid, typ in TABLES.items():
        bag: Bag = Counter()
        for number in range(rng.randint(0, 6)):
            row = [
                None if c.nullable and rng.random() < 0.3 else rng.randint(0, 3)
                for c in typ.columns
            ]
            if typ.keys:
                row[0] = number
            bag[tuple(row)] += 1
        tables[gid] = bag
    return tables


class PlanGenerator:
    """Makes plans of a bounded depth whose columns are integers; multiplicities stay non-negative."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._next_local = 0
        self._locals: dict[int, int] = {}

    def plan(self, depth: int = 4) -> mir.Relation:
        """A plan."""
        rng = self._rng
        if depth == 0:
            return self._leaf()
        row_wise = ["filter", "filter", "map", "project", "leaf"]
        others = ["join", "join", "join3", "semijoin", "reduce", "distinct", "union", "except"]
        kind = rng.choice([*row_wise, *others, "topk", "let"])
        return self._make(kind, depth)

    def recursive_plan(self) -> mir.Relation:
        """A plan over a recursion of up to three bindings of two small columns, which ends after three rounds."""
        rng = self._rng
        ids = range(self._next_local, self._next_local + rng.randint(1, 3))
        self._next_local = ids.stop
        self._locals.update(dict.fromkeys(ids, 2))
        values = tuple(self._small(self.plan(2)) for _ in ids)
        body = self.plan(2)
        for local in ids:
            del self._locals[local]
        return mir.LetRec(tuple(ids), values, ((3, True),) * len(ids), body)

    def _small(self, rel: mir.Relation) -> mir.Relation:
        """A few rows of two columns, so that a recursion over it does not grow beyond what can be looked at."""
        narrow = self._narrow(rel)
        rng = self._rng
        if rng.random() < 0.3:
            return narrow
        bounds = tuple(
            sc.Call("lt_integer", (sc.Column(c), sc.Literal(4, INTEGER)), BOOLEAN) for c in (0, 1)
        )
        small: mir.Relation = mir.Filter(narrow, bounds)
        if rng.random() < 0.5:
            table = mir.Project(mir.Get(GlobalId("u1"), TABLES[GlobalId("u1")]), (1, 0))
            small = mir.Union((small, table))
        return mir.Reduce(small, (sc.Column(0), sc.Column(1)), ())

    def _leaf(self) -> mir.Relation:
        rng = self._rng
        if self._locals and rng.random() < 0.4:
            local = rng.choice(sorted(self._locals))
            return mir.Get(local, RelationType((_NULLABLE,) * self._locals[local]))
        if rng.random() < 0.1:
            return mir.Constant(
                tuple(((n, rng.choice([None, 1, 2])), 1) for n in range(rng.randint(0, 2))),
                RelationType((ColumnType(INTEGER, False), _NULLABLE)),
            )
        gid = rng.choice(sorted(TABLES))
        return mir.Get(gid, TABLES[gid])

    def _make(self, kind: str, depth: int) -> mir.Relation:
        rng = self._rng
        match kind:
            case "leaf":
                return self._leaf()
            case "let":
                local = self._next_local
                self._next_local += 1
                value = self.plan(depth - 1)
                self._locals[local] = mir.arity(value)
                body = self.plan(depth - 1)
                del self._locals[local]
                return mir.Let(local, value, body)
            case "join" | "join3" | "semijoin":
                return self._join(kind, depth)
            case "union" | "except":
                left = self._narrow(self.plan(depth - 1))
                right = self._narrow(self.plan(depth - 1))
                if kind == "union":
                    return mir.Union((left, right))
                return mir.Threshold(mir.Union((left, mir.Negate(right))))
        inner = self.plan(depth - 1)
        arity = mir.arity(inner)
        match kind:
            case "filter":
                count = rng.randint(1, 2)
                return mir.Filter(inner, tuple(self._predicate(arity) for _ in range(count)))
            case "map":
                return mir.Map(inner, (self._integer(arity), self._integer(arity)))
            case "project":
                return (
                    mir.Project(
                        inner, tuple(rng.randrange(arity) for _ in range(rng.randint(1, 3)))
                    )
                    if arity
                    else inner
                )
            case "distinct":
                return mir.Reduce(inner, tuple(sc.Column(i) for i in range(arity)), ())
            case "topk":
                order = tuple(sc.ColumnOrder(c, rng.random() < 0.5) for c in range(arity))
                group = (0,) if arity and rng.random() < 0.5 else ()
                limit = sc.Literal(rng.randint(1, 3), BIGINT)
                return mir.TopK(inner, group, order, limit, rng.choice([0, 0, 1]))
            case _:
                return self._reduce(inner, arity)

    def _narrow(self, rel: mir.Relation) -> mir.Relation:
        """Two columns, all nullable as far as anyone knows."""
        arity = mir.arity(rel)
        if arity == 0:
            rel = mir.Map(rel, (sc.Literal(1, INTEGER),))
            arity = 1
        return mir.Project(rel, (0, arity - 1))

    def _join(self, kind: str, depth: int) -> mir.Relation:
        rng = self._rng
        if kind == "semijoin":
            left = self.plan(depth - 1)
            arity = mir.arity(left)
            if arity == 0:
                return left
            column = rng.randrange(arity)
            keys = mir.Reduce(left, (sc.Column(column),), ())
            return mir.Join((left, keys), ((sc.Column(column), sc.Column(arity)),))
        inputs = tuple(self.plan(depth - 1) for _ in range(3 if kind == "join3" else 2))
        total = sum(mir.arity(part) for part in inputs)
        join = mir.Join(inputs, ())
        if total < 2:
            return join
        preds = tuple(
            sc.Call(
                "eq_integer",
                (sc.Column(rng.randrange(total)), sc.Column(rng.randrange(total))),
                BOOLEAN,
            )
            for _ in range(rng.randint(1, 3))
        )
        return mir.Filter(join, preds)

    def _reduce(self, inner: mir.Relation, arity: int) -> mir.Relation:
        rng = self._rng
        key = tuple(sc.Column(i) for i in range(arity) if rng.random() < 0.4)
        # All results are called integers, so that any two columns can be compared.
        aggregates = tuple(
            sc.AggregateExpr(func, self._integer(arity), distinct, INTEGER, func != "count")
            for func, distinct in rng.sample(
                [
                    ("count", False),
                    ("count", True),
                    ("min_integer", False),
                    ("max_integer", True),
                    ("sum_integer", False),
                ],
                rng.randint(1, 2),
            )
        )
        return mir.Reduce(inner, key, aggregates)

    def _integer(self, arity: int) -> sc.Scalar:
        rng = self._rng
        if arity == 0 or rng.random() < 0.2:
            return sc.Literal(rng.choice([0, 1, 2, None]), INTEGER)
        column = sc.Column(rng.randrange(arity))
        if rng.random() < 0.4:
            other = sc.Column(rng.randrange(arity))
            return sc.Call(rng.choice(["add_integer", "sub_integer"]), (column, other), INTEGER)
        return column

    def _predicate(self, arity: int) -> sc.Scalar:
        rng = self._rng
        roll = rng.random()
        if roll < 0.15:
            return sc.Call("is_null", (self._integer(arity),), BOOLEAN)
        if roll < 0.3:
            inner = sc.Call("is_null", (self._integer(arity),), BOOLEAN)
            return sc.Call("not", (inner,), BOOLEAN)
        if roll < 0.4:
            return sc.Call("or", (self._predicate(arity), self._predicate(arity)), BOOLEAN)
        op = rng.choice(["eq", "eq", "lt", "gte", "not_eq"])
        right = (
            self._integer(arity) if rng.random() < 0.5 else sc.Literal(rng.randint(0, 3), INTEGER)
        )
        return sc.Call(f"{op}_integer", (self._integer(arity), right), BOOLEAN)
