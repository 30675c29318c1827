"""The rows of the table of casts.

Promise: the contexts are PostgreSQL's: ``implicit`` casts apply anywhere, ``assignment`` casts where a value is stored,
``explicit`` ones only where written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, of
from mzsql.expr.functions.table import Engine, ErrorRule, ResultRule, ScalarFunc, Spelling, Sql
from mzsql.expr.functions.zeros import with_one_zero
from mzsql.repr.types import SqlType

IMPLICIT, ASSIGNMENT, EXPLICIT = "implicit", "assignment", "explicit"


@dataclass(frozen=True)
class Cast:
    """A row of the table of casts: the function, the kinds it converts between, its context."""

    func: ScalarFunc
    source: str
    target: str
    context: str


def cast_row(
    source: str,
    target: str,
    context: str,
    value: Spelling,
    *errors: ErrorRule,
    result: ResultRule | None = None,
    key: str = "",
    monotone: bool = False,
) -> Cast:
    """A row of the table of casts.

    Args:
        source: the kind it converts from.
        target: the kind it converts to.
        context: implicit, assignment or explicit.
        value: the spelling of the value.
        errors: the ways it fails, in order of precedence.
        result: the type of the result; the plain type of ``target`` by default.
        key: its key; made of both kinds by default.
        monotone: whether it is monotone.
    """
    func = ScalarFunc(
        key=key or f"{source}_to_{target}",
        name="cast",
        args=(of(source),),
        result=of(target) if result is None else result,
        value=value,
        errors=errors,
        monotone=monotone,
    )
    return Cast(with_one_zero(func), source, target, context)


def plain(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The engine's own cast, where it cannot fail."""
    return s.cast(args[0].ast, typ, engine)
