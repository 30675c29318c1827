"""PostgreSQL's functions about the server whose answer is always the same here.

Promise: true answers. There is one text encoding; there are no recovery, tablespaces or rules; and no privilege is ever
missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.comparison import ANY
from mzsql.expr.functions.container.maps import map_get
from mzsql.expr.functions.declare import Ast, asts, scalar
from mzsql.expr.functions.output.to_text import text_of
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.repr.errors import Unsupported
from mzsql.repr.type_oids import types_by_oid
from mzsql.repr.types import BOOLEAN, INTEGER, NUMERIC, OID, TEXT, SqlType, type_name

#: PostgreSQL's number for UTF-8, the encoding of every text.
_UTF8 = 6


def _encoding_name(number: Ast) -> Ast:
    return s.case((s.eq(number, s.num(_UTF8)), s.text("UTF8")))


def _nothing(_engine: Engine, _args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.string(s.null())


def _false(_engine: Engine, _args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.boolean(False)


#: The units of `pg_size_pretty`: name, the limit below which it is used, the binary logarithm of half a unit; the limit
#: counts halves.
_SIZES = (("kB", 20 * 1024 - 1, 9), ("MB", 20 * 1024 - 1, 19), ("GB", 20 * 1024 - 1, 29),
          ("TB", 20 * 1024 - 1, 39), ("PB", None, 49))  # fmt: skip


def _size_pretty(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """As in PostgreSQL: counted in half units, truncated, then rounded away from zero; fractions where bytes are shown."""
    if engine is not Engine.DUCKDB:
        raise Unsupported("pg_size_pretty of a numeric is computed in process")
    size = s.hugeint(s.call("TRUNC", args[0].ast))
    few = s.lt(s.call("ABS", args[0].ast), s.num(10 * 1024))
    branches = [(few, s.concat(text_of(engine, args, TEXT), s.text(" bytes")))]
    for name, limit, bits in _SIZES:
        halves = s.int_div(size, s.hugeint(s.num(2**bits)))
        up = s.case((s.gte(halves, s.num(0)), s.num(1)), otherwise=s.num(-1))
        rounded = s.int_div(s.add(halves, up), s.hugeint(s.num(2)))
        fits = s.boolean(True) if limit is None else s.lt(s.call("ABS", halves), s.num(limit))
        branches.append((fits, s.concat(s.string(rounded), s.text(f" {name}"))))
    return s.case((s.is_not_null(args[0].ast), s.case(*branches)))


def _plain(
    name: str, args: tuple[SqlType, ...], result: SqlType, value: Spelling, *, nulls: bool = False
) -> ScalarFunc:
    return ScalarFunc(
        key=name, name=name, args=args, result=result, value=value, introduces_nulls=nulls
    )


MAP_OF_TEXTS = SqlType("map", element=TEXT)


def _setting(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The value of a variable, its name in any case."""
    return map_get(engine, (args[0], Sql(s.call("LOWER", args[1].ast), TEXT)), TEXT)


def _no_setting(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    return s.is_null(_setting(engine, args, typ))


def _unknown_setting(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.concat(s.text('unrecognized configuration parameter "'), args[1].ast, s.text('"'))


def _type_name(number: Ast) -> Ast:
    """The name of the type with an OID; NULL if there is none."""
    named = sorted(types_by_oid().items())
    return s.case(*((s.eq(number, s.num(n)), s.text(type_name(typ))) for n, typ in named))


FUNCTIONS: tuple[ScalarFunc, ...] = (
    _plain("pg_encoding_to_char", (INTEGER,), TEXT, asts(_encoding_name), nulls=True),
    _plain("pg_is_in_recovery", (), BOOLEAN, _false),
    _plain("pg_tablespace_location", (OID,), TEXT, _nothing, nulls=True),
    _plain("pg_get_ruledef", (OID,), TEXT, _nothing, nulls=True),
    _plain("is_rbac_enabled", (), BOOLEAN, _false),
    scalar(
        "mz_raise_if",
        "mz_raise_if",
        (BOOLEAN, TEXT),
        BOOLEAN,
        asts(lambda _condition, _message: s.boolean(False)),
        ErrorRule(
            asts(lambda condition, _message: condition),
            asts(lambda _condition, message: message),
        ),
    ),
    # Only plans have it: `mz_unsafe.mz_error_if_null`, whose value is never NULL.
    ScalarFunc(
        key="error_if_null",
        name="error if null",
        explain="error_if_null({0}, {1})",
        args=(ANY, TEXT),
        result=lambda args: args[0],
        value=asts(lambda value, _message: value.copy()),
        strict=False,
        errors=(
            ErrorRule(
                asts(lambda value, _message: s.is_null(value)),
                asts(lambda _value, message: s.coalesce(message, s.text("unexpected NULL"))),
            ),
        ),
    ),
    _plain("mz_type_name", (OID,), TEXT, asts(_type_name), nulls=True),
    scalar(
        "mz_setting",
        "mz_setting",
        (MAP_OF_TEXTS, TEXT),
        TEXT,
        _setting,
        ErrorRule(_no_setting, _unknown_setting),
    ),
    scalar("pg_size_pretty", "pg_size_pretty", (NUMERIC,), TEXT, _size_pretty),
)
