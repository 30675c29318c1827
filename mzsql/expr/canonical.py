"""The canonical order of scalar expressions, for predicates and for the operands of commutative functions.

Promise: a total order that depends on the expressions alone, so that plans with the same meaning come out alike.
Columns come before literals, and literals before calls with one, two and more arguments; functions have Materialize's
order. A predicate that can fail never moves in front of one that stood before it, which may drop the row.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from typing import Any

from mzsql.expr import functions
from mzsql.expr.memo import memo
from mzsql.expr.scalar import Call, Column, If, Literal, LiteralError, Scalar, Unmaterializable
from mzsql.repr.datum import Datum, Row
from mzsql.repr.types import ColumnType

#: A sort key; any two are comparable.
Rank = tuple[Any, ...]

_UNARY = ("not", "is_null", "is_true", "is_false")
_BINARY = (
    *("+", "&", "|", "#", "<<", ">>", "-", "*", "/", "%", "round"),
    *("=", "<>", "<", "<=", ">", ">="),
    *("to_char", "date_bin", "date_part", "date_trunc", "timezone", "||"),
    *("->", "->>", "#>", "#>>", "?", "@>", "?&", "?|"),
    *("convert_from", "left", "position", "right", "repeat", "normalize"),
    *("btrim", "ltrim", "rtrim", "array_length", "array_lower", "array_remove", "array_upper"),
    *("digest", "encode", "decode", "log", "power", "get_bit", "get_byte"),
)
_VARIADIC = ("coalesce", "greatest", "least", "concat", "and", "or")
_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_UNARY_RANK = {name: number for number, name in enumerate(_UNARY)}
_BINARY_RANK = {name: number for number, name in enumerate(_BINARY)}
_VARIADIC_RANK = {name: number for number, name in enumerate(_VARIADIC)}
#: With a literal pattern these count as functions of one argument, as in Materialize.
_MATCHES = frozenset({"~~", "!~~", "~~*", "!~~*", "~", "!~", "~*", "!~*", "like", "ilike"})
_LAST = 1000
#: More digits than any number has, so that nothing rounds.
_DIGITS = Context(prec=1000)


def rank(expr: Scalar) -> Rank:
    """The sort key of an expression in the canonical order."""
    if type(expr) is Column:
        return (0, expr.index)
    known: dict[Scalar, Rank] = memo("rank")
    found = known.get(expr)
    if found is None:
        found = known[expr] = _ranked(expr)
    return found


#: Functions whose two arguments may change places.
_SYMMETRIC = ("eq_", "not_eq_")


def in_rank(call: Call) -> Call:
    """A comparison whose two sides may change places, its lower ranked one first; another function's call as it is."""
    if call.func.startswith(_SYMMETRIC):
        left, right = call.args
        if rank(right) < rank(left):
            return Call(call.func, (right, left), call.typ)
    return call


def _ranked(expr: Scalar) -> Rank:
    match expr:
        case Column(index=index):
            return (0, index)
        case Literal(value=value, typ=typ):
            return (1, row_order((value,), (typ.kind,)), typ.kind)
        case LiteralError(message=message):
            return (1, (_LAST, b""), message)
        case Unmaterializable(func=func):
            return (2, func)
        case If():
            return (6, rank(expr.condition), rank(expr.then), rank(expr.otherwise))
        case Call(func=func, args=args):
            name, kind = _kind(expr)
            ranks = tuple(rank(arg) for arg in args)
            if kind == 3 and len(args) == 2:
                # The literal pattern counts as part of the function.
                ranks = (ranks[0], (1, (0, str(getattr(args[1], "value", "")).encode()), ""))
            if kind == 3:
                return (3, _UNARY_RANK.get(name, _LAST), func, *reversed(ranks))
            table = _BINARY_RANK if kind == 4 else _VARIADIC_RANK
            return (kind, table.get(name, _LAST), "" if name in _COMPARISONS else func, *ranks)


def _kind(call: Call) -> tuple[str, int]:
    """The function's name, and 3, 4 or 5 for one, two, or any other number of arguments."""
    # Looked up at call time: the table of functions is built by modules that import this package.
    name = functions.scalar(call.func).name
    count = len(call.args)
    if count == 1 and name not in _VARIADIC_RANK:
        return name, 3
    if count == 2 and name not in _VARIADIC_RANK:
        pattern = name in _MATCHES and isinstance(call.args[1], Literal)
        return name, 3 if pattern else 4
    return name, 5


