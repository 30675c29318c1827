"""Constants as SQL.

Promise: a literal has exactly its type's carrier in every engine. A value that text would not transport exactly (a date
before the year 1, a struct) is built from numbers.
"""

from __future__ import annotations

import json
import math

from sqlglot import expressions as exp

from mzsql.expr.functions import epoch
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.sql import Ast
from mzsql.expr.functions.table import Engine
from mzsql.repr.datum import Datum
from mzsql.repr.decimals import carried, numeric_text
from mzsql.repr.types import SqlType, range_fields
from mzsql.repr.values import datum_text, interval_of, range_parts

#: The days since 1970 of 0001-01-01 and 9999-12-31, between which both engines parse dates.
_FIRST_DAY, _LAST_DAY = -719162, 2932896


def literal(value: Datum, typ: SqlType, engine: Engine) -> Ast:
    """The constant, cast to its type."""
    if value is None:
        return s.cast(exp.Null(), typ, engine)
    match typ.kind:
        case "boolean":
            return s.boolean(bool(value))
        case "integer":
            return (
                s.num(int(value))
                if int(value) > -(2**31)
                else s.cast(s.num(int(value)), typ, engine)
            )
        case "smallint" | "bigint" | "uint2" | "uint4" | "uint8" | "mz_timestamp" | "time":
            return s.cast(s.num(int(value)), typ, engine)
        case "oid" | "regclass" | "regproc" | "regtype":
            return s.cast(s.num(int(value)), typ, engine)
        case "real" | "double":
            return s.cast(s.text(_float(float(value) + 0.0)), typ, engine)
        case "numeric":
            # Round to the carrier's digits, or refuse, now: the engine would fail while the statement runs.
            return s.cast(s.text(numeric_text(carried(str(value), typ))), typ, engine)
        case "bytea":
            return s.call("UNHEX", s.text(str(value)))
        case "date":
            return _date(int(value), typ, engine)
        case "timestamp" | "timestamptz":
            return _timestamp(int(value), typ, engine)
        case "interval":
            span = interval_of(str(value))
            made = s.struct(
                months=s.num(span.months), days=s.num(span.days), micros=s.num(span.microseconds)
            )
            return s.cast(made, typ, engine)
        case "list" | "array":
            assert typ.element is not None
            items = [literal(item, typ.element, engine) for item in json.loads(str(value))]
            return s.cast(s.array(*items), typ, engine)
        case "record":
            parts = zip(json.loads(str(value)), typ.fields, strict=True)
            fields = {
                f"f{i}": literal(item, column.type, engine)
                for i, (item, (_, column)) in enumerate(parts, start=1)
            }
            return s.cast(s.struct(**fields), typ, engine)
        case "range":
            carrier = range_parts(str(value))
            ends = {n: literal(carrier[n], part, engine) for n, part in range_fields(typ)}
            return s.cast(s.struct(**ends), typ, engine)
        case "map":
            assert typ.element is not None
            entries = json.loads(str(value))
            keys = s.array(*(s.text(key) for key in entries))
            values = s.array(*(literal(item, typ.element, engine) for item in entries.values()))
            name = "MAP_FROM_ARRAYS" if engine is Engine.SPARK else "MAP"
            return s.cast(s.call(name, keys, values), typ, engine)
        case _:
            return s.cast(s.text(str(value)), typ, engine)


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _date(days: int, typ: SqlType, engine: Engine) -> Ast:
    if _FIRST_DAY <= days <= _LAST_DAY:
        return s.cast(s.text(datum_text(days, typ)), typ, engine)
    return epoch.date_of_days(s.num(days), engine)


def _timestamp(micros: int, typ: SqlType, engine: Engine) -> Ast:
    if _FIRST_DAY <= micros // epoch.DAY_MICROS <= _LAST_DAY:
        return s.cast(s.text(datum_text(micros, typ)), typ, engine)
    return epoch.timestamp_of_micros(s.num(micros), typ, engine)
