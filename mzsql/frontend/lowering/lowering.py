"""Decorrelation: HIR to MIR.

Promise: one algorithm for every query, Materialize's ("applied to outer"), without special cases. A relation is lowered over ``outer``, a
relation whose columns are the values of the enclosing scopes that it needs, and yields for each row of outer that row's columns followed by
its own. A subquery is evaluated once for each distinct combination of the outer columns that it reads, then joined back (`branch`); joins
in MIR treat NULLs as equal, so this works for NULLs too. Outer joins become an inner join and the rows without a match, padded with NULLs.

The trade-off: the resulting plan is large (every subquery a join, every outer join a union); the optimizer reduces it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as ms
from mzsql.frontend import hir
from mzsql.frontend.lowering.fusion import fuse
from mzsql.frontend.lowering.quantified import certain, conjuncts
from mzsql.frontend.lowering.rel import Rel, constant_row, unit
from mzsql.frontend.lowering.scope import ColumnMap, CteBinding
from mzsql.frontend.lowering.shape import (
    Reads,
    collect,
    has_subquery,
    independent,
    is_row_wise,
    of_nothing,
)
from mzsql.frontend.lowering.windows import lower_window
from mzsql.repr.datum import Datum, Row
from mzsql.repr.interrupt import check_for_interrupts
from mzsql.repr.types import (
    BIGINT,
    BOOLEAN,
    TEXT,
    ColumnType,
    RelationType,
    SqlType,
)


def _values(rows: Sequence[Row], typ: RelationType) -> list[ms.Scalar]:
    """The values of all rows, one after another."""
    return [
        ms.Literal(value, column.type)
        for row in rows
        for value, column in zip(row, typ.columns, strict=True)
    ]


@dataclass
class Lowering:
    """The state of one lowering: fresh local ids and the CTEs in scope.

    Attributes:
        join: lowers joins; a parameter since joins lower their sides by this class.
        binds_constants: whether constants get names too, as in the decorrelated plan before its bindings are normalized.
        new_outer_joins: whether unmatched rows of outer joins are found by the keys of all equalities and by the filters of the side that
            is not preserved; else only by equal columns.
        variadic_left_joins: whether a stack of left joins becomes one inner join where possible.
        calls_values: whether VALUES and casts of literals are shown as the calls that they were written as, instead of their results.
    """

    join: Callable[[Lowering, hir.Join, Rel, ColumnMap, int], Rel]
    next_id: int = 0
    binds_constants: bool = False
    new_outer_joins: bool = True
    variadic_left_joins: bool = False
    calls_values: bool = False
    ctes: dict[int, CteBinding] = field(default_factory=dict)
    reads: Reads = field(default_factory=Reads)

    # --- let ---------------------------------------------------------------------------------------

    def let_in(self, value: Rel, body: Callable[[Rel], Rel]) -> Rel:
        """``body`` over a name for ``value``."""
        named = mir.Get if self.binds_constants else mir.Get | mir.Constant
        if isinstance(value.mir, named):
            return body(value)
        local = self.fresh()
        done = body(Rel(mir.Get(local, value.typ), value.typ))
        return Rel(mir.Let(local, value.mir, done.mir), done.typ)

    def fresh(self) -> int:
        """An unused local id."""
        self.next_id += 1
        return self.next_id - 1

    # --- relations -----------------------------------------------------------------------------------

    def relation(self, rel: hir.Relation, outer: Rel, cols: ColumnMap, depth: int) -> Rel:
        """``rel`` applied to ``outer``: for each row of outer its columns, then those of rel."""
        check_for_interrupts()
        shift = outer.arity
        match rel:
            case hir.Constant(rows=rows, typ=typ) if typ.columns and self.calls_values:
                return outer.flat_map(mir.WRAP, _values(rows, typ), typ)
            case hir.Constant(rows=rows, typ=typ):
                return outer.product(Rel.constant(tuple((row, 1) for row in rows), typ))
            case hir.Get(id=local) if isinstance(local, int):
                return self._get_cte(local, outer, cols, depth)
            case hir.Get(id=gid, typ=typ):
                return outer.product(Rel(mir.Get(gid, typ), typ))
            case hir.Let(id=local, value=value, body=body):
                lowered = self.relation(value, outer, cols, depth)
                return self.let_in(
                    lowered, lambda get: self._in_let(local, get, body, outer, cols, depth)
                )
            case hir.LetRec():
                return self._let_rec(rel, outer, cols, depth)
            case hir.Project(input=inner, outputs=outputs):
                done = self.relation(inner, outer, cols, depth)
                return done.project([*range(shift), *(shift + o for o in outputs)])
            case hir.Map(input=inner, scalars=scalars):
                done = self.relation(inner, outer, cols, depth)
                fused = fuse(scalars, done.arity - shift)
                if fused is None:
                    return self._map(done, scalars, cols, depth)
                mapped = self._map(done, fused[0], cols, depth)
                return mapped.project([*range(done.arity), *(shift + c for c in fused[1])])
            case hir.CallTable():
                return self._call_table(rel, outer, cols, depth)
            case hir.Filter(input=inner, predicates=predicates):
                done = self.relation(inner, outer, cols, depth)
                for predicate in predicates:
                    for conjunct in conjuncts(predicate):
                        done = self._filter(done, certain(conjunct), cols, depth)
                return done
            case hir.Join():
                return self.join(self, rel, outer, cols, depth)
            case hir.Reduce():
                return self._reduce(rel, outer, cols, depth)
            case hir.Distinct(input=inner):
                return self.relation(inner, outer, cols, depth).distinct()
            case hir.TopK():
                return self._topk(rel, outer, cols, depth)
            case hir.Negate(input=inner):
                return self.relation(inner, outer, cols, depth).negate()
            case hir.Threshold(input=inner):
                return self.relation(inner, outer, cols, depth).threshold()
            case hir.Union(inputs=inputs):
                return Rel.union([self.relation(i, outer, cols, depth) for i in inputs])

    def _in_let(
        self,
        local: int,
        get: Rel,
        body: hir.Relation,
        outer: Rel,
        cols: ColumnMap,
        depth: int,
    ) -> Rel:
        assert isinstance(get.mir, mir.Get | mir.Constant)
        if isinstance(get.mir, mir.Get) and isinstance(get.mir.id, int):
            self.ctes[local] = CteBinding(get.mir.id, get.typ, outer, cols, depth)
            return self.relation(body, outer, cols, depth)
        # Bind a CTE even if it is a catalog object or a constant, so that it has a name.
        new = self.fresh()
        self.ctes[local] = CteBinding(new, get.typ, outer, cols, depth)
        done = self.relation(body, outer, cols, depth)
        return Rel(mir.Let(new, get.mir, done.mir), done.typ)

    def _get_cte(self, local: int, outer: Rel, cols: ColumnMap, depth: int) -> Rel:
        """A CTE joined to ``outer`` on the outer columns that it was lowered over."""
        cte = self.ctes[local]
        get = Rel(mir.Get(cte.id, cte.typ), cte.typ)
        # Read where it was defined, so it has outer's columns already.
        if outer.mir == cte.outer.mir:
            return get
        inwards = depth - cte.depth
        pairs = {p: cols.get(level + inwards, i) for (level, i), p in cte.columns.positions.items()}
        equalities = [(here, outer.arity + there) for there, here in sorted(pairs.items())]
        joined = outer.join(get, equalities)
        return joined.project([*range(outer.arity), *range(outer.arity + len(pairs), joined.arity)])

    def _let_rec(self, rel: hir.LetRec, outer: Rel, cols: ColumnMap, depth: int) -> Rel:
        ids: list[int] = []
        for binding in rel.bindings:
            columns = (*outer.typ.columns, *binding.typ.columns)
            new = self.fresh()
            ids.append(new)
            self.ctes[binding.id] = CteBinding(new, RelationType(columns), outer, cols, depth)
        values = tuple(self.relation(b.value, outer, cols, depth).mir for b in rel.bindings)
        body = self.relation(rel.body, outer, cols, depth)
        limits = tuple(rel.limit for _ in ids)
        return Rel(mir.LetRec(tuple(ids), values, limits, body.mir), body.typ)

    def _map(self, rel: Rel, scalars: Sequence[hir.Scalar], cols: ColumnMap, depth: int) -> Rel:
        rest = [certain(scalar) for scalar in scalars]
        while rest:
            arity = rel.arity
            # A scalar may read those before it, and so may its subqueries, which are joined to rows that have them by
            # then.
            batch = independent(rest, arity - cols.arity)
            rest = rest[len(batch) :]
            rel, found = self.subqueries(batch, rel, cols, depth)
            done: list[ms.Scalar] = []
            for scalar in batch:
                lowered, rel = self.scalar(scalar, rel, cols, depth, found)
                done.append(lowered)
            base = rel.arity
            rel = rel.map(done).project([*range(arity), *range(base, base + len(done))])
        return rel

    def _call_table(self, rel: hir.CallTable, outer: Rel, cols: ColumnMap, depth: int) -> Rel:
        arity = outer.arity
        done, found = self.subqueries(rel.exprs, outer, cols, depth)
        exprs: list[ms.Scalar] = []
        for expr in rel.exprs:
            lowered, done = self.scalar(expr, done, cols, depth, found)
            exprs.append(lowered)
        grown = done.arity
        called = done.flat_map(rel.func, exprs, rel.output)
        if grown == arity:
            return called
        return called.project([*range(arity), *range(grown, called.arity)])

    def _filter(self, rel: Rel, predicate: hir.Scalar, cols: ColumnMap, depth: int) -> Rel:
        arity = rel.arity
        if isinstance(predicate, hir.Exists):
            # Over outer's rows themselves: a filter needs no join with their distinct combinations.
            some = self.existential(rel, cols, predicate.relation, depth, distinct_outer=True)
            return some.filter([ms.Column(arity)]).project(range(arity))
        rel, found = self.subqueries([predicate], rel, cols, depth)
        condition, rel = self.scalar(predicate, rel, cols, depth, found)
        rel = rel.filter([condition])
        return rel if rel.arity == arity else rel.project(range(arity))

    def _reduce(self, rel: hir.Reduce, outer: Rel, cols: ColumnMap, depth: int) -> Rel:
        shift = outer.arity
        done = self.relation(rel.input, outer, cols, depth)
        exprs = [a.expr for a in rel.aggregates]
        done, found = self.subqueries(exprs, done, cols, depth)
        aggregates: list[ms.AggregateExpr] = []
        for aggregate in rel.aggregates:
            expr, done = self.scalar(aggregate.expr, done, cols, depth, found)
            aggregates.append(
                ms.AggregateExpr(
                    aggregate.func, expr, aggregate.distinct, aggregate.typ, aggregate.nullable
                )
            )
        key = [*range(shift), *(shift + k for k in rel.group_key)]
        reduced = done.reduce(key, aggregates, rel.expected_group_size)
        if rel.group_key:
            return reduced
        # Without GROUP BY there is a row also where no row came from: each of outer's that is missing gets it.
        defaults = [(of_nothing(a), a.typ) for a in aggregates]
        return self.lookup(outer, reduced, defaults)

    def _topk(self, rel: hir.TopK, outer: Rel, cols: ColumnMap, depth: int) -> Rel:
        shift = outer.arity
        done = self.relation(rel.input, outer, cols, depth)
        group = [*range(shift), *(shift + k for k in rel.group_key)]
        order = tuple(msgspec.structs.replace(o, column=shift + o.column) for o in rel.order_key)
        if rel.limit is None:
            return done.topk(group, order, None, rel.offset, rel.expected_group_size)
        if not has_subquery(rel.limit):
            limit, _ = self.scalar(rel.limit, done, cols, depth, {})
            return done.topk(group, order, limit, rel.offset, rel.expected_group_size)
        # The limit's subqueries depend on outer's columns alone, so adding their values to the group key splits no group.
        arity = done.arity
        done, found = self.subqueries([rel.limit], done, cols, depth)
        limit, done = self.scalar(rel.limit, done, cols, depth, found)
        group.extend(sorted(ms.support(limit) - set(group)))
        top = done.topk(group, order, limit, rel.offset, rel.expected_group_size)
        return top.project(range(arity))

    # --- subqueries ----------------------------------------------------------------------------------

    def branch(
        self,
        outer: Rel,
        cols: ColumnMap,
        inner: hir.Relation,
        depth: int,
        apply: Callable[[Rel, ColumnMap], Rel],
        *,
        distinct_outer: bool,
    ) -> Rel:
        """``apply`` once for every distinct combination of the columns of ``outer`` that ``inner`` reads; the results joined to outer.

        ``apply`` gets the relation of distinct keys and the map of columns in it, and returns its columns followed by new ones. With
        ``distinct_outer`` outer's rows are known to be distinct already.
        """
        if not distinct_outer and is_row_wise(inner):
            inside = cols.enter_scope(outer.arity - cols.arity)
            return self.let_in(outer, lambda get: apply(get, inside))
        needed = sorted(self._outer_columns(inner, depth))
        key = [cols.get(level - 1, i) for level, i in needed]
        inside = ColumnMap({column: n for n, column in enumerate(needed)}, len(needed))

        def over(get_outer: Rel) -> Rel:
            keyed = get_outer.distinct_by(key) if key else unit()
            return self.let_in(keyed, lambda get_keyed: joined(get_outer, get_keyed))

        def joined(get_outer: Rel, get_keyed: Rel) -> Rel:
            answer = apply(get_keyed, inside)
            arity = get_outer.arity
            equalities = [(k, arity + n) for n, k in enumerate(key)]
            both = get_outer.join(answer, equalities)
            return both.project([*range(arity), *range(arity + len(key), both.arity)])

        return self.let_in(outer, over)

    def _outer_columns(self, inner: hir.Relation, depth: int) -> set[tuple[int, int]]:
        """The columns from outside that ``inner`` and its CTEs read, by level as seen from inside."""
        reads = self.reads.of(inner)
        found = set(reads.columns)
        for local in reads.ctes:
            cte = self.ctes[local]
            inwards = depth - cte.depth + 1
            found |= {(level + inwards, i) for level, i in cte.columns.positions}
        return found

    def existential(
        self,
        outer: Rel,
        cols: ColumnMap,
        inner: hir.Relation,
        depth: int,
        *,
        distinct_outer: bool,
    ) -> Rel:
        """Outer's columns, and whether ``inner`` has a row for them."""

        def apply(get_inner: Rel, inside: ColumnMap) -> Rel:
            answer = self.relation(inner, get_inner, inside, depth + 1)
            some = answer.distinct_by(range(get_inner.arity)).map([ms.Literal(True, BOOLEAN)])
            return self.lookup(get_inner, some, [(False, BOOLEAN)])

        return self.branch(outer, cols, inner, depth, apply, distinct_outer=distinct_outer)

    def scalar_subquery(self, outer: Rel, cols: ColumnMap, inner: hir.Relation, depth: int) -> Rel:
        """Outer's columns, and the value of ``inner`` for them: NULL for no row, an error for several."""

        def apply(get_inner: Rel, inside: ColumnMap) -> Rel:
            answer = self.relation(inner, get_inner, inside, depth + 1)
            typ = answer.typ.columns[-1].type
            arity = get_inner.arity

            def guarded(get_answer: Rel) -> Rel:
                one = ms.AggregateExpr("count", ms.Literal(True, BOOLEAN), False, BIGINT, False)
                counts = get_answer.reduce(list(range(arity)), [one], None)
                many = ms.Call("gt_bigint", (ms.Column(arity), ms.Literal(1, BIGINT)), BOOLEAN)
                errors = counts.filter([many]).project(range(arity))
                return Rel.union(
                    [get_answer, errors.map([ms.LiteralError(ms.TOO_MANY_RECORDS, typ)])]
                )

            return self.lookup(get_inner, self.let_in(answer, guarded), [(None, typ)])

        return self.branch(outer, cols, inner, depth, apply, distinct_outer=False)

    def subqueries(
        self, scalars: Sequence[hir.Scalar], rel: Rel, cols: ColumnMap, depth: int
    ) -> tuple[Rel, dict[hir.Scalar, int]]:
        """``rel`` joined with the value of every subquery in ``scalars`` (but those inside a CASE), and the position of each value."""
        wanted: list[hir.Exists | hir.Select] = []
        for scalar in scalars:
            collect(scalar, wanted)
        if not wanted:
            return rel, {}
        found: dict[hir.Scalar, int] = {}

        def over(get: Rel) -> Rel:
            # Computed once for equal rows; the join on all columns gives the value to each of them.
            distinct = get.distinct()
            arity = get.arity
            inputs, total = [get], arity
            for node in dict.fromkeys(wanted):
                if isinstance(node, hir.Exists):
                    answer = self.existential(
                        distinct, cols, node.relation, depth, distinct_outer=False
                    )
                else:
                    answer = self.scalar_subquery(distinct, cols, node.relation, depth)
                inputs.append(answer)
                total += answer.arity
                found[node] = total - 1
            starts = [0]
            for part in inputs[:-1]:
                starts.append(starts[-1] + part.arity)
            classes = [[start + c for start in starts] for c in range(arity)]
            return Rel.join_all(inputs, classes)

        return self.let_in(rel, over), found

    # --- lookups -------------------------------------------------------------------------------------

    def anti_lookup(self, keys: Rel, found: Rel, default: Sequence[tuple[Datum, SqlType]]) -> Rel:
        """The rows of ``keys`` that no row of ``found`` begins with, followed by the default values."""
        arity = keys.arity
        types = tuple(ColumnType(typ, value is None) for value, typ in default)

        def over(get_keys: Rel) -> Rel:
            missing = Rel.union(
                [found.distinct_by(range(arity)).negate(), get_keys.distinct_by(range(arity))]
            )
            joined = missing.join(get_keys, [(c, arity + c) for c in range(arity)])
            values = constant_row(tuple(value for value, _ in default), types)
            return joined.project(range(arity)).product(values, keep=True)

        return self.let_in(keys, over)

    def lookup(self, keys: Rel, found: Rel, default: Sequence[tuple[Datum, SqlType]]) -> Rel:
        """``found``, and the rows of ``keys`` missing from it with the default values."""
        return self.let_in(
            found, lambda get: Rel.union([get, self.anti_lookup(keys, get, default)])
        )

    # --- scalars -------------------------------------------------------------------------------------

    def scalar(
        self,
        scalar: hir.Scalar,
        rel: Rel,
        cols: ColumnMap,
        depth: int,
        found: Mapping[hir.Scalar, int],
    ) -> tuple[ms.Scalar, Rel]:
        """A scalar over ``rel``, and ``rel`` with the columns appended that subqueries inside a CASE need."""
        match scalar:
            case hir.Column(index=index, level=level):
                return ms.Column(cols.get(level, index)), rel
            case hir.Exists() | hir.Select():
                return ms.Column(found[scalar]), rel
            case hir.Call(func=func, args=args, typ=typ):
                done: list[ms.Scalar] = []
                for arg in args:
                    lowered, rel = self.scalar(arg, rel, cols, depth, found)
                    done.append(lowered)
                return ms.Call(func, tuple(done), typ), rel
            case hir.If():
                return self._if(scalar, rel, cols, depth, found)
            case hir.Windowing():
                return self._window(scalar, rel, cols, depth, found)
            case hir.CastLiteral(value=value, typ=typ, shown=shown):
                if self.calls_values:
                    return self.scalar(shown, rel, cols, depth, found)
                return ms.Literal(value, typ), rel
            case ms.Literal(value=value, typ=typ) if typ.kind == "unknown":
                # An untyped literal in a subquery whose use never required another type is text.
                return ms.Literal(value, TEXT), rel
            case _:
                return scalar, rel

    def _window(
        self,
        node: hir.Windowing,
        rel: Rel,
        cols: ColumnMap,
        depth: int,
        found: Mapping[hir.Scalar, int],
    ) -> tuple[ms.Scalar, Rel]:
        parts: list[list[ms.Scalar]] = []
        for exprs in (node.args, node.partition_by, [o.expr for o in node.order_by]):
            done: list[ms.Scalar] = []
            for expr in exprs:
                lowered, rel = self.scalar(expr, rel, cols, depth, found)
                done.append(lowered)
            parts.append(done)
        args, partition, order = parts
        return ms.Column(rel.arity), lower_window(node, rel, cols.arity, args, partition, order)

    def _if(
        self,
        node: hir.If,
        rel: Rel,
        cols: ColumnMap,
        depth: int,
        found: Mapping[hir.Scalar, int],
    ) -> tuple[ms.Scalar, Rel]:
        condition, rel = self.scalar(node.condition, rel, cols, depth, found)
        if not has_subquery(node.then) and not has_subquery(node.otherwise):
            then, rel = self.scalar(node.then, rel, cols, depth, found)
            otherwise, rel = self.scalar(node.otherwise, rel, cols, depth, found)
            return ms.If(condition, then, otherwise), rel
        # Each branch's subqueries are evaluated only for the rows that take it, since they may fail: split the rows, and union them again.
        arity = rel.arity
        false = ms.Call("not", (condition,), BOOLEAN)
        null = ms.Call("is_null", (condition,), BOOLEAN)
        either = ms.Call("or", (false, null), BOOLEAN)

        def part(get: Rel, test: ms.Scalar, branch: hir.Scalar) -> Rel:
            rows, inner = self.subqueries([branch], get.filter([test]), cols, depth)
            value, rows = self.scalar(branch, rows, cols, depth, {**found, **inner})
            return rows.map([value]).project([*range(arity), rows.arity])

        grown = self.let_in(
            rel,
            lambda get: Rel.union(
                [part(get, condition, node.then), part(get, either, node.otherwise)]
            ),
        )
        return ms.Column(arity), grown
