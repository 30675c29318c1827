"""Scalar expressions as SQL: the value of one, and the error of one.

Promise: `value` never throws; where the evaluation fails it is NULL or anything. `error` is a text: NULL where the
evaluation succeeds, else the message of the first failure in Materialize's order of evaluation: arguments from left to
right, then the function; only the taken branch of a CASE; COALESCE up to the first non-NULL value; an AND with a false
argument, or an OR with a true one, never fails. Both have exactly the types of the plan. What an engine would compute
differently from the in-process evaluator, this evaluator computes (`mzsql.expr.evaluator_functions`).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr import evaluator_functions, functions
from mzsql.expr.engines import to_sql
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.literals import literal
from mzsql.expr.functions.portable import PORTABLE_TABLES, is_portable
from mzsql.expr.functions.rules import rules_error
from mzsql.expr.functions.sql import Ast, sql_type
from mzsql.expr.functions.table import Engine, ScalarFunc, Sql, TableFunc
from mzsql.expr.scalar import Call, Column, If, Literal, LiteralError, Scalar, Unmaterializable
from mzsql.repr.errors import InternalError
from mzsql.repr.interrupt import check_for_interrupts
from mzsql.repr.types import BOOLEAN, TEXT, RelationType, SqlType

__all__ = [
    "Known",
    "Sql",
    "error",
    "literal",
    "sql_type",
    "typed",
    "value",
]


class Known(list[Sql]):
    """Columns, some of which hold the values or errors of expressions, which are then read instead of spelled again.

    Attributes:
        values: expressions to the columns with their values.
        errors: expressions to the columns with their errors; None for one that cannot fail.
    """

    def __init__(self, columns: Sequence[Sql]) -> None:
        super().__init__(columns)
        self.values: dict[Scalar, Sql] = {}
        self.errors: dict[Scalar, Ast | None] = {}


def value(expr: Scalar, columns: Sequence[Sql], engine: Engine) -> Ast:
    """The value of the expression over the given columns; arbitrary where it fails."""
    return _value(expr, columns, engine).ast


def error(expr: Scalar, columns: Sequence[Sql], engine: Engine) -> Ast | None:
    """The message with which the expression fails, as a text; NULL where it succeeds; None if it can never fail."""
    if isinstance(columns, Known) and expr in columns.errors:
        known = columns.errors[expr]
        return None if known is None else known.copy()
    match expr:
        case Column() | Literal() | Unmaterializable():
            return None
        case LiteralError(message=message):
            return s.text(message)
        case If():
            return _if_error(expr, columns, engine)
        case Call(func="and" | "or"):
            return _connector_error(expr, columns, engine)
        case Call(func="coalesce"):
            return _coalesce_error(expr, columns, engine)
        case Call():
            return _call_error(expr, columns, engine)


def typed(ast: Ast, typ: SqlType, engine: Engine) -> Ast:
    """The AST cast to the engine's type for ``typ``; a boolean needs no cast."""
    if typ == BOOLEAN:
        return s.own(ast)[0]
    carrier = sql_type(typ, engine)
    if isinstance(ast, exp.Cast) and ast.to == carrier:
        return s.own(ast)[0]
    if typ.kind == "numeric":
        return s.try_cast_to(ast, carrier)
    return s.cast_to(ast, carrier)


def _value(expr: Scalar, columns: Sequence[Sql], engine: Engine) -> Sql:
    if isinstance(columns, Known) and expr in columns.values:
        known = columns.values[expr]
        return Sql(known.ast.copy(), known.typ)
    match expr:
        case Column(index=index):
            column = columns[index]
            return Sql(column.ast.copy(), column.typ)
        case Literal(value=datum, typ=typ):
            return Sql(literal(datum, typ, engine), typ)
        case LiteralError(typ=typ):
            return Sql(literal(None, typ, engine), typ)
        case Call(args=args, typ=typ):
            check_for_interrupts()
            given = [_value(arg, columns, engine) for arg in args]
            return Sql(typed(_called(expr, given, engine), typ, engine), typ)
        case If():
            condition, then, otherwise = (
                _value(part, columns, engine)
                for part in (expr.condition, expr.then, expr.otherwise)
            )
            return Sql(s.case((condition.ast, then.ast), otherwise=otherwise.ast), then.typ)
        case Unmaterializable(func=func):
            raise InternalError(
                f"{func} has no value in a plan: it must be put in before rendering"
            )


def _called(expr: Call, given: Sequence[Sql], engine: Engine) -> Ast:
    """The call's function applied to the given arguments."""
    func = functions.scalar(expr.func)
    if runs_on(func, given, engine):
        return func.value(engine, given, expr.typ)
    inside, passed = _parameters(expr.args, given)
    spelled = typed(func.value(Engine.DUCKDB, inside, expr.typ), expr.typ, Engine.DUCKDB)
    return evaluator_functions.call(func.key, to_sql(spelled, Engine.DUCKDB), passed, expr.typ)


def _parameters(exprs: Sequence[Scalar], given: Sequence[Sql]) -> tuple[list[Sql], list[Sql]]:
    """The arguments as the evaluated spelling sees them, and those passed to it; constants are part of the spelling."""
    inside: list[Sql] = []
    passed: list[Sql] = []
    for arg, known in zip(exprs, given, strict=True):
        if isinstance(arg, Literal):
            inside.append(Sql(literal(arg.value, arg.typ, Engine.DUCKDB), arg.typ))
        else:
            inside.append(evaluator_functions.parameter(len(passed), known.typ))
            passed.append(known)
    return inside, passed


