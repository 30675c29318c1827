"""Functions defined by an SQL expression over other functions: ``make_time(…)``, ``array_dims(…)``.

Promise: each has the meaning in PostgreSQL's documentation, and every engine can compute it, in views too; a plan shows
the expression. The trade-off: an argument may occur in the expression several times. Errors are raised by
``mz_raise_if``.
"""

from __future__ import annotations

from collections.abc import Mapping

from mzsql.frontend.scalar.defined import Defined
from mzsql.repr import types as t
from mzsql.repr.types import SqlType

_TEXT, _INT, _BIG, _DOUBLE, _NUMERIC = t.TEXT, t.INTEGER, t.BIGINT, t.DOUBLE, t.NUMERIC
_STAMP, _SPAN, _OID, _REGCLASS = t.TIMESTAMPTZ, t.INTERVAL, t.OID, t.REGCLASS


def _one(args: tuple[SqlType, ...], result: SqlType, sql: str) -> tuple[Defined, ...]:
    return (Defined(args, sql, result),)


_NO_TIME = """CASE WHEN mz_internal.mz_raise_if(
        NOT ($1 BETWEEN 0 AND 23 AND $2 BETWEEN 0 AND 59 AND $3 >= 0 AND $3 <= 60),
        'time field value out of range: ' || $1::text || ':' || $2::text || ':' || $3::text)
    THEN NULL ELSE TIME '00:00:00' + ($1 * INTERVAL '1 hour' + $2 * INTERVAL '1 minute' + $3 * INTERVAL '1 second') END"""
#: A name's parts, NULL for those that it leaves out.
_NORMALIZED = """CASE WHEN mz_internal.mz_raise_if(cardinality(parse_ident($1)) > 3,
        'improper relation name (too many dotted names): ' || $1)
    THEN NULL WHEN $1 IS NOT NULL
    THEN array_cat((ARRAY[NULL, NULL, NULL]::text[])[:3 - cardinality(parse_ident($1))], parse_ident($1)) END"""
_NORMALIZED_SCHEMA = """CASE WHEN mz_internal.mz_raise_if(cardinality(parse_ident($1)) > 2,
        'improper schema name (too many dotted names): ' || $1)
    THEN NULL WHEN $1 IS NOT NULL
    THEN array_cat((ARRAY[NULL, NULL]::text[])[:2 - cardinality(parse_ident($1))], parse_ident($1)) END"""
_SPANS = tuple(
    f"${i} * INTERVAL '1 {unit}'"
    for i, unit in enumerate(("year", "month", "week", "day", "hour", "minute", "second"), start=1)
)
#: The number of fractional digits that a number is written with; NULL for NaN.
_SCALE = """CASE WHEN $1 = 'NaN'::numeric THEN NULL ELSE length(split_part($1::text, '.', 2)) END"""
#: -1, PostgreSQL's value for an unknown size.
_SIZE = "CASE WHEN {known} THEN -1::bigint END"
_UNITS = """CASE lower(btrim(substring($1, '[a-zA-Z]*[[:space:]]*$')))
        WHEN '' THEN 1 WHEN 'bytes' THEN 1 WHEN 'b' THEN 1 WHEN 'kb' THEN 1024 WHEN 'mb' THEN 1048576 WHEN 'gb' THEN 1073741824
        WHEN 'tb' THEN 1099511627776 WHEN 'pb' THEN 1125899906842624 END"""
_IN_BYTES = f"""CASE WHEN mz_internal.mz_raise_if(
        $1 !~ '^[[:space:]]*[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)[[:space:]]*([a-zA-Z]+)?[[:space:]]*$' OR {_UNITS} IS NULL,
        'invalid size: "' || $1 || '"')
    THEN NULL ELSE round(substring($1, '[-+]?[0-9]*[.]?[0-9]*[0-9.]')::numeric * {_UNITS})::bigint END"""
#: Within a quarter circle, scaled by the sine of 30 or the cosine of 60 degrees, so that those are exactly 0.5, as in
#: PostgreSQL.
_SIN_30 = "(sin(radians({0})) / sin(radians(30.0)) / 2)"
_COS_60 = "(1 - (1 - cos(radians({0}))) / (1 - cos(radians(60.0))) / 2)"


def _first_quarter(sine: bool, angle: str) -> str:
    """The sine (else the cosine) of an angle between 0 and 90 degrees."""
    near, far = (_SIN_30, _COS_60) if sine else (_COS_60, _SIN_30)
    edge = 30 if sine else 60
    rest = f"(90 - {angle})"
    return f"CASE WHEN {angle} <= {edge} THEN {near.format(angle)} ELSE {far.format(rest)} END"


_TURN = "mod(abs($1)::numeric, 360)::double precision"
_NOT_FINITE = """mz_internal.mz_raise_if($1 IN ('Infinity'::double precision, '-Infinity'::double precision), 'input is out of range')"""


