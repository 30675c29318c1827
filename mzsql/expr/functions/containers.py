"""Arrays, lists and maps: constructors, subscripts, and what searches and joins them.

Promise: subscripts count from 1, and what lies outside is NULL (a slice outside is empty), never an error. A map's entries lie in the
order of their keys, each key once, the last value given for it. Elements compare as values: NULL equals NULL and is the greatest.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.comparison import ANY, OPERATORS
from mzsql.expr.functions.container_casts import CASTS, duckdb_only
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.polymorphic import ARRAY, ELEMENT, LIST, LISTS, MAP, RECORD
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.repr.types import BIGINT, BOOLEAN, INTEGER, TEXT, SqlType

_TEXTS = SqlType("array", element=TEXT)
_TEXT_LIST = SqlType("list", element=TEXT)


def same(spark: str, duckdb: str) -> Spelling:
    """A function that both engines have under names of their own."""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        return s.call(spark if engine is Engine.SPARK else duckdb, *(arg.ast for arg in args))

    return value


def _first(args: Sequence[SqlType]) -> SqlType:
    return args[0]


def _second(args: Sequence[SqlType]) -> SqlType:
    return args[1]


def _element(args: Sequence[SqlType]) -> SqlType:
    return args[0].element or TEXT


# --- constructors --------------------------------------------------------------------------------


def _items(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    return s.cast(s.array(*(arg.ast for arg in args)), typ, engine)


def _constructor(kind: str) -> ScalarFunc:
    def result(args: Sequence[SqlType]) -> SqlType:
        return SqlType(kind, element=args[0])

    return ScalarFunc(kind, kind, (), result, _items, strict=False, variadic=ANY)


def _map(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """Of keys and values by turns: those with a key, the last one of equal keys."""
    keys, values = args[::2], args[1::2]
    assert typ.element is not None
    entries = [
        s.struct(key=key.ast, value=s.cast(value.ast, typ.element, engine))
        for key, value in zip(keys, values, strict=True)
    ]
    return map_of_entries(s.array(*entries), typ, engine)


def map_of_entries(entries: Ast, typ: SqlType, engine: Engine) -> Ast:
    """A map of an array of structs (key, value); a later one counts."""
    if engine is Engine.SPARK:
        raise duckdb_only("maps")
    e, f, k = s.variable("me0"), s.variable("me1"), s.variable("mk0")
    present = s.call("LIST_FILTER", entries, s.lambda_(("me0",), s.is_not_null(s.field(e, "key"))))
    keys = s.call(
        "LIST_SORT",
        s.call(
            "LIST_DISTINCT",
            s.call("LIST_TRANSFORM", present, s.lambda_(("me0",), s.field(e, "key"))),
        ),
    )
    named = s.call("LIST_FILTER", present, s.lambda_(("me1",), s.eq(s.field(f, "key"), k)))
    last = s.field(s.call("LIST_EXTRACT", named, s.num(-1)), "value")
    values = s.call("LIST_TRANSFORM", keys, s.lambda_(("mk0",), last))
    empty = s.call("MAP")
    made = s.case((s.gt(s.call("LEN", keys), s.num(0)), s.call("MAP", keys, values)))
    return s.coalesce(s.cast(made, typ, engine), s.cast(empty, typ, engine))


def _map_type(args: Sequence[SqlType]) -> SqlType:
    return SqlType("map", element=args[1] if len(args) > 1 else TEXT)


# --- subscripts ----------------------------------------------------------------------------------


def at(array: Ast, index: Ast, engine: Engine) -> Ast:
    """The element at a position from 1 on; NULL outside."""
    name = "TRY_ELEMENT_AT" if engine is Engine.SPARK else "LIST_EXTRACT"
    return s.case((s.gte(index, s.num(1)), s.call(name, array, s.integer(_bounded(index)))))


def _bounded(index: Ast) -> Ast:
    return s.at_most(index, s.num(2**31 - 1))


def _get(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return at(args[0].ast, args[1].ast, engine)


def _slice(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    return _sliced(args[0].ast, [arg.ast for arg in args[1:]], typ, engine, 0)


def _sliced(array: Ast, bounds: list[Ast], typ: SqlType, engine: Engine, depth: int) -> Ast:
    """By pairs of bounds, from the outermost dimension inwards; without an element nothing is left."""
    low, high = s.at_least(bounds[0], s.num(1)), bounds[1]
    size = s.at_least(s.add(s.sub(_bounded(high), _bounded(low)), s.num(1)), s.num(0))
    if engine is Engine.SPARK:
        part = s.call("SLICE", array, s.integer(_bounded(low)), s.integer(size))
    else:
        cut = s.call("LIST_SLICE", array, _bounded(low), _bounded(high))
        part = s.case(
            (s.gt(size, s.num(0)), cut), (s.is_not_null(array), s.cast(s.array(), typ, engine))
        )
    if len(bounds) == 2:
        return part
    assert typ.element is not None
    name = f"sl{depth}"
    inner = _sliced(s.variable(name), bounds[2:], typ.element, engine, depth + 1)
    spark = engine is Engine.SPARK
    mapped = s.call("TRANSFORM" if spark else "LIST_TRANSFORM", part, s.lambda_((name,), inner))
    left = s.gt(s.call("SIZE" if spark else "LEN", s.variable("sf0")), s.num(0))
    kept = s.lambda_(("sf0",), s.coalesce(left, s.boolean(False)))
    return s.call("FILTER" if spark else "LIST_FILTER", mapped, kept)


# --- lengths -------------------------------------------------------------------------------------


def _size(array: Ast, engine: Engine) -> Ast:
    return s.integer(s.call("SIZE" if engine is Engine.SPARK else "LEN", array))


def _length(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return _size(args[0].ast, engine)


def _dimensions(typ: SqlType) -> int:
    count = 0
    while typ.kind in ("array", "list") and typ.element is not None:
        count, typ = count + 1, typ.element
    return count


def dimension(args: Sequence[Sql], engine: Engine) -> Ast:
    """The size of an array's n-th dimension; NULL where it has none, or is empty."""
    array, wanted = args[0].ast, args[1].ast
    branches: list[tuple[Ast, Ast]] = []
    for number in range(1, _dimensions(args[0].typ) + 1):
        branches.append((s.eq(wanted, s.num(number)), s.nullif(_size(array, engine), s.num(0))))
        array = at(array, s.num(1), engine)
    return s.case(*branches)


