"""Hashes for distributing keys: SeaHash, and Kafka's Murmur2.

Promise: the same numbers as other programs compute for these bytes. Constants only: no engine has these hashes, as the
refusal says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, scalar
from mzsql.expr.functions.table import Engine, ScalarFunc, Spelling, Sql
from mzsql.expr.functions.text.encodings import constant_null, known_bytes
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import BYTEA, INTEGER, TEXT, UINT8, SqlType

_64, _32 = 2**64 - 1, 2**32 - 1
_SEEDS = (0x16F11FE89B0D677C, 0xB480A793D8E6C86C, 0x6FE2E5AAF078EBC9, 0x14F994A4C5259381)
_SEA_FACTOR = 0x6EED0E9DA4D94A4F
_KAFKA_SEED, _MURMUR_FACTOR, _MURMUR_SHIFT = 0x9747B28C, 0x5BD1E995, 24


def _diffuse(x: int) -> int:
    x = x * _SEA_FACTOR & _64
    x ^= (x >> 32) >> (x >> 60)
    return x * _SEA_FACTOR & _64


def seahash(data: bytes) -> int:
    """The SeaHash of bytes with its own seeds."""
    lanes = list(_SEEDS)
    for place, start in enumerate(range(0, len(data), 8)):
        word = int.from_bytes(data[start : start + 8], "little")
        lanes[place % 4] = _diffuse(lanes[place % 4] ^ word)
    return _diffuse(lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3] ^ len(data))


def kafka_murmur2(data: bytes) -> int:
    """The Murmur2 of bytes with the seed of Kafka's partitioner, without the highest bit."""
    whole = len(data) // 4 * 4
    found = _KAFKA_SEED ^ len(data)
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MURMUR_FACTOR & _32
        word = (word ^ word >> _MURMUR_SHIFT) * _MURMUR_FACTOR & _32
        found = (found * _MURMUR_FACTOR & _32) ^ word
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * _MURMUR_FACTOR & _32
    found = (found ^ found >> 13) * _MURMUR_FACTOR & _32
    return (found ^ found >> 15) & 0x7FFFFFFF


def _of_constants(name: str, make: Callable[[bytes], int]) -> Spelling:
    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        if constant_null(args[0]):
            return s.cast(s.null(), typ, engine)
        known = known_bytes(args[0])
        if known is None:
            raise Unsupported(f"{name} of anything but constants is not supported")
        return s.cast(s.num(make(known)), typ, engine)

    return value


FUNCTIONS: tuple[ScalarFunc, ...] = tuple(
    scalar(f"{name}_{kind}", name, (typ,), result, _of_constants(name, make))
    for name, make, result in (
        ("seahash", seahash, UINT8),
        ("kafka_murmur2", kafka_murmur2, INTEGER),
    )
    for kind, typ in (("text", TEXT), ("bytea", BYTEA))
)
