"""Shorthands to declare rows of the table of functions.

Promise: nothing here knows a particular function; a declaration reads like its row: key, name, arguments, result,
spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import SqlType

Ast = exp.Expression

#: Kinds of SQL types; numbers in the order in which they widen.
SIGNED = ("smallint", "integer", "bigint")
UNSIGNED = ("uint2", "uint4", "uint8")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("real", "double")
STRINGS = ("text", "varchar", "char")

#: The smallest and largest value of each integer kind.
BOUNDS: dict[str, tuple[int, int]] = {
    "smallint": (-(2**15), 2**15 - 1),
    "integer": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
    "uint2": (0, 2**16 - 1),
    "uint4": (0, 2**32 - 1),
    "uint8": (0, 2**64 - 1),
    "oid": (0, 2**32 - 1),
    "mz_timestamp": (0, 2**63 - 2),
}


def of(kind: str) -> SqlType:
    """The type of a kind, without parameters."""
    return SqlType(kind)


def asts(function: Callable[..., Ast]) -> Spelling:
    """A spelling common to all engines, from a function of the arguments' ASTs."""

    def spelling(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        return function(*(arg.ast for arg in args))

    return spelling


def engines(*, spark: Callable[..., Ast], duckdb: Callable[..., Ast]) -> Spelling:
    """A spelling from one function of the arguments' ASTs per engine."""

    def spelling(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        build = spark if engine is Engine.SPARK else duckdb
        return build(*(arg.ast for arg in args))

    return spelling


def failed(value: Spelling, message: str | Spelling, result: SqlType | None = None) -> ErrorRule:
    """The rule for a strict function that fails exactly where its value is NULL for non-NULL arguments.

    Args:
        value: the spelling of the value.
        message: the error message.
        result: the type passed to ``value``; the call's result type by default.
    """

    def condition(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return s.is_null(value(engine, args, typ if result is None else result))

    return ErrorRule(condition, message)


def when(condition: Callable[..., Ast], message: str | Spelling) -> ErrorRule:
    """A rule whose condition, over the arguments' ASTs, is common to all engines."""
    return ErrorRule(asts(condition), message)


def scalar(
    key: str,
    name: str,
    args: tuple[SqlType, ...],
    result: SqlType,
    value: Spelling,
    *errors: ErrorRule,
    explain: str = "",
) -> ScalarFunc:
    """A strict scalar function.

    Args:
        key: its key.
        name: its SQL name.
        args: the types of its arguments.
        result: the type of its result.
        value: the spelling of its value.
        errors: the ways it fails, in order of precedence.
        explain: how EXPLAIN prints it, as in `ScalarFunc`.
    """
    return ScalarFunc(
        key=key, name=name, args=args, result=result, value=value, errors=errors, explain=explain
    )


def constant_text(arg: Sql, what: str) -> str | None:
    """The text of a constant argument; None for NULL.

    Args:
        arg: the argument.
        what: its name, for the error.

    Raises:
        Unsupported: it is not constant.
    """
    ast = arg.ast
    while isinstance(ast, exp.Cast | exp.Paren):
        ast = ast.this
    if isinstance(ast, exp.Null):
        return None
    if not isinstance(ast, exp.Literal):
        raise Unsupported(f"{what} that is not a constant is not supported")
    return str(ast.name)


def variable_of(typ: SqlType, lead: str) -> str:
    """A name for a lambda's parameter that differs from those of the lambdas inside, over the elements of ``typ``."""
    depth = 0
    while typ.element is not None:
        depth, typ = depth + 1, typ.element
    return f"{lead}{depth}"


def duckdb_only(what: str) -> Unsupported:
    """The error for a spelling that does not exist for Spark."""
    return Unsupported(
        f"{what} cannot be maintained by a dataflow yet",
        hint="A SELECT of it runs; so does one over a view that is not materialized.",
    )
