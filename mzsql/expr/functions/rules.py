"""SQL for the error of a call: the message of the first rule it breaks."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.sql import Ast
from mzsql.expr.functions.table import Engine, ErrorRule, Sql
from mzsql.repr.types import SqlType


def rules_error(
    rules: Sequence[ErrorRule],
    args: Sequence[Sql],
    typ: SqlType,
    engine: Engine,
    *,
    strict: bool,
) -> Ast | None:
    """The message of the first rule that holds; NULL where none does. None if none can.

    The errors of aggregates (over accumulators) and of table functions are made here too.

    Args:
        rules: the rules, in order of precedence.
        args: the arguments.
        typ: the type of the result.
        engine: the engine.
        strict: whether a NULL argument prevents any error.
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
