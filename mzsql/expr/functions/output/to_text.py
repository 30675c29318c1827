"""The text of values as PostgreSQL prints them, in `<type>_to_text` casts and error messages.

Promise: both engines give the same characters. Numerics print without trailing zeros (as in Materialize, where scale is
no part of the value), floats with the fewest digits that identify them, in the notation PostgreSQL chooses.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.epoch import micros
from mzsql.expr.functions.output.containers import container_text
from mzsql.expr.functions.output.ranges import range_text
from mzsql.expr.functions.table import Engine, Sql
from mzsql.repr.types import SqlType


def text_of(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The spelling of a function that is its argument's text."""
    return to_text(args[0].ast, args[0].typ, engine)


def to_text(ast: Ast, typ: SqlType, engine: Engine) -> Ast:
    """The text of a value; NULL for NULL."""
    match typ.kind:
        case "boolean":
            truth = (ast, s.text("true"))
            return s.case(truth, (s.not_(ast), s.text("false")))
        case "numeric":
            return _numeric(ast, typ)
        case "real" | "double":
            return _float(ast, typ.kind, engine)
        case "date":
            return _date(ast, engine)
        case "timestamp" | "timestamptz":
            return _timestamp(ast, typ.kind, engine)
        case "time":
            return time_text(ast)
        case "interval":
            return interval_text(ast)
        case "range":
            return range_text(ast, typ, engine, to_text)
        case "array" | "list" | "map" | "record":
            return container_text(ast, typ, engine, to_text)
        case "bytea":
            return s.concat(s.text("\\x"), s.call("LOWER", s.call("HEX", ast)))
        case _:
            return s.string(ast)


def _numeric(ast: Ast, typ: SqlType) -> Ast:
    # Spark prints small decimals in scientific notation (0E-18); printing whole and fraction separately avoids it.
    if typ.effective_scale == 0:
        return s.string(ast)
    trimmed = s.call("RTRIM", s.call("REGEXP_REPLACE", s.string(ast), s.text("0+$"), s.text("")))
    plain = s.call("REGEXP_REPLACE", trimmed, s.text("[.]$"), s.text(""))
    return s.case((s.eq(ast, s.num(0)), s.text("0")), otherwise=plain)


def _digits(ast: Ast, kind: str, engine: Engine) -> Ast:
    """The shortest scientific notation that identifies a finite positive float: ``1.5e+300``."""
    carrier = s.typed(exp.DType.FLOAT if kind == "real" else exp.DType.DOUBLE)
    if engine is Engine.SPARK:
        last = 8 if kind == "real" else 16
        precision, shown = s.variable("p0"), s.variable("t0")
        forms = s.call(
            "TRANSFORM",
            s.call("SEQUENCE", s.num(0), s.num(last)),
            s.lambda_(
                ("p0",),
                s.call(
                    "FORMAT_STRING", s.concat(s.text("%."), s.string(precision), s.text("e")), ast
                ),
            ),
        )
        exact = s.call("FILTER", forms, s.lambda_(("t0",), s.eq(s.cast_to(shown, carrier), ast)))
        return s.call("ELEMENT_AT", exact, s.num(1))
    precision, shown = s.variable("p0"), s.variable("t0")
    last = 8 if kind == "real" else 16
    forms = s.call(
        "LIST_TRANSFORM",
        s.call("RANGE", s.num(0), s.num(last + 1)),
        s.lambda_(
            ("p0",),
            s.call(
                "FORMAT", s.concat(s.text("{:."), s.string(precision), s.text("e}")), s.double(ast)
            ),
        ),
    )
    exact = s.call("LIST_FILTER", forms, s.lambda_(("t0",), s.eq(s.cast_to(shown, carrier), ast)))
    return s.call("LIST_EXTRACT", exact, s.num(1))


