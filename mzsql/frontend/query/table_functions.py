"""Table functions: in FROM, several side by side in ROWS FROM, numbered by WITH ORDINALITY, and in select lists.

Promise: arguments may read what is to the function's left. A single output column has the relation's name, unless the
function names it itself; a scalar function in FROM is a relation of one row. In a select list a function with several
columns is a record, which is NULL where another function in the list returns more rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec
from sqlglot import expressions as exp

from mzsql.expr import functions
from mzsql.expr.functions import rows_from
from mzsql.expr.functions.aggregate.windows import WINDOW_FUNCTIONS
from mzsql.expr.functions.table import TableFunc
from mzsql.expr.functions.text import patterns
from mzsql.expr.functions.text import table_functions as text_tables
from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.names.scope import Scope, ScopeItem
from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.query import defined_tables
from mzsql.frontend.query.ordering import order_items
from mzsql.frontend.scalar import qualified
from mzsql.frontend.scalar.aggregates import is_aggregate
from mzsql.frontend.scalar.clauses import not_allowed
from mzsql.frontend.scalar.coerce import (
    NOT_UNIQUE,
    Typed,
    apply,
    call,
    plain_name,
    polymorphic_problem,
    resolve,
    settle,
)
from mzsql.frontend.scalar.context import ExprContext, QueryPlans
from mzsql.frontend.scalar.defined import filled
from mzsql.frontend.scalar.nodes import function_name, position_of
from mzsql.repr import types as t
from mzsql.repr.errors import InvalidParameter, SqlError, UndefinedFunction, Unsupported
from mzsql.repr.types import ColumnType, RelationType, SqlType

_UNIT = hir.Constant(((),), RelationType(()))
Items = tuple[ScopeItem, ...]
#: Functions whose columns depend on a constant argument.
_BY_CONSTANT = frozenset({"regexp_extract", "csv_extract"})
#: The name of the argument list in errors.
_ARGUMENTS = "table function arguments"
_OTHERS = "other table functions"
#: Functions whose rows are the elements of another function's array.
_OF_ARRAY = {"string_to_table": "string_to_array"}
_REPEAT = "repeat_row"
#: How many rows there are; a negative number is an error.
_TIMES = """CASE WHEN mz_internal.mz_raise_if(($1) < 0, 'Negative multiplicity in constant result: ' || ($1)::text)
    THEN NULL ELSE ($1)::bigint END"""
#: The most columns that `csv_extract` returns.
_MAX_COLUMNS = 1000


@dataclass(frozen=True)
class _Resolved:
    """A resolved call with its arguments cast.

    Attributes:
        func: the table function.
        args: its arguments.
        whole: whether its rows are one column of records.
        scalar: the name of a scalar function whose value is the only row.
    """

    func: Any
    args: tuple[Typed, ...]
    whole: bool = False
    scalar: str | None = None

    @property
    def rows(self) -> RelationType:
        """The columns of the function's rows."""
        typ: RelationType = self.func.output_type([a.typ for a in self.args])
        return typ

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        if self.scalar is not None:
            return (self.scalar,)
        names: tuple[str, ...] = self.func.names or (self.func.name,) * self.rows.arity
        return names

    @property
    def record(self) -> SqlType:
        """The type of its row as a record."""
        return SqlType("record", fields=tuple(zip(self.names, self.rows.columns, strict=True)))

    @property
    def outputs(self) -> tuple[tuple[str, ColumnType], ...]:
        """Names and types of its columns in the relation."""
        if self.whole:
            return ((self.func.name, ColumnType(self.record)),)
        return tuple(zip(self.names, self.rows.columns, strict=True))


def call_of(node: exp.Expr) -> exp.Expr:
    """The call itself, without its schema's name."""
    return node.expression if isinstance(node, exp.Dot) else node


def is_table_function(name: str) -> bool:
    """Whether a name means a table function."""
    special = name in _BY_CONSTANT or name in _OF_ARRAY or name in defined_tables.TABLES
    return special or bool(functions.table_funcs_named(name))