def _sine() -> str:
    turn = f"({_TURN})"
    half = f"(CASE WHEN {turn} > 180 THEN {turn} - 180 ELSE {turn} END)"
    quarter = f"(CASE WHEN {half} > 90 THEN 180 - {half} ELSE {half} END)"
    sign = f"(CASE WHEN $1 < 0 THEN -1 ELSE 1 END * CASE WHEN {turn} > 180 THEN -1 ELSE 1 END)"
    return f"{sign} * ({_first_quarter(True, quarter)})"


def _cosine() -> str:
    turn = f"({_TURN})"
    half = f"(CASE WHEN {turn} > 180 THEN 360 - {turn} ELSE {turn} END)"
    quarter = f"(CASE WHEN {half} > 90 THEN 180 - {half} ELSE {half} END)"
    return f"CASE WHEN {half} > 90 THEN -1 ELSE 1 END * ({_first_quarter(False, quarter)})"


def _of_degrees(value: str) -> tuple[Defined, ...]:
    return _one(
        (_DOUBLE,),
        _DOUBLE,
        f"CASE WHEN {_NOT_FINITE} THEN NULL WHEN $1 = 'NaN' THEN $1 ELSE {value} END",
    )


def _quotient(over: str, under: str, side: str) -> str:
    """A quotient, which over a zero is infinite, with the sign of what is divided times ``side``."""
    infinite = (
        f"CASE WHEN {side} * ({over}) < 0 THEN '-Infinity'::double precision ELSE 'Infinity' END"
    )
    return f"(CASE WHEN ({under}) = 0 THEN {infinite} ELSE ({over}) / nullif({under}, 0) END)"


#: The arcsine in degrees, exactly 30 for 0.5.
_ARC_SINE = """CASE WHEN abs($1) <= 0.5 THEN asin($1) / asin(0.5) * 30
    ELSE sign($1) * (90 - acos(abs($1)) / acos(0.5) * 60) END"""
_ARC_COSINE = """CASE WHEN $1 < -0.5 THEN 180 - acos(-$1) / acos(0.5) * 60
    WHEN $1 <= 0.5 THEN 90 - asin($1) / asin(0.5) * 30 ELSE acos($1) / acos(0.5) * 60 END"""
_OUTSIDE = "mz_internal.mz_raise_if(abs($1) > 1, 'input is out of range')"

#: A bytea with the byte at a 0-based position replaced.
_BYTES = "substring($1, 1, {at}) || {byte} || substring($1, {at} + 2)"
_BYTE = "decode(lpad(to_hex({value}), 2, '0'), 'hex')"


def _with_byte(places: int, value: str) -> str:
    """A bytea with one byte replaced, where a position counts bytes (``places`` 1) or bits (8)."""
    at = "$2" if places == 1 else f"($2 / {places})::integer"
    whole = _BYTES.format(at=at, byte=_BYTE.format(value=value))
    return f"""CASE WHEN mz_internal.mz_raise_if($2 < 0 OR $2 >= octet_length($1) * {places},
        'index ' || $2::text || ' out of valid range, 0..' || (octet_length($1) * {places} - 1)::text) THEN NULL ELSE {whole} END"""


#: Bits are counted from the lowest of a byte.
_BIT = "(1 << ($2 % 8)::integer)"
_SET_BIT = _with_byte(8, f"(get_byte($1, ($2 / 8)::integer) & (255 - {_BIT})) | ({_BIT} * $3)")

#: A zone as AT TIME ZONE takes it, in which an offset counts to the west, as in POSIX: here it counts to the east, as in ISO 8601.
_EASTERN = "CASE WHEN $7 LIKE '+%' OR $7 LIKE '-%' THEN translate(left($7, 1), '+-', '-+') || substring($7, 2) ELSE $7 END"

#: What takes the place of a value that is NULL, as the last argument says.
_SET_LAX = """CASE WHEN $1 IS NULL OR $2 IS NULL OR $4 IS NULL THEN NULL
    WHEN $3 IS NOT NULL THEN jsonb_set($1, $2, $3, $4)
    WHEN mz_internal.mz_raise_if({how} IS NULL OR {how} NOT IN ('use_json_null', 'delete_key', 'return_target', 'raise_exception'),
        'null_value_treatment must be "delete_key", "return_target", "use_json_null", or "raise_exception"') THEN NULL
    WHEN mz_internal.mz_raise_if({how} = 'raise_exception', 'JSON value must not be null') THEN NULL
    WHEN {how} = 'use_json_null' THEN jsonb_set($1, $2, 'null'::jsonb, $4)
    WHEN {how} = 'delete_key' THEN $1 #- $2 ELSE $1 END"""
_SET_ARGS = (t.JSONB, SqlType("array", element=_TEXT), t.JSONB, t.BOOLEAN, _TEXT)

