"""Every overload of every function, aggregate, window function and operator, with its OID.

Promise: each callable name is listed once for each list of argument types; functions that only plans use (casts,
subscripts, markers) are not. An OID is PostgreSQL's where PostgreSQL has the function, else derived from name and
arguments, so it does not change when functions are added.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mzsql.expr import functions
from mzsql.expr.functions.aggregate.windows import WINDOW_FUNCTIONS
from mzsql.expr.functions.table import ScalarFunc
from mzsql.frontend.scalar import qualified
from mzsql.frontend.scalar.aggregates import DESUGARED
from mzsql.frontend.scalar.system_functions import DEFINITIONS
from mzsql.repr import types as t
from mzsql.repr.function_oids import function_oid
from mzsql.repr.type_oids import type_oid
from mzsql.repr.types import SqlType

#: OIDs of functions start here, above those of builtin relations and types; and the size of their range.
_FIRST_FUNCTION, _NUMBERS = 1_000_000_000, 1_000_000_000
#: Names that only plans use, and those with a syntax of their own.
_INTERNAL = qualified.PLANS_ONLY | {
    *("all", "any", "array", "array_fill", "cast", "coalesce", "greatest"),
    *("least", "list", "map", "mz_setting", "row"),
}
#: ``date_part_year`` and the like: in a call, the unit is an argument.
_OF_UNIT = re.compile("(?:extract|date_part|date_trunc)_(?:" + "|".join(functions.UNITS) + ")")
_NAME = re.compile("[a-z_][a-z0-9_]*")

_NUMBER = (t.NUMERIC, t.DOUBLE)
_NUMBERS_IN = (t.SMALLINT, t.INTEGER, t.BIGINT, t.UINT2, t.UINT4, t.UINT8, t.REAL, *_NUMBER)
_ANY = SqlType("any")
_RANKS = {
    **dict.fromkeys(("row_number", "rank", "dense_rank", "ntile"), t.BIGINT),
    **dict.fromkeys(("percent_rank", "cume_dist"), t.DOUBLE),
}
_MOMENTS = ("current_timestamp", "session_user", "current_user")
#: Aggregates over sequences: the table of functions only knows the row that they read, so their arguments are listed
#: here.
_ORDERED: dict[str, tuple[tuple[SqlType, ...], SqlType]] = {
    "array_agg": ((_ANY,), SqlType("array", element=_ANY)),
    "jsonb_agg": ((_ANY,), t.JSONB),
    "jsonb_object_agg": ((_ANY, _ANY), t.JSONB),
    "list_agg": ((_ANY,), SqlType("list", element=_ANY)),
    "map_agg": ((t.TEXT, _ANY), SqlType("map", element=_ANY)),
    "string_agg": ((t.TEXT, t.TEXT), t.TEXT),
}


@dataclass(frozen=True)
class Overload:
    """One overload; `kind` is ``f`` for a function, ``a`` for an aggregate, ``w`` for a window function."""

    name: str
    args: tuple[SqlType, ...]
    variadic: SqlType | None
    result: SqlType | None
    returns_set: bool = False
    kind: str = "f"


def _plain(typ: SqlType) -> SqlType:
    """A type without scale and length, which are not part of a function's signature."""
    return SqlType("numeric") if typ.kind == "numeric" else typ


def _result(func: ScalarFunc) -> SqlType:
    if func.name == "map_build":
        return SqlType("map", element=_ANY)
    variadic = () if func.variadic is None else (func.variadic,)
    return _plain(func.result_type((*func.args, *variadic)))


def _scalars() -> Iterator[Overload]:
    for func in functions.all_scalars():
        named = _NAME.fullmatch(func.name) is not None
        if named and func.name not in _INTERNAL and not _OF_UNIT.fullmatch(func.name):
            yield Overload(func.name, func.args, func.variadic, _result(func))
    for name, typ in functions.UNMATERIALIZABLE.items():
        if name not in _MOMENTS:
            yield Overload(name, (), None, typ)
    for name, several in DEFINITIONS.items():
        for one in several:
            yield Overload(name, one.args, None, one.result)
    ints, element = SqlType("array", element=t.INTEGER), SqlType("anyelement")
    for bounds in ((), (ints,)):
        yield Overload(
            "array_fill", (element, ints, *bounds), None, SqlType("array", element=element)
        )
    yield Overload("pg_typeof", (_ANY,), None, t.TEXT)
    yield Overload("mz_row_size", (_ANY,), None, t.INTEGER)
    yield Overload("pg_column_size", (_ANY,), None, t.INTEGER)


def _aggregates() -> Iterator[Overload]:
    for func in functions.all_aggregates():
        if func.name not in _INTERNAL and func.name not in _ORDERED:
            result = _plain(func.result_type(func.args))
            yield Overload(func.name, func.args, None, result, kind="a")
    for name, (args, result) in _ORDERED.items():
        yield Overload(name, args, None, result, kind="a")
    for typ in _NUMBERS_IN:
        exact = t.DOUBLE if typ in (t.REAL, t.DOUBLE) else t.NUMERIC
        for name in DESUGARED:
            yield Overload(name, (typ,), None, exact, kind="a")
    for name in sorted(WINDOW_FUNCTIONS):
        typed = _RANKS.get(name)
        args = () if typed is not None else (SqlType("anyelement"),)
        yield Overload(name, args, None, typed or SqlType("anyelement"), kind="w")


def _tables() -> Iterator[Overload]:
    for func in functions.all_table_funcs():
        columns = func.output_type(func.args).columns
        result = _plain(columns[0].type) if len(columns) == 1 else SqlType("record")
        yield Overload(func.name, func.args, None, result, returns_set=True)


@functools.cache
def overloads() -> tuple[Overload, ...]:
    """Every overload that is no operator, one for each name and list of argument types."""
    found: dict[tuple[str, tuple[int, ...]], Overload] = {}
    for one in (*_scalars(), *_aggregates(), *_tables()):
        found.setdefault((one.name, tuple(map(type_oid, one.args))), one)
    return tuple(found[key] for key in sorted(found))


@functools.cache
def operators() -> tuple[Overload, ...]:
    """Every operator with its operand types; a prefix operator has one."""
    found = (f for f in functions.all_scalars() if _NAME.fullmatch(f.name) is None)
    return tuple(Overload(f.name, f.args, None, _result(f)) for f in found)


def numbered(several: Sequence[Overload]) -> Iterator[tuple[int, Overload]]:
    """Each overload with its OID."""
    taken: set[int] = set()
    for one in several:
        spelled = f"{one.name}({','.join(str(type_oid(arg)) for arg in one.args)})"
        number = _FIRST_FUNCTION + zlib.crc32(spelled.encode()) % _NUMBERS
        while number in taken:
            number += 1
        taken.add(number)
        yield number, one


@functools.cache
def function_names() -> tuple[str, ...]:
    """The names of all that can be called."""
    return tuple(dict.fromkeys(one.name for _, one in function_numbers()))


@functools.cache
def function_numbers() -> tuple[tuple[int, Overload], ...]:
    """Every overload that is no operator, with the OID by which clients know it."""
    return tuple(
        (function_oid(one.name, list(map(type_oid, one.args)), number), one)
        for number, one in numbered(overloads())
    )
