"""Which worker a key belongs to, the same in every engine.

Promise: `worker_of` spells the same function of the key's values for Spark and DuckDB: the first 32 bits of the MD5 of a canonical text of
the key, modulo the number of workers. NULL is a value. Changing it means that arrangements stored before cannot be used: raise
`mzsql.render.naming.STATE_VERSION`. Types whose texts differ between engines (floats, lists, maps, records) do not take part, which
costs balance, never correctness.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine, Sql

_AS_TEXT = frozenset({"text", "varchar", "char", "uuid", "jsonb"})
_CAST = frozenset(
    {
        "boolean",
        "smallint",
        "integer",
        "bigint",
        "uint2",
        "uint4",
        "uint8",
        "numeric",
        "time",
        "mz_timestamp",
    }
)


def worker_of(keys: Sequence[Sql], workers: int, engine: Engine) -> exp.Expression:
    """The worker in ``[0, workers)`` of a key, an integer.

    Args:
        keys: the key's values; none: worker 0.
        workers: how many there are, at least 1.
        engine: for whom it is spelled.
    """
    if workers == 1 or not keys:
        return s.integer(s.num(0))
    # A separator and a mark for NULL, so that ('a', NULL) and (NULL, 'a') need not share a worker.
    parts: list[exp.Expression] = []
    for key in keys:
        parts += [s.coalesce(s.concat(s.text("="), _text(key, engine)), s.text("-")), s.text("/")]
    digits = s.call("substr", s.call("md5", s.concat(*parts)), s.num(1), s.num(8))
    spark = engine is Engine.SPARK
    number = (
        s.call("conv", digits, s.num(16), s.num(10)) if spark else s.concat(s.text("0x"), digits)
    )
    return s.integer(s.mod(s.big(number), s.num(workers)))


def _text(key: Sql, engine: Engine) -> exp.Expression:
    kind, ast = key.typ.kind, key.ast.copy()
    if kind in _AS_TEXT:
        return ast
    if kind in _CAST:
        return s.string(ast)
    match kind, engine:
        case "date", Engine.SPARK:
            return s.string(s.call("unix_date", ast))
        case "date", Engine.DUCKDB:
            return s.string(s.call("date_diff", s.text("day"), _epoch(), ast))
        case "timestamptz", Engine.SPARK:
            return s.string(s.call("unix_micros", ast))
        case "timestamp", Engine.SPARK:
            return s.string(s.call("unix_micros", s.cast_to(ast, s.typed(exp.DType.TIMESTAMPLTZ))))
        case "timestamp" | "timestamptz", Engine.DUCKDB:
            return s.string(s.call("epoch_us", ast))
        case "bytea", _:
            return s.call("hex", ast)
        case "interval", _:
            fields = [s.string(s.field(ast, name)) for name in ("months", "days", "micros")]
            return s.concat(fields[0], s.text(","), fields[1], s.text(","), fields[2])
        case _:
            return s.text("?")


def _epoch() -> exp.Expression:
    return s.cast_to(s.text("1970-01-01"), s.typed(exp.DType.DATE))
