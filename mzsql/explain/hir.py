"""EXPLAIN RAW PLAN as text: HIR.

Promise: a column of an enclosing query is ``#^0``, one caret per scope. Subqueries appear in the scalar by name
(``exists(Get l1)``) and are listed under With, after the query's own bindings. EXCEPT is printed as such unless `raw
syntax` is requested.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.explain import scalars
from mzsql.explain.config import ExplainConfig, Humanizer
from mzsql.explain.document import Frame, assemble
from mzsql.explain.lines import Lines
from mzsql.explain.physical import finish, recursion_limit
from mzsql.expr import functions
from mzsql.expr import scalar as sc
from mzsql.frontend import hir
from mzsql.repr.depth import deep

_JOINS = {
    "inner": "InnerJoin",
    "left": "LeftOuterJoin",
    "right": "RightOuterJoin",
    "full": "FullOuterJoin",
}
_VARIADIC = {"and": " AND ", "or": " OR "}
#: The default window frame, which is not shown.
_DEFAULT_FRAME = hir.WindowFrame(
    "range", hir.FrameBound("unbounded preceding"), hir.FrameBound("current row")
)
#: A node's subqueries, with the local ids that they were given.
_Subqueries = list[tuple[int, hir.Relation]]


class HirPrinter:
    """Prints a query."""

    def __init__(self, humanizer: Humanizer, config: ExplainConfig, first_name: int) -> None:
        self._humanizer = humanizer
        self._config = config
        self._constants = scalars.ScalarPrinter(redacted=config.redacted)
        self._out = Lines()
        self._next = first_name

    def query(self, query: hir.Query) -> Lines:
        """The whole query."""
        level = 0
        if not query.finishing.is_trivial(len(query.input_types)):
            self._out.add(level, finish(query.finishing), node=True)
            level += 1
        self._node(query.relation, level)
        return self._out

    # --- relations ------------------------------------------------------------------------------

    def _node(self, rel: hir.Relation, level: int) -> None:
        if isinstance(rel, hir.Let):
            self._let(rel, level)
            return
        if isinstance(rel, hir.LetRec):
            self._let_rec(rel, level)
            return
        subqueries: _Subqueries = []
        text = self._operator(rel, subqueries)
        inputs = hir.relation_inputs(rel)
        if not (self._config.raw or self._config.raw_syntax):
            virtual = except_parts(rel)
            if virtual is not None:
                text, inputs = virtual
        if subqueries:
            self._out.add(level, "Return", node=True)
            self._out.add(level + 1, text, node=True)
            self._children(rel, inputs, level + 2)
            self._out.add(level, "With")
            for name, relation in subqueries:
                self._out.add(level + 1, f"cte l{name} =", node=True)
                self._node(relation, level + 2)
            return
        self._out.add(level, text, node=True)
        self._children(rel, inputs, level + 1)

    def _children(self, rel: hir.Relation, inputs: Sequence[hir.Relation], level: int) -> None:
        if isinstance(rel, hir.Constant) and not rel.typ.columns:
            for row in rel.rows:
                self._out.add(level, f"- {self._constants.row(row, rel.typ.columns)}")
        for part in inputs:
            self._node(part, level)

    def _operator(self, rel: hir.Relation, subqueries: _Subqueries) -> str:
        def scalar(expr: hir.Scalar) -> str:
            return self._scalar(expr, subqueries)

        match rel:
            case hir.Constant(rows=rows, typ=typ) if typ.columns:
                # VALUES is shown as a table function that turns its arguments into rows.
                values = [
                    self._constants.datum(value, column.type)
                    for row in rows
                    for value, column in zip(row, typ.columns, strict=True)
                ]
                return f"CallTable wrap{typ.arity}({', '.join(values)})"
            case hir.Constant(rows=rows):
                return "Constant" if rows else "Constant <empty>"
            case hir.Get(id=gid):
                return f"Get l{gid}" if isinstance(gid, int) else f"Get {self._humanizer.name(gid)}"
            case hir.Project(outputs=outputs):
                return f"Project ({scalars.columns(outputs)})"
            case hir.Map(scalars=exprs):
                return f"Map ({', '.join(scalar(e) for e in exprs)})"
            case hir.CallTable(func=func, exprs=exprs):
                name = functions.table_func(func).name
                return f"CallTable {name}({', '.join(scalar(e) for e in exprs)})"
            case hir.Filter(predicates=predicates):
                return f"Filter {' AND '.join(scalar(p) for p in predicates)}"
            case hir.Join(on=sc.Literal(value=True), kind="inner"):
                return "CrossJoin"
            case hir.Join(on=on, kind=kind):
                return f"{_JOINS[kind]} {scalar(on)}"
            case hir.Reduce():
                return self._reduce(rel, subqueries)
            case hir.TopK():
                return self._top_k(rel, subqueries)
            case _:
                return type(rel).__name__

    def _reduce(self, rel: hir.Reduce, subqueries: _Subqueries) -> str:
        aggregates = ", ".join(self._aggregate(a, subqueries) for a in rel.aggregates)
        group = f" group_by=[{scalars.columns(rel.group_key)}]" if rel.group_key else ""
        size = rel.expected_group_size
        hint = "" if size is None else f" exp_group_size={size}"
        return f"Reduce{group} aggregates=[{aggregates}]{hint}"

    def _aggregate(self, aggregate: hir.Aggregate, subqueries: _Subqueries) -> str:
        name = scalars.aggregate_name(aggregate.func)
        expr = aggregate.expr
        if name == "count" and isinstance(expr, sc.Literal) and expr.value is True:
            return "count(*)"
        distinct = "distinct " if aggregate.distinct else ""
        return f"{name}({distinct}{self._scalar(expr, subqueries)})"

    def _top_k(self, rel: hir.TopK, subqueries: _Subqueries) -> str:
        parts = ["TopK"]
        if rel.group_key:
            parts.append(f"group_by=[{scalars.columns(rel.group_key)}]")
        if rel.order_key:
            parts.append(f"order_by=[{scalars.order(rel.order_key)}]")
        if rel.limit is not None:
            parts.append(f"limit={self._scalar(rel.limit, subqueries)}")
        if rel.offset:
            parts.append(f"offset={scalars.REDACTED if self._config.redacted else rel.offset}")
        if rel.expected_group_size is not None:
            parts.append(f"exp_group_size={rel.expected_group_size}")
        return " ".join(parts)

    def _let(self, rel: hir.Let, level: int) -> None:
        bindings: list[hir.Let] = []
        body: hir.Relation = rel
        while isinstance(body, hir.Let):
            bindings.append(body)
            body = body.body
        self._out.add(level, "Return", node=True)
        self._node(body, level + 1)
        self._out.add(level, "With")
        for let in reversed(bindings):
            self._out.add(level + 1, f"cte l{let.id} =", node=True)
            self._node(let.value, level + 2)

    def _let_rec(self, rel: hir.LetRec, level: int) -> None:
        self._out.add(level, "Return", node=True)
        self._node(rel.body, level + 1)
        self._out.add(level, f"With Mutually Recursive{recursion_limit(rel.limit)}")
        for binding in reversed(rel.bindings):
            self._out.add(level + 1, f"cte l{binding.id} =", node=True)
            self._node(binding.value, level + 2)

    # --- scalars --------------------------------------------------------------------------------

    def _scalar(self, expr: hir.Scalar, subqueries: _Subqueries) -> str:
        def text(part: hir.Scalar) -> str:
            return self._scalar(part, subqueries)

        match expr:
            case hir.Column(index=index, level=level):
                return f"#{'^' * level}{index}"
            case hir.CastLiteral(shown=cast_as_written):
                return text(cast_as_written)
            case sc.Literal() | sc.LiteralError() | sc.Unmaterializable():
                return self._constants.scalar(expr)
            case hir.If(condition=c, then=t, otherwise=o):
                return f"case when {text(c)} then {text(t)} else {text(o)} end"
            case hir.Exists(relation=relation):
                return f"exists(Get l{self._named(relation, subqueries)})"
            case hir.Select(relation=relation):
                return f"select(Get l{self._named(relation, subqueries)})"
            case hir.Windowing():
                return self._windowing(expr, subqueries)
            case hir.Call(func="not", args=(hir.Call(func="is_null", args=(inner,)),)):
                return f"({text(inner)}) IS NOT NULL"
            case hir.Call(func=key, args=args) if key in _VARIADIC:
                return f"({_VARIADIC[key].join(text(arg) for arg in args)})"
            case hir.Call(func=key, args=args):
                shown = [text(arg) for arg in args]
                func = functions.scalar(key)
                if func.explain:
                    return func.explain.format(*shown)
                return f"{scalars.shown_name(func)}({', '.join(shown)})"

    def _windowing(self, expr: hir.Windowing, subqueries: _Subqueries) -> str:
        args = ", ".join(self._scalar(arg, subqueries) for arg in expr.args)
        parts: list[str] = []
        if expr.partition_by:
            keys = ", ".join(self._scalar(e, subqueries) for e in expr.partition_by)
            parts.append(f"partition by [{keys}]")
        order = ", ".join(
            f"{self._scalar(o.expr, subqueries)} {'desc' if o.desc else 'asc'} "
            f"{'nulls_last' if o.nulls_last else 'nulls_first'}"
            for o in expr.order_by
        )
        parts.append(f"order by [{order}]")
        if expr.frame is not None and expr.frame != _DEFAULT_FRAME:
            parts.append(_frame(expr.frame))
        is_aggregate = expr.kind == "aggregate"
        name = scalars.aggregate_name(expr.func) if is_aggregate else expr.func
        nulls = " ignore nulls" if expr.ignore_nulls else ""
        return f"{name}({args}){nulls} over ({' '.join(parts)})"

    def _named(self, relation: hir.Relation, subqueries: _Subqueries) -> int:
        name = self._next
        self._next += 1
        subqueries.append((name, relation))
        return name


def _frame(frame: hir.WindowFrame) -> str:
    """``rows between 2 preceding and current row``."""
    start, end = (
        bound.kind if bound.offset is None else f"{bound.offset} {bound.kind}"
        for bound in (frame.start, frame.end)
    )
    exclude = f" exclude {frame.exclude}" if frame.exclude else ""
    return f"{frame.units} between {start} and {end}{exclude}"


def except_parts(rel: hir.Relation) -> tuple[str, tuple[hir.Relation, ...]] | None:
    """``A EXCEPT [ALL] B``, recognized in the operators that it was planned as."""
    match rel:
        case hir.Threshold(
            input=hir.Union(inputs=(hir.Distinct(input=a), hir.Negate(input=hir.Distinct(input=b))))
        ):
            return "Except", (a, b)
        case hir.Threshold(input=hir.Union(inputs=(a, hir.Negate(input=b)))):
            return "ExceptAll", (a, b)
        case _:
            return None


def explain_hir(
    query: hir.Query,
    humanizer: Humanizer,
    config: ExplainConfig,
    frame: Frame | None = None,
) -> str:
    """EXPLAIN RAW PLAN AS TEXT or DOT."""
    names = [1]
    for node in hir.walk(query.relation):
        if isinstance(node, hir.Let):
            names.append(node.id + 1)
        elif isinstance(node, hir.LetRec):
            names.extend(binding.id + 1 for binding in node.bindings)
    with deep():
        body = HirPrinter(humanizer, config, max(names)).query(query)
    return assemble([("", body)], humanizer=humanizer, frame=frame or Frame())
