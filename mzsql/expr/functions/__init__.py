"""The table of functions: every scalar function, operator, cast, aggregate and table function, each declared once.

Promise: a function is looked up by its key (which plans hold) or by its SQL name (among whose overloads the frontend
resolves), both in constant time. Each row contains its spellings for the engines (`mzsql.expr.functions.table`).

A function of a unit of time has the unit in its key, since the unit is a literal: ``extract_year``, ``date_part_hour``,
``date_trunc_month``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import TypeVar

from mzsql.expr.functions import comparison, compatibility, rows_from
from mzsql.expr.functions import table_functions as tables
from mzsql.expr.functions.aggregate import aggregates, windows
from mzsql.expr.functions.aggregate.aggregates import ordered_key
from mzsql.expr.functions.cast import casts
from mzsql.expr.functions.cast.casts import find_cast
from mzsql.expr.functions.comparison import ANY
from mzsql.expr.functions.container import array_filling, containers, records
from mzsql.expr.functions.json import jsonb
from mzsql.expr.functions.number import (
    arithmetic,
    bits,
    integers,
    mathematics,
    numeric,
    trigonometry,
)
from mzsql.expr.functions.table import (
    AggregateFunc,
    Engine,
    ErrorRule,
    ScalarFunc,
    Sql,
    TableFunc,
)
from mzsql.expr.functions.text import (
    byte_strings,
    charsets,
    encodings,
    hashes,
    identifiers,
    normal_forms,
    number_formats,
    regex_places,
    regexes,
    string_functions,
)
from mzsql.expr.functions.text import table_functions as text_tables
from mzsql.expr.functions.time import (
    datediff,
    iso8601,
    operators,
    timestamps,
    to_char,
    zone_offsets,
)
from mzsql.expr.functions.time.operators import UNITS
from mzsql.expr.functions.unmaterializable import UNMATERIALIZABLE
from mzsql.expr.functions.zeros import with_one_zero
from mzsql.repr.errors import alike, nearest

__all__ = [
    "ANY",
    "UNITS",
    "UNMATERIALIZABLE",
    "AggregateFunc",
    "Engine",
    "ErrorRule",
    "ScalarFunc",
    "Sql",
    "TableFunc",
    "aggregate",
    "aggregates_named",
    "all_aggregates",
    "all_scalars",
    "all_table_funcs",
    "find_cast",
    "function_like",
    "ordered_key",
    "scalar",
    "scalars_named",
    "table_func",
    "table_funcs_named",
]

_Func = TypeVar("_Func", ScalarFunc, AggregateFunc, TableFunc)

_SCALAR_MODULES: tuple[ModuleType, ...] = (
    arithmetic,
    numeric,
    comparison,
    casts,
    string_functions,
    byte_strings,
    mathematics,
    operators,
    array_filling,
    bits,
    charsets,
    compatibility,
    datediff,
    encodings,
    to_char,
    hashes,
    identifiers,
    iso8601,
    timestamps,
    normal_forms,
    number_formats,
    regex_places,
    regexes,
    trigonometry,
    integers,
    zone_offsets,
    records,
    containers,
    jsonb,
    windows,
)


def _by_key(rows: Iterable[_Func]) -> dict[str, _Func]:
    table: dict[str, _Func] = {}
    for row in rows:
        assert row.key not in table, f"two functions have the key {row.key}"
        table[row.key] = row
    return table


def _by_name(rows: Iterable[_Func]) -> dict[str, tuple[_Func, ...]]:
    table: dict[str, list[_Func]] = {}
    for row in rows:
        table.setdefault(row.name, []).append(row)
    return {name: tuple(many) for name, many in table.items()}


_SCALARS: tuple[ScalarFunc, ...] = tuple(
    # Casts normalize zeros in their own rows, because casts of containers are built from those.
    func if func.name == "cast" else with_one_zero(func)
    for module in _SCALAR_MODULES
    for func in module.FUNCTIONS
)
_SCALAR_KEYS, _SCALAR_NAMES = _by_key(_SCALARS), _by_name(_SCALARS)
_AGGREGATE_KEYS = _by_key(aggregates.FUNCTIONS)
_AGGREGATE_NAMES = _by_name(aggregates.FUNCTIONS)
_TABLE_KEYS, _TABLE_NAMES = _by_key(tables.FUNCTIONS), _by_name(tables.FUNCTIONS)


def scalar(key: str) -> ScalarFunc:
    """The scalar function with this key.

    Raises:
        KeyError: there is none, which is a bug, since keys come from the table.
    """
    found = _SCALAR_KEYS.get(key)
    return records.getter(key) if found is None else found


def scalars_named(name: str) -> tuple[ScalarFunc, ...]:
    """The overloads of a SQL name in lower case, or of an operator (``+``, ``<>``, ``~~``, ``||``); ``()`` if there are
    none.
    """
    return _SCALAR_NAMES.get(name, ())


def function_like(name: str) -> str | None:
    """A hint that names the function most similar to an unknown name."""
    return alike(name, _names())


def nearest_function(name: str) -> str | None:
    """The name of a function that is most similar to another one; None where none is similar."""
    return nearest(name, _names())


def _names() -> Iterator[str]:
    """The names of all functions, without those of operators."""
    known = (_SCALAR_NAMES, _AGGREGATE_NAMES, _TABLE_NAMES)
    return (one for names in known for one in names if one.isidentifier())


def all_scalars() -> tuple[ScalarFunc, ...]:
    """All scalar functions."""
    return _SCALARS


def aggregate(key: str) -> AggregateFunc:
    """The aggregate with this key, including ordered ones (`ordered_key`) and window functions.

    Raises:
        KeyError: there is none.
    """
    found = _AGGREGATE_KEYS.get(key) or aggregates.ordered(key) or windows.aggregate(key, aggregate)
    if found is None:
        raise KeyError(key)
    return found


def aggregates_named(name: str) -> tuple[AggregateFunc, ...]:
    """The overloads of an aggregate's SQL name; ``()`` if there are none."""
    return _AGGREGATE_NAMES.get(name, ())


def all_aggregates() -> tuple[AggregateFunc, ...]:
    """All declared aggregates."""
    return aggregates.FUNCTIONS


def table_func(key: str) -> TableFunc:
    """The table function with this key, including several side by side (`rows_from.key`).

    Raises:
        KeyError: there is none.
    """
    found = _TABLE_KEYS.get(key) or text_tables.made(key)
    return rows_from.combined(key, table_func) if found is None else found


def table_funcs_named(name: str) -> tuple[TableFunc, ...]:
    """The overloads of a table function's SQL name; ``()`` if there are none."""
    return _TABLE_NAMES.get(name, ())


def all_table_funcs() -> tuple[TableFunc, ...]:
    """All declared table functions."""
    return tables.FUNCTIONS