def _float(ast: Ast, kind: str, engine: Engine) -> Ast:
    """As in PostgreSQL: plain notation for exponents from -4 to 14 (5 for real), else scientific with a two-digit
    exponent.
    """
    plain_below = 6 if kind == "real" else 15
    science = s.variable("f0")
    mantissa = s.call("SPLIT_PART", science, s.text("e"), s.num(1))
    exponent = s.integer(s.call("SPLIT_PART", science, s.text("e"), s.num(2)))
    digits = s.call("REPLACE", mantissa, s.text("."), s.text(""))
    length = s.call("LENGTH", digits)
    negative = s.lt(exponent, s.num(0))
    small = s.concat(
        s.text("0."),
        s.call("REPEAT", s.text("0"), s.integer(s.sub(s.sub(s.num(0), exponent), s.num(1)))),
        digits,
    )
    whole = s.concat(
        digits, s.call("REPEAT", s.text("0"), s.integer(s.add(s.sub(exponent, length), s.num(1))))
    )
    head = s.call("SUBSTRING", digits, s.num(1), s.integer(s.add(exponent, s.num(1))))
    tail = s.call("SUBSTRING", digits, s.integer(s.add(exponent, s.num(2))))
    scientific = s.concat(
        mantissa,
        s.case((negative, s.text("e-")), otherwise=s.text("e+")),
        s.call(
            "LPAD",
            s.string(s.call("ABS", exponent)),
            s.case((s.gte(s.call("ABS", exponent), s.num(100)), s.num(3)), otherwise=s.num(2)),
            s.text("0"),
        ),
    )
    body = s.case(
        (s.or_(s.lt(exponent, s.num(-4)), s.gte(exponent, s.num(plain_below))), scientific),
        (negative, small),
        (s.gte(s.add(exponent, s.num(1)), length), whole),
        otherwise=s.concat(head, s.text("."), tail),
    )
    magnitude = s.call("ABS", ast)
    infinity = s.cast_to(s.text("Infinity"), s.typed(exp.DType.DOUBLE))
    sign = s.case((s.lt(ast, s.num(0)), s.text("-")), otherwise=s.text(""))
    nan = s.cast_to(s.text("NaN"), s.typed(exp.DType.DOUBLE))
    return s.case(
        (s.eq(s.double(ast), nan), s.text("NaN")),
        (s.eq(s.double(magnitude), infinity), s.concat(sign, s.text("Infinity"))),
        (
            s.eq(ast, s.num(0)),
            s.case(
                (s.eq(s.call("LEFT", s.string(ast), s.num(1)), s.text("-")), s.text("-0")),
                otherwise=s.text("0"),
            ),
        ),
        (
            s.is_not_null(ast),
            s.concat(sign, s.let(_digits(magnitude, kind, engine), "f0", body, engine)),
        ),
    )


def _year(ast: Ast) -> Ast:
    return s.big(exp.Extract(this=exp.Var(this="YEAR"), expression=ast.copy()))


def _date_body(ast: Ast) -> tuple[Ast, Ast]:
    """The text ``YYYY-MM-DD``, with years before Christ counted backwards, and the suffix `` BC`` or nothing."""
    year = _year(ast)
    before = s.lt(year, s.num(1))
    shown = s.string(s.case((before, s.sub(s.num(1), year)), otherwise=year))
    width = s.case(
        (s.gt(s.call("LENGTH", shown), s.num(4)), s.integer(s.call("LENGTH", shown))),
        otherwise=s.num(4),
    )
    month = s.string(exp.Extract(this=exp.Var(this="MONTH"), expression=ast.copy()))
    day = s.string(exp.Extract(this=exp.Var(this="DAY"), expression=ast.copy()))
    two = s.num(2)
    body = s.concat(
        s.call("LPAD", shown, width, s.text("0")),
        s.text("-"),
        s.call("LPAD", month, two, s.text("0")),
        s.text("-"),
        s.call("LPAD", day, two, s.text("0")),
    )
    return body, s.case((before, s.text(" BC")), otherwise=s.text(""))


def _date(ast: Ast, engine: Engine) -> Ast:
    del engine
    body, era = _date_body(ast)
    return s.concat(body, era)


def micros_of_day(ast: Ast, kind: str, engine: Engine) -> Ast:
    """The microseconds since midnight of a timestamp, in UTC."""
    day = s.num(86_400_000_000)
    return s.mod(s.add(s.mod(micros(ast, kind, engine), day), day), day)