def in_from(
    planner: QueryPlans,
    calls: list[exp.Expr],
    left: Scope | None,
    alias: exp.Expr | None,
    *,
    numbered: bool,
) -> tuple[hir.Relation, Items]:
    """One or several calls as a relation; ``alias`` names the only column of a single function."""
    if len(calls) == 1 and not numbered:
        relation, items = planned(planner, calls[0], left)
    else:
        relation, items = _side_by_side(planner, calls, left, numbered=numbered)
    plain = len(items) == 1 + numbered and len(calls) == 1
    named = alias is not None and alias.this and not alias.args.get("columns")
    if plain:
        items = (msgspec.structs.replace(items[0], scalar=not numbered), *items[1:])
    if plain and named and items[0].name == function_name(call_of(calls[0])):
        assert alias is not None
        items = (msgspec.structs.replace(items[0], name=fold(alias.this)), *items[1:])
    return relation, items


def planned(
    planner: QueryPlans, node: exp.Expr, left: Scope | None, clause: str = _ARGUMENTS
) -> tuple[hir.Relation, Items]:
    """One call."""
    name = function_name(call_of(node))
    if name == _REPEAT and len(call_of(node).expressions) == 1:
        return _repeated(planner, node, left, clause)
    if name in defined_tables.TABLES:
        return _of_query(planner, node, left, clause)
    if not is_table_function(name):
        value = _scalar(planner, node, left)
        item = ScopeItem(name, None, ColumnType(value.typ, value.nullable))
        return hir.Map(_UNIT, (value.expr,)), (item,)
    found = _resolve(planner, node, left, clause)
    return _relation(found.func.key, [found]), _items([found])


def _repeated(
    planner: QueryPlans, node: exp.Expr, left: Scope | None, clause: str
) -> tuple[hir.Relation, Items]:
    """``repeat_row(n)``: so many rows of no columns, by which the rows beside it are repeated."""
    inner = qualified.unqualified(planner.catalog, node) if isinstance(node, exp.Dot) else node
    times = filled(_TIMES, inner.expressions)
    series = exp.Anonymous(this="generate_series", expressions=[exp.Literal.number(1), times])
    relation, _ = planned(planner, series, left, clause)
    return hir.Project(relation, ()), ()


def _of_query(
    planner: QueryPlans, node: exp.Expr, left: Scope | None, clause: str
) -> tuple[hir.Relation, Items]:
    """A function that is a query over its arguments."""
    inner = qualified.unqualified(planner.catalog, node) if isinstance(node, exp.Dot) else node
    ctx = _context(planner, left, clause)
    args = [ctx.plan(argument) for argument in inner.expressions]
    query = defined_tables.as_query(function_name(inner), inner, args)
    done = planner.query(query, left).finish()
    columns = zip(done.names, done.types, strict=True)
    return done.relation, tuple(ScopeItem(name, None, typ) for name, typ in columns)


def _side_by_side(
    planner: QueryPlans,
    calls: list[exp.Expr],
    left: Scope | None,
    *,
    numbered: bool,
    whole: bool = False,
) -> tuple[hir.Relation, Items]:
    """Several calls combined row by row; with ``whole``, in a select list, functions with several columns return
    records.
    """
    found = [_resolve(planner, node, left, _OTHERS if whole else _ARGUMENTS) for node in calls]
    if whole:
        found = _as_records(found)
    parts = [rows_from.Part(f.func, len(f.args), f.whole) for f in found]
    items = list(_items(found, alone=len(found) == 1))
    if numbered:
        items.append(ScopeItem("ordinality", None, ColumnType(t.BIGINT, False)))
    return _relation(rows_from.key(parts, numbered=numbered), found), tuple(items)


def _as_records(found: list[_Resolved]) -> list[_Resolved]:
    return [replace(f, whole=f.rows.arity > 1) for f in found]


def _relation(key: str, found: list[_Resolved]) -> hir.CallTable:
    func = functions.table_func(key)
    args = [arg for f in found for arg in f.args]
    output = func.output_type([a.typ for a in args])
    return hir.CallTable(key, tuple(a.expr for a in args), output)


def _items(found: list[_Resolved], *, alone: bool = True) -> Items:
    return tuple(
        ScopeItem(name, None, ColumnType(column.type, column.nullable or not alone))
        for f in found
        for name, column in f.outputs
    )


def _context(planner: QueryPlans, left: Scope | None, clause: str) -> ExprContext:
    return ExprContext(planner, Scope((), left), clause)


def _scalar(planner: QueryPlans, node: exp.Expr, left: Scope | None) -> Typed:
    """The value of a scalar function in the place of a table function."""
    name = function_name(call_of(node))
    for kind, known in (("aggregate", is_aggregate(name)), ("window", name in WINDOW_FUNCTIONS)):
        if known:
            raise SqlError(
                f"{kind} functions are not supported in functions in FROM",
                position=position_of(node),
                sqlstate="42809",
            )
    return settle(_context(planner, left, _ARGUMENTS).plan(node))


