"""The worker of a key, computed alike by Spark, DuckDB and the driver.

Promise: `worker_of` depends on the key alone and is written with functions that both engines compute alike: MD5 of a
canonical text, of which the first 60 bits are taken modulo the number of workers. (An engine may compute that in a
way of its own.) Equal keys have equal texts; NULL has one of its own. Trade-off: of a numeric only the whole part
counts, and types whose text differs between engines (floats, intervals, nested types) do not count at all, so keys
that differ only there share a worker. Any change here makes stored arrangements unusable and requires a new
`ARRANGEMENT_FORMAT` (`mzsql.render.nodes.naming`).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import epoch
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine, Sql
from mzsql.render.statement import Ast

#: Types whose text is the number, in both engines.
INTEGERS = frozenset(
    {
        *("smallint", "integer", "bigint", "uint2", "uint4", "uint8", "mz_timestamp", "time"),
        *("oid", "regclass", "regproc", "regtype"),
    }
)
_TEXTS = frozenset({"text", "varchar", "char", "uuid", "jsonb", "unknown"})
#: Hexadecimal digits of the hash that are used; they fit a bigint.
_DIGITS = 15


def worker_of(keys: Sequence[Sql], workers: int, engine: Engine) -> Ast:
    """The expression for the worker (an integer from 0 to workers - 1) of a key with these columns; worker 0 for an
    empty key.
    """
    if not keys or workers == 1:
        return s.integer(s.num(0))
    parts: list[Ast] = []
    for key in keys:
        # The length is included, to tell ("a", "bc") from ("ab", "c").
        text = _canonical(key, engine)
        length = s.string(s.big(s.call("LENGTH", text)))
        marked = s.concat(length, s.text(":"), text)
        parts.append(s.coalesce(marked, s.text("-")))
    whole = s.concat(*parts) if len(parts) > 1 else parts[0]
    if engine is Engine.DUCKDB and 16 % workers == 0:
        return _by_last_digit(whole, workers)
    digits = s.call("SUBSTRING", s.call("MD5", whole), s.num(1), s.num(_DIGITS))
    decimal = s.call("CONV", digits, s.num(16), s.num(10))
    hexadecimal = s.concat(s.text("0x"), digits)
    number = s.big(decimal if engine is Engine.SPARK else hexadecimal)
    return s.integer(s.mod(number, s.big(s.num(workers))))


def _by_last_digit(whole: Ast, workers: int) -> Ast:
    """The same for divisors of 16, which depends only on the last of the 15 digits; DuckDB's MD5_NUMBER has the digits
    after it in its lower bits.
    """
    shifted = exp.BitwiseRightShift(this=s.call("MD5_NUMBER", whole), expression=s.num(4 * _DIGITS))
    masked = exp.BitwiseAnd(this=exp.Paren(this=shifted), expression=s.num(workers - 1))
    return s.integer(exp.Paren(this=masked))


def _canonical(key: Sql, engine: Engine) -> Ast:
    """A text that equal values share and that both engines write alike."""
    kind = key.typ.kind
    if kind in INTEGERS:
        return s.string(key.ast if engine is Engine.DUCKDB else s.wide(key.ast))
    if kind in _TEXTS:
        return s.string(key.ast)
    match kind:
        case "numeric":
            return s.string(s.wide(s.call("FLOOR", key.ast)))
        case "boolean":
            return s.case((key.ast, s.text("t")), (s.not_(key.ast), s.text("f")))
        case "bytea":
            return s.call("HEX", key.ast)
        case "date":
            return s.string(epoch.days(key.ast, engine))
        case "timestamp" | "timestamptz":
            return s.string(epoch.micros(key.ast, kind, engine))
        case _:
            return s.text("")