def runs_on(func: ScalarFunc, args: Sequence[Sql], engine: Engine) -> bool:
    """Whether the engine itself computes the function for such arguments."""
    return engine is Engine.DUCKDB or is_portable(func.key, [arg.typ for arg in args])


def table_rows(
    func: TableFunc,
    exprs: Sequence[Scalar],
    args: Sequence[Sql],
    output: RelationType,
    engine: Engine,
) -> Ast:
    """The array of a table function's rows.

    Args:
        func: the function.
        exprs: its arguments.
        args: their values.
        output: the types of the rows.
        engine: the engine.
    """
    first = func.output.columns[0].type
    if engine is Engine.DUCKDB or func.key in PORTABLE_TABLES:
        return func.rows(engine, args, first)
    inside, passed = _parameters(exprs, args)
    columns = output.columns
    row = columns[0].type
    if len(columns) > 1:
        row = SqlType("record", fields=tuple(("", column) for column in columns))
    result = SqlType("list", element=row)
    rows = s.cast_to(func.rows(Engine.DUCKDB, inside, first), sql_type(result, Engine.DUCKDB))
    return evaluator_functions.call(func.key, to_sql(rows, Engine.DUCKDB), passed, result)


def table_errors(
    func: TableFunc, exprs: Sequence[Scalar], args: Sequence[Sql], typ: SqlType, engine: Engine
) -> list[tuple[Ast, Ast]]:
    """Conditions under which a table function fails, each with its message, in order of precedence.

    Args:
        func: the function.
        exprs: its arguments.
        args: their values.
        typ: the type of the rows.
        engine: the engine.
    """
    here = engine is Engine.DUCKDB or func.key in PORTABLE_TABLES
    inside, passed = (list(args), []) if here else _parameters(exprs, args)
    own = engine if here else Engine.DUCKDB
    branches: list[tuple[Ast, Ast]] = []
    for rule in func.errors:
        if rule.possible is not None and not rule.possible([arg.typ for arg in args], typ):
            continue
        condition = rule.condition(own, inside, typ)
        message = rule.message
        shown = s.text(message) if isinstance(message, str) else message(own, inside, typ)
        branches.append((condition, shown))
    if here or not branches:
        return branches
    text = to_sql(typed(s.case(*branches), TEXT, Engine.DUCKDB), Engine.DUCKDB)
    failure = typed(evaluator_functions.call(f"{func.key}_error", text, passed, TEXT), TEXT, engine)
    return [(s.is_not_null(failure), failure)]


def _if_error(expr: If, columns: Sequence[Sql], engine: Engine) -> Ast | None:
    asked = error(expr.condition, columns, engine)
    then = error(expr.then, columns, engine)
    otherwise = error(expr.otherwise, columns, engine)
    if then is None and otherwise is None:
        return asked
    condition = value(expr.condition, columns, engine)
    branches = [] if asked is None else [(s.is_not_null(asked), asked)]
    branches.append((condition, _or_null(then)))
    return s.case(*branches, otherwise=_or_null(otherwise))


def _or_null(ast: Ast | None) -> Ast:
    return exp.cast(exp.Null(), exp.DType.TEXT) if ast is None else ast


def _connector_error(expr: Call, columns: Sequence[Sql], engine: Engine) -> Ast | None:
    """The error of AND or OR; an argument that decides without failing hides all errors."""
    errors = [error(arg, columns, engine) for arg in expr.args]
    found = [failure for failure in errors if failure is not None]
    if not found:
        return None
    deciding = []
    for arg, failure in zip(expr.args, errors, strict=True):
        truth = value(arg, columns, engine)
        decides = truth if expr.func == "or" else s.not_(truth)
        deciding.append(decides if failure is None else s.and_(s.is_null(failure), decides))
    decided = s.coalesce(s.or_(*deciding), s.boolean(False))
    return s.case((s.not_(decided), _first(found)))


def _coalesce_error(expr: Call, columns: Sequence[Sql], engine: Engine) -> Ast | None:
    branches: list[tuple[Ast, Ast]] = []
    failing = False
    for arg in expr.args:
        failure = error(arg, columns, engine)
        if failure is not None:
            failing = True
            branches.append((s.is_not_null(failure), failure))
        branches.append((s.is_not_null(value(arg, columns, engine)), _or_null(None)))
    return s.case(*branches) if failing else None


def _call_error(expr: Call, columns: Sequence[Sql], engine: Engine) -> Ast | None:
    found = [failure for arg in expr.args if (failure := error(arg, columns, engine)) is not None]
    func = functions.scalar(expr.func)
    if func.errors:
        given = [_value(arg, columns, engine) for arg in expr.args]
        own = _own_error(expr, func, given, engine)
        if own is not None:
            found.append(own)
    return _first(found) if found else None


def _own_error(expr: Call, func: ScalarFunc, given: Sequence[Sql], engine: Engine) -> Ast | None:
    """The message with which the call's function itself fails."""
    if runs_on(func, given, engine):
        return rules_error(func.errors, given, expr.typ, engine, strict=func.strict)
    inside, passed = _parameters(expr.args, given)
    own = rules_error(func.errors, inside, expr.typ, Engine.DUCKDB, strict=func.strict)
    if own is None:
        return None
    text = to_sql(typed(own, TEXT, Engine.DUCKDB), Engine.DUCKDB)
    return typed(evaluator_functions.call(f"{func.key}_error", text, passed, TEXT), TEXT, engine)


def _first(found: Sequence[Ast]) -> Ast:
    return s.own(found[0])[0] if len(found) == 1 else s.coalesce(*found)
