"""Constants in plans AS JSON: the bytes of a packed row, in Materialize's encoding.

Promise: a tag, then the value: integers in as few bytes as necessary, little-endian; texts, bytes and lists after their
length; dates as days since 2000, timestamps as nanoseconds since 1970. Only for display and for comparing plans: mzsql
stores nothing in this form.
"""

from __future__ import annotations

import decimal
import struct
import uuid
from collections.abc import Iterable, Sequence

import msgspec

from mzsql.repr.datum import Datum
from mzsql.repr.types import TEXT, ColumnType, SqlType

_TAGS = {
    "real": 8,
    "double": 9,
    "date": 10,
    "time": 11,
    "interval": 14,
    "bytea": 15,
    "text": 19,
    "uuid": 23,
    "array": 24,
    "list": 25,
    "map": 29,
    "json null": 30,
    "numeric": 32,
    "mz_timestamp": 35,
    "timestamp": 39,
    "timestamptz": 40,
}
#: The tags of the integers 0 and -1; the tags of wider values follow, one per byte.
_INTEGERS = {"smallint": (41, 58), "integer": (44, 61), "bigint": (49, 66)}
_UNSIGNED = {"uint2": 77, "uint4": 80, "uint8": 85}
_DAYS_TO_2000 = 10957


def row_bytes(row: Sequence[Datum], columns: Sequence[ColumnType]) -> list[int]:
    """A row."""
    return list(b"".join(datum(v, c.type) for v, c in zip(row, columns, strict=True)))


def datum(value: Datum, typ: SqlType) -> bytes:
    """A value."""
    if value is None:
        return b"\x00"
    kind = typ.kind
    if kind == "boolean":
        return b"\x02" if value else b"\x01"
    if isinstance(value, int | float) and kind in ("real", "double"):
        return struct.pack("<Bf" if kind == "real" else "<Bd", _TAGS[kind], value)
    if isinstance(value, int):
        return _integral(value, kind)
    text = str(value)
    match kind:
        case "numeric":
            return _numeric(text)
        case "bytea":
            return _sized(_TAGS["bytea"], bytes.fromhex(text))
        case "uuid":
            return bytes([_TAGS["uuid"]]) + uuid.UUID(text).bytes
        case "interval":
            return struct.pack("<Biiq", _TAGS["interval"], *(int(part) for part in text.split()))
        case "jsonb":
            return _json(msgspec.json.decode(text.encode()))
        case "list" | "array" | "record" | "map":
            return _nested(text, typ)
        case _:
            return _sized(_TAGS["text"], text.encode())


def _integral(value: int, kind: str) -> bytes:
    match kind:
        case "date":
            return struct.pack("<Bi", _TAGS["date"], value - _DAYS_TO_2000)
        case "time":
            seconds, micros = divmod(value, 1_000_000)
            return struct.pack("<BII", _TAGS["time"], seconds, micros * 1000)
        case "timestamp" | "timestamptz":
            return (
                struct.pack("<B", _TAGS[kind])
                + (value * 1000).to_bytes(16, "little", signed=True)[:8]
            )
        case "mz_timestamp":
            return struct.pack("<BQ", _TAGS[kind], value)
        case _ if kind in _UNSIGNED:
            size = (value.bit_length() + 7) // 8
            return bytes([_UNSIGNED[kind] + size]) + value.to_bytes(size, "little")
        case _:
            zero, minus_one = _INTEGERS.get(kind, _INTEGERS["bigint"])
            size = ((~value if value < 0 else value).bit_length() + 7) // 8
            low = value & ((1 << (8 * size)) - 1)
            return bytes([(minus_one if value < 0 else zero) + size]) + low.to_bytes(size, "little")


def _sized(tiny: int, data: bytes) -> bytes:
    """Bytes after their length, which takes one, two, four or eight bytes."""
    for step, size in enumerate((1, 2, 4)):
        if len(data) < 2 ** (8 * size):
            return bytes([tiny + step]) + len(data).to_bytes(size, "little") + data
    return bytes([tiny + 3]) + len(data).to_bytes(8, "little") + data


def _numeric(text: str) -> bytes:
    """Digits, exponent and sign, then the coefficient in groups of three digits, the least significant first."""
    number = decimal.Decimal(text)
    if not number.is_finite():
        return bytes([_TAGS["numeric"], 1, 0, 0x20 if number.is_nan() else 0x40, 0, 0])
    exact = decimal.Context(prec=100, Emin=-999, Emax=999)
    sign, digits, exponent = number.normalize(exact).as_tuple()
    assert isinstance(exponent, int)
    coefficient = int("".join(str(digit) for digit in digits))
    units: list[bytes] = []
    for _ in range((len(digits) + 2) // 3):
        coefficient, unit = divmod(coefficient, 1000)
        units.append(unit.to_bytes(2, "little"))
    head = struct.pack("<BBbB", _TAGS["numeric"], len(digits), exponent, 0x80 if sign else 0)
    return head + b"".join(units)


def _json(value: object) -> bytes:
    match value:
        case None:
            return bytes([_TAGS["json null"]])
        case bool():
            return b"\x02" if value else b"\x01"
        case int() | float():
            return _numeric(str(value))
        case list():
            return _sized(_TAGS["list"], b"".join(_json(part) for part in value))
        case dict():
            pairs = (datum(str(k), TEXT) + _json(value[k]) for k in sorted(value))
            return _dict(pairs)
        case _:
            return datum(str(value), TEXT)


def _dict(pairs: Iterable[bytes]) -> bytes:
    body = b"".join(pairs)
    return bytes([_TAGS["map"]]) + len(body).to_bytes(8, "little") + body


def _nested(text: str, typ: SqlType) -> bytes:
    parts = msgspec.json.decode(text.encode())
    element = typ.element or TEXT
    if typ.kind == "map":
        return _dict(datum(str(k), TEXT) + datum(parts[k], element) for k in sorted(parts))
    if typ.kind == "record":
        fields = zip(parts, typ.fields, strict=True)
        return _sized(_TAGS["list"], b"".join(datum(v, c.type) for v, (_, c) in fields))
    body = b"".join(datum(part, element) for part in parts)
    if typ.kind == "list":
        return _sized(_TAGS["list"], body)
    dimensions = struct.pack("<Bqq", 1, 1, len(parts)) if parts else b"\x00"
    return bytes([_TAGS["array"]]) + dimensions + len(body).to_bytes(8, "little") + body
