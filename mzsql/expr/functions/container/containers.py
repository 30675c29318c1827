"""The table rows of arrays, lists, maps, records and ranges: construction, search, concatenation, comparison.

Promise: subscripts count from 1, and those out of range give NULL (or an empty slice), never an error. Elements compare
as values: NULL equals NULL and is greatest. A missing bound of a range is not a NULL element.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions.comparison import ANY, OPERATORS, nested
from mzsql.expr.functions.container import array_parts, array_shapes, maps, ranges
from mzsql.expr.functions.container import reading as container_reading
from mzsql.expr.functions.container import sequences as q
from mzsql.expr.functions.container.casts import CASTS
from mzsql.expr.functions.container.polymorphic import ARRAY, ELEMENT, LIST, MAP, RANGE, RECORD
from mzsql.expr.functions.declare import Ast, duckdb_only
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Sql
from mzsql.repr.types import BIGINT, BOOLEAN, INTEGER, TEXT, SqlType


def _first(args: Sequence[SqlType]) -> SqlType:
    """The first argument's type, with the user-given name of any argument's equal type."""
    alike = (
        arg for arg in args[1:] if arg.custom_id is not None and arg.element == args[0].element
    )
    return args[0] if args[0].custom_id is not None else next(alike, args[0])


def _second(args: Sequence[SqlType]) -> SqlType:
    return args[1]


def _element(args: Sequence[SqlType]) -> SqlType:
    return args[0].element or TEXT


# --- constructors --------------------------------------------------------------------------------


def _constructor(kind: str) -> ScalarFunc:
    def result(args: Sequence[SqlType]) -> SqlType:
        return SqlType(kind, element=args[0])

    errors = (array_shapes.EVEN,) if kind == "array" else ()
    return ScalarFunc(
        kind, kind, (), result, array_shapes.items, strict=False, variadic=ANY, errors=errors
    )


# --- comparisons ---------------------------------------------------------------------------------


def _comparison(op: str, param: SqlType) -> ScalarFunc:
    symbol, negation, _ = OPERATORS[op]
    kind = param.kind

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        ordered = op not in ("eq", "not_eq")
        if engine is Engine.SPARK and (kind == "map" or (ordered and kind != "range")):
            raise duckdb_only(f"the comparison of {kind}s by {symbol}")
        return nested(op, engine, args[0].ast, args[1].ast)

    return ScalarFunc(
        key=f"{op}_{kind}",
        name="<>" if symbol == "!=" else symbol,
        args=(param, param),
        result=BOOLEAN,
        value=value,
        explain=f"({{0}} {symbol} {{1}})",
        negation=f"{negation}_{kind}",
    )


def _of_arrays() -> list[ScalarFunc]:
    return [
        _constructor("array"),
        ScalarFunc(
            "array_get", "array_get", (ARRAY, BIGINT), _element, q.get, introduces_nulls=True
        ),
        ScalarFunc("array_slice", "array_slice", (ARRAY,), _first, q.slice_of, variadic=BIGINT),
        ScalarFunc(
            "array_length", "array_length", (ARRAY, BIGINT), INTEGER, q.upper, introduces_nulls=True
        ),
        ScalarFunc(
            "array_upper", "array_upper", (ARRAY, BIGINT), INTEGER, q.upper, introduces_nulls=True
        ),
        ScalarFunc(
            "array_lower", "array_lower", (ARRAY, BIGINT), INTEGER, q.lower, introduces_nulls=True
        ),
        ScalarFunc("cardinality_array", "cardinality", (ARRAY,), INTEGER, array_shapes.leaves),
        ScalarFunc(
            "array_accumulated",
            "array_accumulated",
            (ARRAY,),
            _first,
            array_shapes.accumulated,
            errors=array_shapes.ACCUMULATED,
        ),
        ScalarFunc(
            "array_concat",
            "||",
            (ARRAY, ARRAY),
            _first,
            q.concat,
            explain="({0} || {1})",
            strict=False,
            introduces_nulls=True,
            errors=(array_shapes.JOINABLE,),
        ),
        ScalarFunc(
            "array_cat",
            "array_cat",
            (ARRAY, ARRAY),
            _first,
            q.concat,
            strict=False,
            introduces_nulls=True,
            errors=(array_shapes.JOINABLE,),
        ),
        ScalarFunc(
            "array_append",
            "array_append",
            (ARRAY, ELEMENT),
            _first,
            q.append,
            strict=False,
            errors=(array_shapes.ELEMENT_JOINABLE,),
        ),
        ScalarFunc(
            "array_prepend",
            "array_prepend",
            (ELEMENT, ARRAY),
            _second,
            q.prepend,
            strict=False,
            errors=(array_shapes.ELEMENT_JOINABLE,),
        ),
        ScalarFunc(
            "array_concat_element",
            "||",
            (ARRAY, ELEMENT),
            _first,
            q.append,
            explain="({0} || {1})",
            strict=False,
            errors=(array_shapes.ELEMENT_JOINABLE,),
        ),
        ScalarFunc(
            "element_concat_array",
            "||",
            (ELEMENT, ARRAY),
            _second,
            q.prepend,
            explain="({0} || {1})",
            strict=False,
            errors=(array_shapes.ELEMENT_JOINABLE,),
        ),
        ScalarFunc(
            "array_contains_array", "@>", (ARRAY, ARRAY), BOOLEAN, q.has_all, explain="({0} @> {1})"
        ),
        ScalarFunc(
            "array_contained_array", "<@", (ARRAY, ARRAY), BOOLEAN, q.within, explain="({0} <@ {1})"
        ),
        ScalarFunc(
            "array_overlap", "&&", (ARRAY, ARRAY), BOOLEAN, q.overlap, explain="({0} && {1})"
        ),
        ScalarFunc(
            "array_remove",
            "array_remove",
            (ARRAY, ELEMENT),
            _first,
            q.remove,
            strict=False,
            introduces_nulls=True,
            errors=(array_shapes.flat_only("removing elements from"),),
        ),
        ScalarFunc(
            "array_position",
            "array_position",
            (ARRAY, ELEMENT),
            INTEGER,
            q.position,
            strict=False,
            introduces_nulls=True,
            errors=(array_shapes.flat_only("searching for elements in"),),
        ),
        ScalarFunc(
            "array_position_from",
            "array_position",
            (ARRAY, ELEMENT, INTEGER),
            INTEGER,
            q.position,
            strict=False,
            introduces_nulls=True,
            errors=(
                array_shapes.flat_only("searching for elements in"),
                array_shapes.STARTED,
            ),
        ),
        ScalarFunc(
            "array_to_string",
            "array_to_string",
            (ARRAY, TEXT),
            TEXT,
            q.to_string,
            introduces_nulls=True,
            errors=(q.WRITTEN,),
        ),
        ScalarFunc(
            "array_to_string_null",
            "array_to_string",
            (ARRAY, TEXT, TEXT),
            TEXT,
            q.to_string,
            strict=False,
            introduces_nulls=True,
            errors=(q.WRITTEN,),
        ),
    ]


def _of_lists() -> list[ScalarFunc]:
    deep = ErrorRule(q.too_deep, q.too_deep_message)
    return [
        _constructor("list"),
        ScalarFunc("list_get", "list_get", (LIST, BIGINT), _element, q.get, introduces_nulls=True),
        ScalarFunc("list_slice", "list_slice", (LIST,), _first, q.slice_of, variadic=BIGINT),
        ScalarFunc("list_length", "list_length", (LIST,), INTEGER, q.length),
        ScalarFunc(
            "list_length_max",
            "list_length_max",
            (LIST, BIGINT),
            INTEGER,
            q.longest,
            errors=(deep,),
            introduces_nulls=True,
        ),
        ScalarFunc("list_n_layers", "list_n_layers", (LIST,), INTEGER, q.layers),
        ScalarFunc("list_ndims", "list_ndims", (LIST,), INTEGER, q.layers),
        ScalarFunc(
            "list_concat",
            "||",
            (LIST, LIST),
            _first,
            q.concat,
            explain="({0} || {1})",
            strict=False,
            introduces_nulls=True,
        ),
        ScalarFunc(
            "list_cat",
            "list_cat",
            (LIST, LIST),
            _first,
            q.concat,
            strict=False,
            introduces_nulls=True,
        ),
        ScalarFunc("list_append", "list_append", (LIST, ELEMENT), _first, q.append, strict=False),
        ScalarFunc(
            "list_prepend", "list_prepend", (ELEMENT, LIST), _second, q.prepend, strict=False
        ),
        ScalarFunc(
            "list_concat_element",
            "||",
            (LIST, ELEMENT),
            _first,
            q.append,
            explain="({0} || {1})",
            strict=False,
        ),
        ScalarFunc(
            "element_concat_list",
            "||",
            (ELEMENT, LIST),
            _second,
            q.prepend,
            explain="({0} || {1})",
            strict=False,
        ),
        ScalarFunc(
            "list_contains_list", "@>", (LIST, LIST), BOOLEAN, q.has_all, explain="({0} @> {1})"
        ),
        ScalarFunc(
            "list_contained_list", "<@", (LIST, LIST), BOOLEAN, q.within, explain="({0} <@ {1})"
        ),
        ScalarFunc(
            "list_remove",
            "list_remove",
            (LIST, ELEMENT),
            _first,
            q.remove,
            strict=False,
            introduces_nulls=True,
        ),
    ]


FUNCTIONS: tuple[ScalarFunc, ...] = (
    *_of_arrays(),
    *_of_lists(),
    *maps.FUNCTIONS,
    *ranges.FUNCTIONS,
    *array_shapes.FUNCTIONS,
    *array_parts.FUNCTIONS,
    *container_reading.FUNCTIONS,
    *(_comparison(op, param) for op in OPERATORS for param in (ARRAY, LIST, MAP, RECORD, RANGE)),
    *CASTS,
)
