"""Casts of documents: from a text that is JSON, and to the types of JSON scalars.

Promise: a scalar of another kind, an object or an array is an error with both types; a number out of the type's range
is an error too.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.cast_rows import EXPLICIT, Cast, cast_row
from mzsql.expr.functions.declare import INTEGERS, STRINGS, Ast, failed, of
from mzsql.expr.functions.input import from_text
from mzsql.expr.functions.json import documents
from mzsql.expr.functions.number import casts as number_casts
from mzsql.expr.functions.number.arithmetic import is_infinite
from mzsql.expr.functions.table import Engine, ErrorRule, Spelling, Sql
from mzsql.repr.types import SqlType, type_name

_KINDS = {
    "OBJECT": "object",
    "ARRAY": "array",
    "VARCHAR": "string",
    "BOOLEAN": "boolean",
    "NULL": "null",
}
_NUMBERS = {cast.func.key: cast.func for cast in number_casts.CASTS}


def _read(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    documents.duckdb(engine, "a text as jsonb")
    return documents.canonical(args[0].ast)


def _broken(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    documents.duckdb(engine, "a text as jsonb")
    return s.not_(documents.is_document(args[0].ast))


def _no_document(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.concat(
        s.text('invalid input syntax for type jsonb: expected value: "'), args[0].ast, s.text('"')
    )


def _other_kind(target: str) -> ErrorRule:
    """The error for a document that is no scalar of the kind."""
    pattern = "^(true|false)$" if target == "boolean" else "^-?[0-9]"

    def wrong(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        documents.duckdb(engine)
        return s.not_(s.matches(args[0].ast, pattern, engine))

    def shown(_engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        kinds = ((documents.is_kind(args[0].ast, k), s.text(name)) for k, name in _KINDS.items())
        found = s.case(*kinds, otherwise=s.text("number"))
        plain = type_name(SqlType(typ.kind))
        return s.concat(s.text("cannot cast jsonb "), found, s.text(f" to type {plain}"))

    return ErrorRule(wrong, shown)


def _parsed(kind: str) -> Spelling:
    reader = from_text.PARSERS[kind].value

    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        documents.duckdb(engine)
        return reader(engine, args, typ)

    return value


def _scalar(target: str) -> Cast:
    value = _parsed(target)
    rules = [_other_kind(target)]
    if target == "numeric":
        rules.append(failed(value, "numeric field overflow"))
    return cast_row("jsonb", target, EXPLICIT, value, *rules)


def _number(target: str) -> Cast:
    """A cast by way of the type of a document's numbers."""
    between = of("double" if target == "real" else "numeric")
    parsed, onward = _parsed(between.kind), _NUMBERS[f"{between.kind}_to_{target}"]

    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return onward.value(engine, [Sql(parsed(engine, args, between), between)], typ)

    def beyond(_engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return s.concat(s.text('"'), args[0].ast, s.text(f'" {type_name(typ)} out of range'))

    def infinite(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        found = value(engine, args, typ)
        lost = s.or_(s.is_null(found), is_infinite(found, engine))
        rounded = s.and_(s.eq(found, s.num(0)), s.neq(parsed(engine, args, between), s.num(0)))
        return s.or_(lost, rounded)

    rule = ErrorRule(infinite, beyond) if target == "real" else failed(value, beyond)
    return cast_row("jsonb", target, EXPLICIT, value, _other_kind(target), rule)


CASTS: tuple[Cast, ...] = (
    *(
        cast_row(kind, "jsonb", EXPLICIT, _read, ErrorRule(_broken, _no_document))
        for kind in STRINGS
    ),
    *(_scalar(target) for target in ("boolean", "numeric", "double")),
    *(_number(target) for target in (*INTEGERS, "real")),
)