def cost(expr: Scalar) -> int:
    """An estimate of the work of an expression: the number of its nodes without literals."""
    total = 0
    stack = [expr]
    while stack:
        node = stack.pop()
        match node:
            case Literal() | LiteralError():
                continue
            case Call(args=args):
                stack.extend(args)
            case If():
                stack.extend((node.condition, node.then, node.otherwise))
            case _:
                pass
        total += 1
    return total


def by_cost(expr: Scalar) -> Rank:
    """The sort key that puts cheap predicates first."""
    return (cost(expr), rank(expr))


def ordered(
    predicates: Iterable[Scalar],
    key: Callable[[Scalar], Rank],
    can_fail: Callable[[Scalar], bool],
) -> list[Scalar]:
    """Predicates sorted by ``key``, except that one that can fail stays behind all that stood before it, which may drop
    the row.

    Idempotent.
    """
    preds = list(predicates)
    if len(preds) < 2:
        return preds
    failing = [can_fail(pred) for pred in preds]
    heap = [(key(pred), i) for i, pred in enumerate(preds) if not failing[i]]
    heapq.heapify(heap)
    done = [False] * len(preds)
    result: list[Scalar] = []
    first = 0
    while len(result) < len(preds):
        while done[first]:
            first += 1
        if failing[first]:
            heapq.heappush(heap, (key(preds[first]), first))
            failing[first] = False
        _, chosen = heapq.heappop(heap)
        done[chosen] = True
        result.append(preds[chosen])
    return result


_LIKES = frozenset({"like", "ilike", "like_char", "ilike_char"})


def can_fail(call: Call) -> bool:
    """Whether a call can fail although its arguments do not. A LIKE fails for its pattern only, so a literal pattern
    decides.
    """
    # Looked up at call time: the table of functions is built by modules that import this package.
    if call.func in _LIKES and isinstance(pattern := call.args[1], Literal):
        text = pattern.value
        return isinstance(text, str) and (len(text) - len(text.rstrip("\\"))) % 2 == 1
    return functions.scalar(call.func).may_error


def row_order(row: Row, kinds: Sequence[str]) -> tuple[int, bytes]:
    """The sort key of a row as Materialize stores it: short rows first, then byte by byte.

    Args:
        row: the datums.
        kinds: the kinds of their types.
    """
    stored = b"".join(
        _numeric(value) if kind == "numeric" and isinstance(value, str) else _stored(value)
        for value, kind in zip(row, kinds, strict=True)
    )
    return len(stored), stored


def as_stored(
    rows: Sequence[tuple[Row, int]], columns: Sequence[ColumnType]
) -> list[tuple[Row, int]]:
    """Rows with their multiplicities, sorted by `row_order`."""
    kinds = [column.type.kind for column in columns]
    return sorted(rows, key=lambda entry: row_order(entry[0], kinds))


def _numeric(text: str) -> bytes:
    """The stored form of a numeric: number of digits, exponent, sign, then the digits in threes, least significant
    first, without redundant zeros.
    """
    number = Decimal(text)
    if not number.is_finite():
        return b"\x60" + text.encode()
    sign, digits, exponent = number.normalize(_DIGITS).as_tuple()
    assert isinstance(exponent, int)
    stored = bytes((0x60, min(len(digits), 0xFF), exponent & 0xFF, 0x80 if sign else 0))
    written = "".join(map(str, digits))
    for end in range(len(written), 0, -3):
        stored += int(written[max(end - 3, 0) : end]).to_bytes(2, "little")
    return stored


def _stored(value: Datum) -> bytes:
    """The stored form of a value: a tag for its kind and size, then as few bytes as it takes."""
    match value:
        case None:
            return b"\x00"
        case bool():
            return b"\x02" if value else b"\x01"
        case int():
            size = (value if value >= 0 else ~value).bit_length() + 7 >> 3
            tag = (0x10 if value >= 0 else 0x40) + min(size, 0x2F)
            low = value & ((1 << 8 * size) - 1)
            return bytes((tag,)) + low.to_bytes(size, "little")
        case float():
            return b"\x80" + struct.pack("<d", value)
        case _:
            text = (value if isinstance(value, str) else repr(value)).encode()
            return bytes((0x90 + min(len(text) >> 8, 1), len(text) & 0xFF)) + text