def _of_scalar(planner: QueryPlans, node: exp.Expr, left: Scope | None) -> _Resolved:
    """A scalar function beside table functions: unnest of a list with its value."""
    value = _scalar(planner, node, left)
    listed = call("list", [value], SqlType("list", element=value.typ))
    func = resolve(functions.table_funcs_named("unnest"), [listed.typ])
    return _Resolved(func, (listed,), scalar=function_name(call_of(node)))


def _resolve(
    planner: QueryPlans, node: exp.Expr, left: Scope | None, clause: str = _ARGUMENTS
) -> _Resolved:
    """The overload that a call means; ``clause`` names its argument list in errors.

    Raises:
        UndefinedFunction: ``function f(integer) does not exist``.
    """
    inner = qualified.unqualified(planner.catalog, node) if isinstance(node, exp.Dot) else node
    name = function_name(inner)
    if not is_table_function(name):
        return _of_scalar(planner, node, left)
    if name in defined_tables.TABLES:
        raise Unsupported(
            f"{name} beside other table functions is not supported",
            position=position_of(node),
            hint="Call it in FROM.",
        )
    ctx = _context(planner, left, clause)
    if name in _OF_ARRAY:
        made = exp.Anonymous(this=_OF_ARRAY[name], expressions=inner.expressions)
        listed = ctx.plan(made)
        return _Resolved(
            resolve(functions.table_funcs_named("unnest"), [listed.typ]), (listed,), scalar=name
        )
    args = [ctx.plan(e) for e in inner.expressions]
    types = [a.typ for a in args]
    shown = f"function {_qualified(node, name)}({', '.join(plain_name(typ) for typ in types)})"
    if name in _BY_CONSTANT and len(args) == 2:
        candidates: tuple[Any, ...] = (_by_constant(name, args[0], position_of(node)),)
    else:
        candidates = functions.table_funcs_named(name)
    if name == "generate_series" and len(args) == 2:
        if all(typ.kind == "unknown" for typ in types):
            raise _ambiguous(shown, position_of(node))
        args.append(_one(args))
        types.append(args[-1].typ)
    elif name == "generate_series" and len(args) == 3 and all(t_.kind == "unknown" for t_ in types):
        # Three untyped arguments: with a step they are numbers.
        types = [t.BIGINT] * 3
    try:
        func = resolve(candidates, types)
    except UndefinedFunction:
        raise _ambiguous(shown, position_of(node)) from None
    if func is None:
        problem = polymorphic_problem(candidates, types)
        message = problem or f"{shown} does not exist"
        raise UndefinedFunction(message, position=position_of(node))
    return _Resolved(func, tuple(apply(func, args)))


def _ambiguous(shown: str, position: int | None) -> UndefinedFunction:
    return UndefinedFunction(
        f"{shown} is not unique",
        position=position,
        hint=NOT_UNIQUE,
        sqlstate="42725",
    )


def _by_constant(name: str, arg: Typed, position: int | None) -> Any:
    """The overload with the columns that a constant argument asks for."""
    value = arg.expr.value if isinstance(arg.expr, Literal) else None
    if name == "csv_extract":
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidParameter(
                "csv_extract number of columns must be a positive integer literal",
                position=position,
            )
        if value > _MAX_COLUMNS:
            raise InvalidParameter(
                f"csv_extract number of columns must be at most {_MAX_COLUMNS}", position=position
            )
        return functions.table_func(text_tables.csv_key(value))
    if not isinstance(value, str):
        raise InvalidParameter(
            "regexp_extract requires a string literal as its first argument", position=position
        )
    problem = patterns.problem(value)
    if problem is not None:
        raise InvalidParameter(f"invalid regular expression: {problem}", position=position)
    key = text_tables.extract_key(value)
    if key is None:
        raise InvalidParameter(
            "regexp_extract must specify at least one capture group", position=position
        )
    return functions.table_func(key)


def _qualified(node: exp.Expr, name: str) -> str:
    """The name with the schema as written."""
    if not isinstance(node, exp.Dot):
        return name
    return ".".join((*qualified.names(node.this), name))