SQL_FUNCTIONS: Mapping[str, tuple[Defined, ...]] = {
    "age": (
        Defined((t.TIMESTAMP,), "age(date_trunc('day', now())::timestamp, $1)", _SPAN),
        Defined((_STAMP,), "age(date_trunc('day', now()), $1)", _SPAN),
    ),
    "date_trunc": _one(
        (_TEXT, _STAMP, _TEXT), _STAMP, "date_trunc($1, $2 AT TIME ZONE $3) AT TIME ZONE $3"
    ),
    "set_bit": _one(
        (t.BYTEA, _BIG, _INT),
        t.BYTEA,
        "CASE WHEN mz_internal.mz_raise_if($3 NOT IN (0, 1), 'new bit must be 0 or 1') THEN NULL"
        f" ELSE {_SET_BIT} END",
    ),
    "set_byte": _one((t.BYTEA, _INT, _INT), t.BYTEA, _with_byte(1, "$3 & 255")),
    "acosd": _one((_DOUBLE,), _DOUBLE, f"CASE WHEN {_OUTSIDE} THEN NULL ELSE {_ARC_COSINE} END"),
    "asind": _one((_DOUBLE,), _DOUBLE, f"CASE WHEN {_OUTSIDE} THEN NULL ELSE {_ARC_SINE} END"),
    "atan2d": _one((_DOUBLE, _DOUBLE), _DOUBLE, "atan2($1, $2) / atan(1.0::double precision) * 45"),
    "atand": _one((_DOUBLE,), _DOUBLE, "atan($1) / atan(1.0::double precision) * 45"),
    "cosd": _of_degrees(_cosine()),
    # A zero is on the side that the angle comes from.
    "cotd": _of_degrees(_quotient(_cosine(), _sine(), "CASE WHEN $1 < 0 THEN -1 ELSE 1 END")),
    "date_add": (
        Defined((_STAMP, _SPAN), "$1 + $2", _STAMP),
        Defined((_STAMP, _SPAN, _TEXT), "(($1 AT TIME ZONE $3) + $2) AT TIME ZONE $3", _STAMP),
    ),
    "date_subtract": (
        Defined((_STAMP, _SPAN), "$1 - $2", _STAMP),
        Defined((_STAMP, _SPAN, _TEXT), "(($1 AT TIME ZONE $3) - $2) AT TIME ZONE $3", _STAMP),
    ),
    "jsonb_set_lax": tuple(
        Defined(
            _SET_ARGS[:count],
            _SET_LAX.format(how="$5" if count == 5 else "'use_json_null'").replace(
                "$4", "$4" if count > 3 else "true"
            ),
            t.JSONB,
        )
        for count in (3, 4, 5)
    ),
    "make_interval": tuple(
        Defined(args, " + ".join(("INTERVAL '0'", *_SPANS[: len(args)])), _SPAN)
        for args in ((_INT, _INT, _INT, _INT, _INT, _INT, _DOUBLE)[:n] for n in range(8))
    ),
    "make_time": _one((_INT, _INT, _DOUBLE), t.TIME, _NO_TIME),
    "make_timestamptz": (
        Defined(
            (_INT, _INT, _INT, _INT, _INT, _DOUBLE),
            "make_timestamp($1, $2, $3, $4, $5, $6) AT TIME ZONE 'UTC'",
            _STAMP,
        ),
        Defined(
            (_INT, _INT, _INT, _INT, _INT, _DOUBLE, _TEXT),
            f"make_timestamp($1, $2, $3, $4, $5, $6) AT TIME ZONE {_EASTERN}",
            _STAMP,
        ),
    ),
    "mz_normalize_object_name": _one((_TEXT,), SqlType("array", element=_TEXT), _NORMALIZED),
    "mz_normalize_schema_name": _one((_TEXT,), SqlType("array", element=_TEXT), _NORMALIZED_SCHEMA),
    "min_scale": _one((_NUMERIC,), _INT, _SCALE),
    "pg_client_encoding": _one((), _TEXT, "'UTF8'::text"),
    "pg_get_partkeydef": _one((_OID,), _TEXT, "NULL::text"),
    "pg_relation_size": tuple(
        Defined(args, _SIZE.format(known=known), _BIG)
        for first in (_REGCLASS, _OID)
        for args, known in (
            ((first,), "$1 IS NOT NULL"),
            ((first, _TEXT), "$1 IS NOT NULL AND $2 IS NOT NULL"),
        )
    ),
    **{
        name: tuple(
            Defined((arg,), _SIZE.format(known="$1 IS NOT NULL"), _BIG) for arg in (_REGCLASS, _OID)
        )
        for name in ("pg_indexes_size", "pg_table_size", "pg_total_relation_size")
    },
    "pg_size_bytes": _one((_TEXT,), _BIG, _IN_BYTES),
    "scale": _one((_NUMERIC,), _INT, _SCALE),
    "sind": _of_degrees(_sine()),
    "tand": _of_degrees(_quotient(_sine(), _cosine(), "1")),
    "trim_scale": _one((_NUMERIC,), _NUMERIC, "$1"),
}