def _timestamp(ast: Ast, kind: str, engine: Engine) -> Ast:
    local = s.cast(ast, SqlType("timestamp"), engine)
    body, era = _date_body(local)
    clock = time_text(micros_of_day(ast, kind, engine))
    zone = [s.text("+00")] if kind == "timestamptz" else []
    return s.concat(body, s.text(" "), clock, *zone, era)


def _fraction(micros: Ast) -> Ast:
    """The fraction of a second: ``.5`` for 500000 microseconds, nothing for 0."""
    padded = s.call("LPAD", s.string(micros), s.num(6), s.text("0"))
    trimmed = s.call("REGEXP_REPLACE", padded, s.text("0+$"), s.text(""))
    return s.case((s.eq(micros, s.num(0)), s.text("")), otherwise=s.concat(s.text("."), trimmed))


def time_text(micros: Ast) -> Ast:
    """``HH:MM:SS[.ffffff]`` for non-negative microseconds; hours may have more than two digits."""
    m = s.big(micros)
    seconds = s.int_div(m, s.num(1_000_000))
    hours = s.string(s.int_div(seconds, s.num(3600)))
    width = s.case(
        (s.gt(s.call("LENGTH", hours), s.num(2)), s.integer(s.call("LENGTH", hours))),
        otherwise=s.num(2),
    )

    def two(part: Ast) -> Ast:
        return s.call("LPAD", s.string(part), s.num(2), s.text("0"))

    return s.concat(
        s.call("LPAD", hours, width, s.text("0")),
        s.text(":"),
        two(s.mod(s.int_div(seconds, s.num(60)), s.num(60))),
        s.text(":"),
        two(s.mod(seconds, s.num(60))),
        _fraction(s.mod(m, s.num(1_000_000))),
    )


def interval_text(ast: Ast) -> Ast:
    """The text of an interval in Materialize's format: ``1 year 2 months -3 days +04:05:06.7``, ``00:00:00`` if empty."""
    months, days, micros = (s.big(s.field(ast, name)) for name in ("months", "days", "micros"))
    years, mons = s.int_div(months, s.num(12)), s.mod(months, s.num(12))
    zero = s.num(0)

    def unit(count: Ast, name: str, earlier: list[Ast]) -> Ast:
        # As in PostgreSQL, a positive number after a negative one has a sign.
        before_negative = _last_negative(earlier)
        sign = s.case(
            (s.and_(before_negative, s.gt(count, zero)), s.text("+")), otherwise=s.text("")
        )
        plural = s.case((s.eq(count, s.num(1)), s.text(name)), otherwise=s.text(f"{name}s"))
        shown = s.concat(sign, s.string(count), s.text(" "), plural)
        return s.case((s.neq(count, zero), shown))

    absolute = s.call("ABS", s.wide(micros))
    clock_sign = s.case(
        (s.lt(micros, zero), s.text("-")),
        (_last_negative([years, mons, days]), s.text("+")),
        otherwise=s.text(""),
    )
    empty = s.and_(s.eq(months, zero), s.eq(days, zero))
    clock = s.case(
        (s.or_(s.neq(micros, zero), empty), s.concat(clock_sign, _wide_time_text(absolute)))
    )
    parts = [
        unit(years, "year", []),
        unit(mons, "month", [years]),
        unit(days, "day", [years, mons]),
        clock,
    ]
    joined = s.call("CONCAT_WS", s.text(" "), *parts)
    return s.case((s.is_not_null(months), joined))


def _wide_time_text(micros: Ast) -> Ast:
    # The magnitude of the smallest bigint exceeds the largest, so its text is constant.
    largest = s.text("2562047788:00:54.775808")
    return s.case(
        (s.gt(micros, s.num(2**63 - 1)), largest),
        otherwise=time_text(s.try_cast_to(micros, s.typed(exp.DType.BIGINT))),
    )


def _last_negative(fields: list[Ast]) -> Ast:
    """Whether the last nonzero field is negative."""
    if not fields:
        return s.boolean(False)
    *earlier, last = fields
    return s.or_(s.lt(last, s.num(0)), s.and_(s.eq(last, s.num(0)), _last_negative(earlier)))
