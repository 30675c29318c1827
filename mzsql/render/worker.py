"""Which worker has a key: the same in Spark, in DuckDB and on the driver.

Promise: `worker_of` is a function of the key alone, spelled with what both engines compute alike: MD5 of a canonical text, its leading
60 bits modulo the number of workers, which an engine may compute in a way of its own. Equal keys have equal texts; NULL has one of its
own. The trade-off: of a numeric only the whole part counts, and types whose text differs between engines (floats, intervals, nested
types) do not count at all, so keys that differ only there share a worker. A change of it makes stored arrangements unusable: raise
`ARRANGEMENT_FORMAT` of `mzsql.render.naming`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import epoch
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine, Sql
from mzsql.render.statement import Ast

_INTEGERS = frozenset(
    {
        *("smallint", "integer", "bigint", "uint2", "uint4", "uint8", "mz_timestamp", "time"),
        *("oid", "regclass", "regproc", "regtype"),
    }
)
_TEXTS = frozenset({"text", "varchar", "char", "uuid", "jsonb", "unknown"})
#: Hexadecimal digits of the hash that are used: they fit a bigint.
_DIGITS = 15


def worker_of(keys: Sequence[Sql], workers: int, engine: Engine) -> Ast:
    """The worker, 0 … workers - 1 (an integer), of a key with these columns; of the empty key, worker 0."""
    if not keys or workers == 1:
        return s.integer(s.num(0))
    parts: list[Ast] = []
    for key in keys:
        # The length keeps ("a", "bc") and ("ab", "c") apart.
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
    """The same for what divides 16, which depends on the last of the digits only; DuckDB's number has that in front of its lower half."""
    shifted = exp.BitwiseRightShift(this=s.call("MD5_NUMBER", whole), expression=s.num(4 * _DIGITS))
    masked = exp.BitwiseAnd(this=exp.Paren(this=shifted), expression=s.num(workers - 1))
    return s.integer(exp.Paren(this=masked))


def _canonical(key: Sql, engine: Engine) -> Ast:
    """A text that equal values share and that both engines write alike."""
    kind = key.typ.kind
    if kind in _INTEGERS:
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