def _one(args: list[Typed]) -> Typed:
    """generate_series' default step: 1 in the wider type."""
    kinds = {a.typ.kind for a in args}
    typ = t.BIGINT if "bigint" in kinds else t.INTEGER
    return Typed(Literal(1, typ), typ, False)


# --- in select lists -----------------------------------------------------------------------------


def in_select(ctx: ExprContext, node: exp.Expr) -> Typed:
    """A call in a select list or its ORDER BY: joined laterally to the rows. Several calls run side by side, equal ones
    once.

    The first one planned brings all others along, so that their columns never move.

    Raises:
        SqlError: the call stands where no table function may, in a clause other than the select list and its
            ORDER BY (0A000).
    """
    select = ctx.select
    assert select is not None
    assert ctx.table_functions is not None
    known = ctx.table_functions
    if not known:
        known.extend(_calls_in([*select.node.expressions, *order_items(select.node)]))
        _join(ctx, known)
    if node not in known:
        raise SqlError(
            not_allowed("table functions", ctx.clause, function_name(call_of(node))),
            position=position_of(node),
            sqlstate="0A000",
        )
    return _column(ctx, known, known.index(node))


def _calls_in(items: list[exp.Expr]) -> list[exp.Expr]:
    """The table function calls in these items, each once, without those in subqueries."""
    found: list[exp.Expr] = []
    for item in items:
        for node in item.walk(bfs=False, prune=_ends):
            if _is_call(node) and node not in found:
                found.append(node)
    return found


def _is_call(node: exp.Expr) -> bool:
    inner = call_of(node)
    if not isinstance(inner, exp.Anonymous):
        return False
    name = function_name(inner)
    return is_table_function(name) and not functions.scalars_named(name)


def _ends(node: exp.Expr) -> bool:
    return isinstance(node, exp.Query) or _is_call(node)


def _join(ctx: ExprContext, calls: list[exp.Expr]) -> None:
    select = ctx.select
    assert select is not None
    scope: Scope = select.scope
    if len(calls) == 1:
        relation, items = planned(ctx.planner, calls[0], scope, _OTHERS)
    else:
        relation, items = _side_by_side(ctx.planner, list(calls), scope, numbered=False, whole=True)
    if select.relation == _UNIT and not _reads_columns(relation):
        select.relation = relation
    else:
        select.relation = hir.Join(select.relation, relation, Literal(True, t.BOOLEAN), "inner")
    hidden = [ScopeItem(i.name, None, i.typ, unqualified=False, starred=False) for i in items]
    select.scope = replace(scope, items=(*scope.items, *hidden))
    ctx.scope = select.scope


def _reads_columns(relation: hir.Relation) -> bool:
    """Whether a call's arguments read columns, of this query or an enclosing one."""
    return any(
        isinstance(part, hir.Column | hir.Exists | hir.Select)
        for scalar in hir.relation_scalars(relation)
        for part in hir.walk_scalar(scalar)
    )


def _outputs(ctx: ExprContext, calls: list[exp.Expr], left: Scope) -> list[_Resolved]:
    name = function_name(call_of(calls[0]))
    if len(calls) == 1 and name in defined_tables.TABLES:
        _, items = planned(ctx.planner, calls[0], left, _OTHERS)
        return [_Resolved(_named_columns(name, items), ())]
    found = [_resolve(ctx.planner, node, left, _OTHERS) for node in calls]
    return found if len(calls) == 1 else _as_records(found)


def _named_columns(name: str, items: Items) -> TableFunc:
    """A function of these columns, whose rows nobody asks for."""
    typ = RelationType(tuple(item.typ for item in items))
    names = tuple(item.name for item in items)
    return TableFunc(name, name, (), names, typ, rows=lambda *_: exp.Array())


def _column(ctx: ExprContext, calls: list[exp.Expr], index: int) -> Typed:
    """The column of a call; a record for several columns."""
    select = ctx.select
    assert select is not None
    scope: Scope = select.scope
    ctx.scope = scope
    found = _outputs(ctx, calls, scope)
    widths = [len(f.outputs) for f in found]
    first = len(scope.items) - sum(widths) + sum(widths[:index])
    columns = [
        Typed(
            hir.Column(first + i),
            scope.items[first + i].typ.type,
            scope.items[first + i].typ.nullable,
        )
        for i in range(widths[index])
    ]
    if len(columns) == 1:
        return columns[0]
    return call("row", columns, found[index].record)
