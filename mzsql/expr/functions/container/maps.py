"""Maps from texts to values.

Promise: a map's entries are in the order of keys, each key once with its last value. A missing key gives NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.comparison import ANY
from mzsql.expr.functions.container.polymorphic import MAP, RECORD
from mzsql.expr.functions.declare import Ast, duckdb_only
from mzsql.expr.functions.entries import last_of_each
from mzsql.expr.functions.table import Engine, ScalarFunc, Spelling, Sql
from mzsql.repr.types import BOOLEAN, INTEGER, TEXT, SqlType

_TEXTS = SqlType("array", element=TEXT)


def _element(args: Sequence[SqlType]) -> SqlType:
    return args[0].element or TEXT


def _map(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The map of alternating keys and values, without NULL keys; the last of equal keys counts."""
    keys, values = args[::2], args[1::2]
    assert typ.element is not None
    entries = [
        s.struct(key=key.ast, value=s.cast(value.ast, typ.element, engine))
        for key, value in zip(keys, values, strict=True)
    ]
    return map_of_entries(s.array(*entries), typ, engine)


def map_of_entries(entries: Ast, typ: SqlType, engine: Engine) -> Ast:
    """The map of an array of structs (key, value); the last of equal keys counts.

    Raises:
        Unsupported: a spelling for Spark was asked for; there is none, so no dataflow maintains it.
    """
    if engine is Engine.SPARK:
        raise duckdb_only("maps")

    def each(name: str) -> Ast:
        taken = s.lambda_(("mk0",), s.field(s.variable("mk0"), name))
        return s.call("LIST_TRANSFORM", s.variable("me0"), taken)

    empty = s.call("MAP")
    there = s.gt(s.call("LEN", s.variable("me0")), s.num(0))
    made = s.case((there, s.call("MAP", each("key"), each("value"))))
    made = s.let(last_of_each(entries, "m"), "me0", made, engine)
    return s.coalesce(s.cast(made, typ, engine), s.cast(empty, typ, engine))


def _map_type(args: Sequence[SqlType]) -> SqlType:
    return SqlType("map", element=args[1] if len(args) > 1 else TEXT)


def map_get(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The value under a key; NULL if it is missing."""
    if engine is Engine.SPARK:
        return s.call("TRY_ELEMENT_AT", args[0].ast, args[1].ast)
    return s.call("MAP_EXTRACT_VALUE", args[0].ast, args[1].ast)


def _map_keys(map_: Ast) -> Ast:
    return s.call("MAP_KEYS", map_)


def _has_key(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    name = "ARRAY_CONTAINS" if engine is Engine.SPARK else "LIST_CONTAINS"
    return s.call(name, _map_keys(args[0].ast), args[1].ast)


def _has_keys(spark: str, duckdb: str) -> Spelling:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        if engine is Engine.SPARK:
            raise duckdb_only(f"the keys of maps ({spark})")
        return s.call(duckdb, _map_keys(args[0].ast), args[1].ast)

    return value


def _map_contains(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    if engine is Engine.SPARK:
        raise duckdb_only("the containment of maps")
    whole, part = (s.call("MAP_ENTRIES", arg.ast) for arg in args)
    return s.call("LIST_HAS_ALL", whole, part)


def _map_within(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    return _map_contains(engine, [args[1], args[0]], typ)


def _map_length(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.integer(s.call("SIZE" if engine is Engine.SPARK else "CARDINALITY", args[0].ast))


def _map_build(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    pair = s.variable("mb0")
    entry = s.struct(key=s.field(pair, "f1"), value=s.field(pair, "f2"))
    entries = s.mapped(args[0].ast, "mb0", entry, engine)
    return s.case((s.is_not_null(args[0].ast), map_of_entries(entries, typ, engine)))


def _map_build_type(args: Sequence[SqlType]) -> SqlType:
    pair = args[0].element
    assert pair is not None
    return SqlType("map", element=pair.fields[1][1].type)


def _functions() -> list[ScalarFunc]:
    any_keys = _has_keys("?|", "LIST_HAS_ANY")
    all_keys = _has_keys("?&", "LIST_HAS_ALL")
    pairs = SqlType("list", element=RECORD)
    return [
        ScalarFunc("map", "map", (), _map_type, _map, strict=False, variadic=ANY),
        ScalarFunc(
            "map_get",
            "->",
            (MAP, TEXT),
            _element,
            map_get,
            explain="({0} -> {1})",
            introduces_nulls=True,
        ),
        ScalarFunc("map_contains_key", "?", (MAP, TEXT), BOOLEAN, _has_key, explain="({0} ? {1})"),
        ScalarFunc(
            "map_contains_any_keys", "?|", (MAP, _TEXTS), BOOLEAN, any_keys, explain="({0} ?| {1})"
        ),
        ScalarFunc(
            "map_contains_all_keys", "?&", (MAP, _TEXTS), BOOLEAN, all_keys, explain="({0} ?& {1})"
        ),
        ScalarFunc(
            "map_contains_map", "@>", (MAP, MAP), BOOLEAN, _map_contains, explain="({0} @> {1})"
        ),
        ScalarFunc(
            "map_contained_map", "<@", (MAP, MAP), BOOLEAN, _map_within, explain="({0} <@ {1})"
        ),
        ScalarFunc("map_length", "map_length", (MAP,), INTEGER, _map_length),
        ScalarFunc(
            "map_build", "map_build", (pairs,), _map_build_type, _map_build, introduces_nulls=True
        ),
    ]


FUNCTIONS: tuple[ScalarFunc, ...] = tuple(_functions())
