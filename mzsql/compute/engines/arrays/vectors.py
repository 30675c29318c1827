"""Columns of few rows as NumPy arrays, and exact arithmetic on them.

Promise: a `Vector` stands for what DuckDB computes, value for value and NULL for NULL. Each carries a bound of its values
(`most`), from which every operation computes the bound of its result before it computes the result: what fits 64 bits is
computed in 64 bits, what may not is computed with Python's integers, and what may not fit the type that DuckDB gives it
raises `Unsupported`. So nothing overflows unnoticed. Decimals are their digits as integers; dates, days; timestamps,
microseconds; texts, places in a dictionary that all texts of a run share. Columns of other types are only passed on.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mzsql.persist.words import words_of

Places: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


class Unsupported(Exception):
    """Something that is left to DuckDB."""


class Kind(enum.IntEnum):
    """What a vector's values are."""

    INTEGER = enum.auto()
    DECIMAL = enum.auto()
    BOOLEAN = enum.auto()
    DATE = enum.auto()
    TIMESTAMP = enum.auto()
    TEXT = enum.auto()
    #: NULL without a type
    NULL = enum.auto()
    #: an Arrow array that is passed on
    OTHER = enum.auto()


#: Kinds whose values are numbers that may be added.
NUMBERS = frozenset((Kind.INTEGER, Kind.DECIMAL))
#: Kinds of which vectors are not alike without a look.
_LOOSE = frozenset((Kind.NULL, Kind.OTHER))
#: The first number that 64 bits with a sign do not hold.
WIDE = 1 << 63
#: The first number that DECIMAL(38) does not hold.
_DIGITS = 10**38


@dataclass(slots=True)
class Vector:
    """Values of one column, or one value for all rows.

    Attributes:
        kind: what they are.
        values: int64, or Python's integers where 64 bits may not do; bool; of the kind OTHER an Arrow array. Where NULL
            stands there is any value.
        nulls: where NULL stands; None: nowhere.
        bound: no number's absolute value is more; None until it is asked for.
        size: of integers the bits of their type, of decimals the scale.
    """

    kind: Kind
    values: Any
    nulls: Mask | None = None
    bound: int | None = None
    size: int = 64

    def __post_init__(self) -> None:
        """Give each value its mark, and each mark its value, where there is one for all."""
        if self.nulls is not None and len(self.nulls) != len(self.values):
            if len(self.nulls) == 1:
                self.nulls = np.broadcast_to(self.nulls, len(self.values))
            else:
                self.values = np.broadcast_to(self.values, len(self.nulls))

    @property
    def most(self) -> int:
        """No number's absolute value is more."""
        if self.bound is None:
            self.bound = _bound(self.values)
        return self.bound

    def __len__(self) -> int:
        return len(self.values)

    def take(self, places: Places) -> Vector:
        """The values at places."""
        values = self.values
        taken = values.take(pa.array(places) if self.kind is Kind.OTHER else places)
        nulls = None if self.nulls is None else self.nulls.take(places)
        return Vector(self.kind, taken, nulls, self.bound, self.size)

    def over(self, count: int) -> Vector:
        """The same for so many rows; it has as many, or one value for all."""
        if len(self.values) == count:
            return self
        return self.take(np.zeros(count, np.int64))

    def of_words(self) -> npt.NDArray[Any]:
        """The values in 64 bits.

        Raises:
            Unsupported: they do not fit.
        """
        if self.kind is Kind.OTHER:
            raise Unsupported
        if self.values.dtype != object:
            return self.values  # type: ignore[no-any-return]
        return _narrow(self.values)


def _narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    try:
        return values.astype(np.int64)
    except OverflowError:
        raise Unsupported from None


def null(kind: Kind = Kind.NULL, size: int = 64) -> Vector:
    """NULL for all rows."""
    values: npt.NDArray[Any] = np.zeros(1, np.bool_ if kind is Kind.BOOLEAN else np.int64)
    return Vector(kind, values, np.ones(1, np.bool_), 0, size)


def integer(value: int, size: int = 0) -> Vector:
    """A whole number for all rows, in a type of `size` bits, or as a literal."""
    bits = size or (32 if -(1 << 31) <= value < 1 << 31 else 64 if -WIDE <= value < WIDE else 128)
    return checked(Vector(Kind.INTEGER, _numbers([value], abs(value)), None, abs(value), bits))


def _numbers(values: Sequence[int], most: int) -> npt.NDArray[Any]:
    return np.array(values, np.int64 if most < WIDE else object)


def truth(values: Mask, nulls: Mask | None = None) -> Vector:
    """A condition's truth."""
    return Vector(Kind.BOOLEAN, values, nulls)


def limit(vector: Vector) -> int:
    """The first number that a vector's type does not hold."""
    if vector.kind is Kind.DECIMAL:
        return _DIGITS
    if vector.kind is Kind.INTEGER:
        return 1 << (vector.size - 1)
    return 1 << 31 if vector.kind is Kind.DATE else WIDE