def _upper(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return dimension(args, engine)


def _lower(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.case((s.is_not_null(dimension(args, engine)), s.num(1)))


def _longest(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The size of the longest list in the n-th layer."""
    layers = _dimensions(args[0].typ)
    spark = engine is Engine.SPARK
    part, branches = args[0].ast, []
    for number in range(1, layers + 1):
        name = f"ll{number}"
        sizes = s.call(
            "TRANSFORM" if spark else "LIST_TRANSFORM",
            s.array(part) if number == 1 else part,
            s.lambda_((name,), _size(s.variable(name), engine)),
        )
        longest = s.call("ARRAY_MAX" if spark else "LIST_MAX", sizes)
        branches.append((s.eq(args[1].ast, s.num(number)), longest))
        if 1 < number < layers:
            part = s.call("FLATTEN", part)
    return s.integer(s.case(*branches))


def _too_deep(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    layers = _dimensions(args[0].typ)
    return s.not_(s.between(args[1].ast, s.num(1), s.num(layers)))


def _too_deep_message(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    layers = _dimensions(args[0].typ)
    lead = f"invalid layer: {layers}; must use value within [1, {layers}]"
    return s.text(lead)


# --- searching and joining -----------------------------------------------------------------------


def _concat(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """NULL joins like nothing; two of them are NULL."""
    left, right = args[0].ast, args[1].ast
    name = "CONCAT" if engine is Engine.SPARK else "LIST_CONCAT"
    joined = s.call(name, left, right)
    branches = [(s.is_null(left), right), (s.is_null(right), left)]
    return s.cast(s.case(*branches, otherwise=joined), typ, engine)


def _append(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    one = Sql(s.cast(s.array(args[1].ast), typ, engine), typ)
    return _concat(engine, [args[0], one], typ)


def _prepend(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    one = Sql(s.cast(s.array(args[0].ast), typ, engine), typ)
    return _concat(engine, [one, args[1]], typ)


def _has_all(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    if engine is Engine.SPARK:
        raise duckdb_only("the containment of arrays and lists")
    return s.call("LIST_HAS_ALL", args[0].ast, args[1].ast)


def _within(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    return _has_all(engine, [args[1], args[0]], typ)


def _overlap(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    name = "ARRAYS_OVERLAP" if engine is Engine.SPARK else "LIST_HAS_ANY"
    return s.call(name, args[0].ast, args[1].ast)


def _same_element(name: str, wanted: Ast) -> Ast:
    item = s.variable(name)
    neither = s.and_(s.is_null(item), s.is_null(wanted))
    return s.coalesce(s.or_(s.eq(item, wanted), neither), s.boolean(False))


def _remove(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    name = "FILTER" if engine is Engine.SPARK else "LIST_FILTER"
    kept = s.not_(_same_element("rm0", args[1].ast))
    return s.cast(s.call(name, args[0].ast, s.lambda_(("rm0",), kept)), typ, engine)


def _position(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The first position, from a third argument on, at which the element stands."""
    if engine is Engine.SPARK:
        raise duckdb_only("array_position")
    start = s.at_least(args[2].ast, s.num(1)) if len(args) > 2 else s.num(1)
    numbers = s.call("RANGE", s.big(start), s.add(s.big(s.call("LEN", args[0].ast)), s.num(1)))
    item, wanted = s.call("LIST_EXTRACT", args[0].ast, s.variable("ps0")), args[1].ast
    both_null = s.and_(s.is_null(item), s.is_null(wanted))
    equal = s.coalesce(s.or_(s.eq(item, wanted), both_null), s.boolean(False))
    found = s.call("LIST_FILTER", numbers, s.lambda_(("ps0",), equal))
    return s.case((s.is_not_null(args[0].ast), s.integer(s.call("LIST_EXTRACT", found, s.num(1)))))


def _to_string(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    from mzsql.expr.functions.container_casts import inner_text  # noqa: PLC0415

    spark = engine is Engine.SPARK
    array, element = args[0].ast, args[0].typ.element or TEXT
    while element.kind == "array" and element.element is not None:
        array, element = s.call("FLATTEN", array), element.element
    item = s.variable("ts0")
    shown = inner_text(item, element, engine)
    if len(args) > 2:
        shown = s.coalesce(shown, args[2].ast)
    name = "TRANSFORM" if spark else "LIST_TRANSFORM"
    texts = s.call(name, array, s.lambda_(("ts0",), shown))
    there = s.lambda_(("ts1",), s.is_not_null(s.variable("ts1")))
    present = s.call("FILTER" if spark else "LIST_FILTER", texts, there)
    joined = s.call("ARRAY_JOIN" if spark else "ARRAY_TO_STRING", present, args[1].ast)
    known = s.and_(s.is_not_null(array), s.is_not_null(args[1].ast))
    return s.case((known, s.coalesce(joined, s.text(""))))


# --- maps ----------------------------------------------------------------------------------------


def _map_get(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
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
    name = "TRANSFORM" if engine is Engine.SPARK else "LIST_TRANSFORM"
    entries = s.call(name, args[0].ast, s.lambda_(("mb0",), entry))
    return s.case((s.is_not_null(args[0].ast), map_of_entries(entries, typ, engine)))


def _map_build_type(args: Sequence[SqlType]) -> SqlType:
    pair = args[0].element
    assert pair is not None
    return SqlType("map", element=pair.fields[1][1].type)


# --- comparisons ---------------------------------------------------------------------------------


def _comparison(op: str, param: SqlType) -> ScalarFunc:
    symbol, negation, build = OPERATORS[op]
    kind = param.kind

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        if engine is Engine.SPARK and (kind == "map" or op not in ("eq", "not_eq")):
            raise duckdb_only(f"the comparison of {kind}s by {symbol}")
        return build(args[0].ast, args[1].ast)

    return ScalarFunc(
        key=f"{op}_{kind}",
        name="<>" if symbol == "!=" else symbol,
        args=(param, param),
        result=BOOLEAN,
        value=value,
        explain=f"({{0}} {symbol} {{1}})",
        negation=f"{negation}_{kind}",
    )


def _layers(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.num(_dimensions(args[0].typ))


def _of_arrays() -> list[ScalarFunc]:
    infix = {"explain": "({0} {{}} {1})"}
    del infix
    return [
        _constructor("array"),
        ScalarFunc(
            "array_get", "array_get", (ARRAY, BIGINT), _element, _get, introduces_nulls=True
        ),
        ScalarFunc("array_slice", "array_slice", (ARRAY,), _first, _slice, variadic=BIGINT),
        ScalarFunc(
            "array_length", "array_length", (ARRAY, BIGINT), INTEGER, _upper, introduces_nulls=True
        ),
        ScalarFunc(
            "array_upper", "array_upper", (ARRAY, BIGINT), INTEGER, _upper, introduces_nulls=True
        ),
        ScalarFunc(
            "array_lower", "array_lower", (ARRAY, BIGINT), INTEGER, _lower, introduces_nulls=True
        ),
        ScalarFunc("cardinality_array", "cardinality", (ARRAY,), INTEGER, _length),
        ScalarFunc(
            "array_concat",
            "||",
            (ARRAY, ARRAY),
            _first,
            _concat,
            explain="({0} || {1})",
            strict=False,
            introduces_nulls=True,
        ),
        ScalarFunc(
            "array_cat",
            "array_cat",
            (ARRAY, ARRAY),
            _first,
            _concat,
            strict=False,
            introduces_nulls=True,
        ),
        ScalarFunc("array_append", "array_append", (ARRAY, ELEMENT), _first, _append, strict=False),
        ScalarFunc(
            "array_prepend", "array_prepend", (ELEMENT, ARRAY), _second, _prepend, strict=False
        ),
        ScalarFunc(
            "array_concat_element",
            "||",
            (ARRAY, ELEMENT),
            _first,
            _append,
            explain="({0} || {1})",
            strict=False,
        ),
        ScalarFunc(
            "element_concat_array",
            "||",
            (ELEMENT, ARRAY),
            _second,
            _prepend,
            explain="({0} || {1})",
            strict=False,
        ),
        ScalarFunc(
            "array_contains_array", "@>", (ARRAY, ARRAY), BOOLEAN, _has_all, explain="({0} @> {1})"
        ),
        ScalarFunc(
            "array_contained_array", "<@", (ARRAY, ARRAY), BOOLEAN, _within, explain="({0} <@ {1})"
        ),
        ScalarFunc(
            "array_overlap", "&&", (ARRAY, ARRAY), BOOLEAN, _overlap, explain="({0} && {1})"
        ),
        ScalarFunc(
            "array_remove",
            "array_remove",
            (ARRAY, ELEMENT),
            _first,
            _remove,
            strict=False,
            introduces_nulls=True,
        ),
        ScalarFunc(
            "array_position",
            "array_position",
            (ARRAY, ELEMENT),
            INTEGER,
            _position,
            strict=False,
            introduces_nulls=True,
        ),
        ScalarFunc(
            "array_position_from",
            "array_position",
            (ARRAY, ELEMENT, INTEGER),
            INTEGER,
            _position,
            strict=False,
            introduces_nulls=True,
        ),
        ScalarFunc(
            "array_to_string",
            "array_to_string",
            (ARRAY, TEXT),
            TEXT,
            _to_string,
            introduces_nulls=True,
        ),
        ScalarFunc(
            "array_to_string_null",
            "array_to_string",
            (ARRAY, TEXT, TEXT),
            TEXT,
            _to_string,
            strict=False,
            introduces_nulls=True,
        ),
    ]


def _of_lists() -> list[ScalarFunc]:
    deep = ErrorRule(_too_deep, _too_deep_message)
    return [
        _constructor("list"),
        ScalarFunc("list_get", "list_get", (LIST, BIGINT), _element, _get, introduces_nulls=True),
        ScalarFunc("list_slice", "list_slice", (LIST,), _first, _slice, variadic=BIGINT),
        ScalarFunc("list_length", "list_length", (LIST,), INTEGER, _length),
        ScalarFunc(
            "list_length_max",
            "list_length_max",
            (LIST, BIGINT),
            INTEGER,
            _longest,
            errors=(deep,),
            introduces_nulls=True,
        ),
        ScalarFunc("list_n_layers", "list_n_layers", (LIST,), INTEGER, _layers),
        ScalarFunc("list_ndims", "list_ndims", (LIST,), INTEGER, _layers),
        ScalarFunc(
            "list_concat",
            "||",
            (LIST, LIST),
            _first,
            _concat,
            explain="({0} || {1})",
            strict=False,
            introduces_nulls=True,
        ),
        ScalarFunc(
            "list_cat",
            "list_cat",
            (LIST, LIST),
            _first,
            _concat,
            strict=False,
            introduces_nulls=True,
        ),
        ScalarFunc("list_append", "list_append", (LIST, ELEMENT), _first, _append, strict=False),
        ScalarFunc(
            "list_prepend", "list_prepend", (ELEMENT, LIST), _second, _prepend, strict=False
        ),
        ScalarFunc(
            "list_concat_element",
            "||",
            (LIST, ELEMENT),
            _first,
            _append,
            explain="({0} || {1})",
            strict=False,
        ),
        ScalarFunc(
            "element_concat_list",
            "||",
            (ELEMENT, LIST),
            _second,
            _prepend,
            explain="({0} || {1})",
            strict=False,
        ),
        ScalarFunc(
            "list_contains_list", "@>", (LIST, LIST), BOOLEAN, _has_all, explain="({0} @> {1})"
        ),
        ScalarFunc(
            "list_contained_list", "<@", (LIST, LIST), BOOLEAN, _within, explain="({0} <@ {1})"
        ),
        ScalarFunc(
            "list_remove",
            "list_remove",
            (LIST, ELEMENT),
            _first,
            _remove,
            strict=False,
            introduces_nulls=True,
        ),
    ]


def _of_maps() -> list[ScalarFunc]:
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
            _map_get,
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


FUNCTIONS: tuple[ScalarFunc, ...] = (
    *_of_arrays(),
    *_of_lists(),
    *_of_maps(),
    *(_comparison(op, param) for op in OPERATORS for param in (ARRAY, LIST, MAP, RECORD)),
    *CASTS,
)
__all__ = ["FUNCTIONS", "LISTS", "at", "dimension", "map_of_entries", "same"]
