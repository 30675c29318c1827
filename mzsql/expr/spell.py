"""Scalar expressions as SQL: the value of one, and the error of one.

Promise: `value` never throws; where the evaluation fails it is NULL or anything. `error` is a text: NULL where the evaluation succeeds, the
message of the first failure where it does not, in the order of evaluation that Materialize has: arguments from left to right, then the
function itself; of a CASE only the branch taken; of COALESCE up to the first value; an AND with a false argument and an OR with a
true one do not fail whatever the others do. Both are typed exactly as the plan says.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr import functions
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.literals import literal
from mzsql.expr.functions.sql import Ast, sql_type
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Sql
from mzsql.expr.scalar import Call, Column, If, Literal, LiteralError, Scalar, Unmaterializable
from mzsql.location import check_caller
from mzsql.repr.errors import InternalError
from mzsql.repr.types import BOOLEAN, SqlType

__all__ = [
    "Known",
    "Sql",
    "error",
    "function_error",
    "literal",
    "rules_error",
    "sql_type",
    "typed",
    "value",
]


class Known(list[Sql]):
    """Columns, some of which hold values and errors of expressions that need not be written again.

    Attributes:
        values: the value of an expression, as a column.
        errors: the error of an expression, as a column; None where it has none.
    """

    def __init__(self, columns: Sequence[Sql]) -> None:
        super().__init__(columns)
        self.values: dict[Scalar, Sql] = {}
        self.errors: dict[Scalar, Ast | None] = {}


def value(expr: Scalar, columns: Sequence[Sql], engine: Engine) -> Ast:
    """The expression's value over the given columns; anything where it fails."""
    return _value(expr, columns, engine).ast


def error(expr: Scalar, columns: Sequence[Sql], engine: Engine) -> Ast | None:
    """The message with which the expression fails, as a text; NULL where it does not; None if it can never fail."""
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
    """The AST with the carrier of `typ` as its type; a boolean has it already."""
    if typ == BOOLEAN:
        return ast.copy()
    carrier = sql_type(typ, engine)
    if isinstance(ast, exp.Cast) and ast.to == carrier:
        return ast.copy()
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
        case Call(func=key, args=args, typ=typ):
            check_caller()
            given = [_value(arg, columns, engine) for arg in args]
            return Sql(typed(functions.scalar(key).value(engine, given, typ), typ, engine), typ)
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
    """None of the errors counts where an argument decides without failing."""
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
        own = rules_error(func.errors, given, expr.typ, engine, strict=func.strict)
        if own is not None:
            found.append(own)
    return _first(found) if found else None


def _first(found: Sequence[Ast]) -> Ast:
    return found[0].copy() if len(found) == 1 else s.coalesce(*found)


def rules_error(
    rules: Sequence[ErrorRule],
    args: Sequence[Sql],
    typ: SqlType,
    engine: Engine,
    *,
    strict: bool,
) -> Ast | None:
    """The message of the first rule that holds, NULL where none does, None where none can.

    With `strict`, a NULL argument fails nothing. Aggregates' rules (over their accumulators) and table functions' go this way too.
    """
    types = [arg.typ for arg in args]
    branches: list[tuple[Ast, Ast]] = []
    for rule in rules:
        if rule.possible is not None and not rule.possible(types, typ):
            continue
        condition = rule.condition(engine, args, typ)
        if isinstance(condition, exp.Boolean) and not condition.this:
            continue
        message = rule.message
        shown = s.text(message) if isinstance(message, str) else message(engine, args, typ)
        guarded = s.and_(*s.presence(args), condition) if strict else condition
        branches.append((guarded, shown))
    return s.case(*branches) if branches else None


def function_error(
    func: ScalarFunc, args: Sequence[Sql], typ: SqlType, engine: Engine
) -> Ast | None:
    """The message with which a function itself fails for these arguments."""
    return rules_error(func.errors, args, typ, engine, strict=func.strict)