def checked(vector: Vector) -> Vector:
    """A vector whose values its type holds.

    Raises:
        Unsupported: it may not hold one.
    """
    if vector.most >= limit(vector):
        vector.bound = largest(vector)
        if vector.bound >= limit(vector):
            raise Unsupported
    return vector


def _bound(values: Any) -> int:
    """A number that is at least each value's absolute value, and less than twice the largest of them, or 1."""
    if not len(values):
        return 0
    if values.dtype == object:
        return max(abs(int(values.max())), abs(int(values.min())))
    # A negative number's bits inverted are one less than its absolute value.
    return int(np.bitwise_or.reduce(values ^ (values >> 63))) + 1


def largest(vector: Vector) -> int:
    """The largest absolute value that there is."""
    values = vector.values
    if vector.nulls is not None:
        values = values[~vector.nulls] if len(values) == len(vector.nulls) else values
    return max(abs(int(values.max())), abs(int(values.min()))) if len(values) else 0


def either(one: Mask | None, other: Mask | None) -> Mask | None:
    """Where one of two is NULL."""
    if one is None or other is None:
        return other if one is None else one
    return one | other


def computed(
    kind: Kind,
    size: int,
    most: int,
    operation: Callable[[Any, Any], Any],
    one: Vector,
    other: Vector,
) -> Vector:
    """The result of an operation on two vectors' numbers, of which no result is more than `most`."""
    left, right = one.values, other.values
    if most >= WIDE:
        left, right = left.astype(object), right.astype(object)
    values = operation(left, right)
    return checked(Vector(kind, values, either(one.nulls, other.nulls), most, size))


def scaled(vector: Vector, scale: int) -> Vector:
    """A number as a decimal of a scale that is not less than its own."""
    own = vector.size if vector.kind is Kind.DECIMAL else 0
    if vector.kind is Kind.DECIMAL and own == scale:
        return vector
    by = 10 ** (scale - own)
    most = vector.most * by
    values = vector.values
    if by > 1:
        values = (values.astype(object) if most >= WIDE else values) * by
    return checked(Vector(Kind.DECIMAL, values, vector.nulls, most, scale))


def alike(vectors: Sequence[Vector]) -> list[Vector]:
    """Vectors in one type, as a CASE or a comparison has them.

    Raises:
        Unsupported: they have none that is known here.
    """
    first = vectors[0]
    if first.kind not in _LOOSE and all(
        one.kind is first.kind and one.size == first.size for one in vectors
    ):
        return list(vectors)
    kinds = {one.kind for one in vectors if one.kind is not Kind.NULL}
    if not kinds:
        return list(vectors)
    if kinds == {Kind.INTEGER}:
        size = max(one.size for one in vectors if one.kind is Kind.INTEGER)
        return [_of(one, Kind.INTEGER, size) for one in vectors]
    if kinds <= NUMBERS:
        scale = _common_scale(vectors)
        return [
            null(Kind.DECIMAL, scale) if one.kind is Kind.NULL else scaled(one, scale)
            for one in vectors
        ]
    (kind,) = kinds if len(kinds) == 1 else (Kind.OTHER,)
    if kind is Kind.OTHER:
        raise Unsupported
    return [null(kind) if one.kind is Kind.NULL else one for one in vectors]


def _common_scale(vectors: Sequence[Vector]) -> int:
    """The scale of the decimals and whole numbers of a CASE or a comparison.

    Raises:
        Unsupported: DuckDB takes a smaller scale than one of them has, to keep the digits before the point, and rounds.
    """
    scales = {one.size for one in vectors if one.kind is Kind.DECIMAL}
    bits = max((one.size for one in vectors if one.kind is Kind.INTEGER), default=0)
    if len(scales) > 1 or (bits and min(scales) > _SCALES.get(bits, -1)):
        raise Unsupported
    return scales.pop()


#: How many digits after the point a decimal has beside all integers of so many bits.
_SCALES = {16: 33, 32: 28, 64: 19}


def _of(vector: Vector, kind: Kind, size: int) -> Vector:
    if vector.kind is Kind.NULL:
        return null(kind, size)
    return Vector(kind, vector.values, vector.nulls, vector.bound, size)


def joined(vectors: Sequence[Vector]) -> Vector:
    """Vectors one after another.

    Raises:
        Unsupported: they have no type in common.
    """
    if len(vectors) == 1:
        return vectors[0]
    if any(one.kind is Kind.OTHER for one in vectors):
        if any(one.kind is not Kind.OTHER for one in vectors):
            raise Unsupported
        return Vector(Kind.OTHER, pa.concat_arrays([one.values for one in vectors]))
    same = alike(vectors)
    nulls = None
    if any(one.nulls is not None for one in same):
        nulls = np.concatenate(
            [np.zeros(len(one), np.bool_) if one.nulls is None else one.nulls for one in same]
        )
    values = np.concatenate([one.values for one in same])
    return Vector(same[0].kind, values, nulls, most_of(same), same[0].size)


def most_of(vectors: Sequence[Vector]) -> int | None:
    """A bound of the values of all, if each has one already."""
    most = 0
    for one in vectors:
        if one.bound is None:
            return None
        most = max(most, one.bound)
    return most


# --- from and to Arrow ---


def of_array(array: pa.Array, text: Callable[[pa.Array], Vector] | None) -> Vector:
    """An Arrow array as a vector; `text` makes one of texts."""
    typ = array.type
    if pa.types.is_string(typ) and text is not None:
        return text(array)
    made = _values(array, typ)
    if made is None:
        return Vector(Kind.OTHER, array)
    if array.null_count:
        made.nulls = array.is_null().to_numpy(zero_copy_only=False)
        # What stands in the place of a NULL may be anything.
        made.values = np.where(made.nulls, made.values.dtype.type(0), made.values)
    return made


def _values(array: pa.Array, typ: pa.DataType) -> Vector | None:
    """The values of an Arrow array of a type that is known here; None for another."""
    if pa.types.is_decimal128(typ):
        return None if typ.scale < 0 else Vector(Kind.DECIMAL, _digits(array), size=typ.scale)
    if pa.types.is_boolean(typ):
        filled = array.fill_null(False) if array.null_count else array
        return Vector(Kind.BOOLEAN, filled.to_numpy(zero_copy_only=False))
    known = _PLAIN.get(typ)
    if known is None:
        return None
    kind, size, dtype = known
    data = array.buffers()[1]
    if data is None:
        return Vector(kind, np.zeros(len(array), np.int64), size=size)
    values = np.frombuffer(data, dtype)[array.offset : array.offset + len(array)]
    return Vector(kind, values.astype(np.int64, copy=False), size=size)


_PLAIN: dict[pa.DataType, tuple[Kind, int, type[np.generic]]] = {
    pa.int16(): (Kind.INTEGER, 16, np.int16),
    pa.int32(): (Kind.INTEGER, 32, np.int32),
    pa.int64(): (Kind.INTEGER, 64, np.int64),
    pa.date32(): (Kind.DATE, 32, np.int32),
    pa.timestamp("us"): (Kind.TIMESTAMP, 64, np.int64),
}


def _digits(array: pa.Array) -> npt.NDArray[Any]:
    words = words_of(array, nulls=True)
    if words is None:
        return np.zeros(len(array), np.int64)
    low, high = words
    made: npt.NDArray[Any] = low
    if not (low >> 63 == high).all():
        made = high.astype(object) * (1 << 64) + low.view(np.uint64).astype(object)
    return made


def to_array(vector: Vector, typ: pa.DataType, texts: pa.Array | None) -> pa.Array:
    """A vector as an Arrow array of a type; `texts` is the dictionary of texts.

    Raises:
        Unsupported: it is not of that type.
    """
    if vector.kind is Kind.OTHER:
        if vector.values.type != typ:
            raise Unsupported
        return vector.values
    if vector.nulls is not None and vector.nulls.all():
        return pa.nulls(len(vector), typ)
    if vector.kind is Kind.TEXT and pa.types.is_string(typ):
        assert texts is not None
        places = pa.array(vector.values, mask=vector.nulls)
        return texts.take(places)
    if pa.types.is_decimal128(typ) and vector.kind in NUMBERS:
        return _decimals(vector, typ)
    if _PLAIN.get(typ, (None,))[0] is vector.kind:
        return pa.array(_plain(vector, typ), mask=vector.nulls).view(typ)
    if pa.types.is_boolean(typ) and vector.kind is Kind.BOOLEAN:
        return pa.array(vector.values, mask=vector.nulls)
    raise Unsupported


def _plain(vector: Vector, typ: pa.DataType) -> npt.NDArray[Any]:
    _, size, dtype = _PLAIN[typ]
    values = vector.of_words()
    if size == 64:
        return values
    if vector.most >> (size - 1) and largest(vector) >> (size - 1):
        raise Unsupported
    return values.astype(dtype)


def _decimals(vector: Vector, typ: pa.DataType) -> pa.Array:
    own = vector.size if vector.kind is Kind.DECIMAL else 0
    if own > typ.scale:
        raise Unsupported
    vector = scaled(vector, typ.scale)
    if vector.most >= 10**typ.precision and largest(vector) >= 10**typ.precision:
        raise Unsupported
    halves = np.empty((len(vector), 2), np.int64)
    values = vector.values
    if values.dtype == object:
        if vector.nulls is not None:
            values = np.where(vector.nulls, 0, values)
        halves[:, 0] = (values & ((1 << 64) - 1)).astype(np.uint64).view(np.int64)
        halves[:, 1] = (values >> 64).astype(np.int64)
    else:
        halves[:, 0] = values
        halves[:, 1] = values >> 63
    valid = None
    if vector.nulls is not None:
        valid = pa.py_buffer(np.packbits(~vector.nulls, bitorder="little"))
    return pa.Array.from_buffers(typ, len(vector), [valid, pa.py_buffer(halves)])
