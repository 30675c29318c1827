"""Functions of arrays and lists: subscripts, slices, lengths, search, concatenation.

Promise: subscripts count from 1, and those out of range give NULL (or an empty slice), never an error. Elements compare
as values: NULL equals NULL. The dimensions of an array, and the layers of a list, are its type's.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.container.array_shapes import size
from mzsql.expr.functions.declare import Ast, duckdb_only
from mzsql.expr.functions.output.containers import inner_text
from mzsql.expr.functions.output.to_text import to_text
from mzsql.expr.functions.table import Engine, ErrorRule, Sql
from mzsql.expr.functions.text import sizes
from mzsql.repr.types import TEXT, SqlType

# --- subscripts ----------------------------------------------------------------------------------


def at(array: Ast, index: Ast, engine: Engine) -> Ast:
    """The element at a position from 1; NULL out of range."""
    name = "TRY_ELEMENT_AT" if engine is Engine.SPARK else "LIST_EXTRACT"
    return s.case((s.gte(index, s.num(1)), s.call(name, array, s.integer(_bounded(index)))))


def _bounded(index: Ast) -> Ast:
    return s.at_most(index, s.num(2**31 - 1))


def get(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The element at a subscript."""
    return at(args[0].ast, args[1].ast, engine)


def slice_of(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The elements between bounds."""
    return _sliced(args[0].ast, [arg.ast for arg in args[1:]], typ, engine, 0)


def _sliced(array: Ast, bounds: list[Ast], typ: SqlType, engine: Engine, depth: int) -> Ast:
    """Slices by pairs of bounds, from the outermost dimension inwards; an empty dimension leaves nothing."""
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
    mapped = s.mapped(part, name, inner, engine)
    left = s.gt(s.size(s.variable("sf0"), engine), s.num(0))
    return s.kept(mapped, "sf0", s.coalesce(left, s.boolean(False)), engine)


# --- lengths -------------------------------------------------------------------------------------


def length(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The number of elements."""
    return size(args[0].ast, engine)


def dimensions(typ: SqlType) -> int:
    """The number of nested arrays or lists in a type."""
    count = 0
    while typ.kind in ("array", "list") and typ.element is not None:
        count, typ = count + 1, typ.element
    return count


def dimension(args: Sequence[Sql], engine: Engine) -> Ast:
    """The size of an array's n-th dimension; NULL if it does not exist or is empty."""
    array, wanted = args[0].ast, args[1].ast
    branches: list[tuple[Ast, Ast]] = []
    for number in range(1, dimensions(args[0].typ) + 1):
        branches.append((s.eq(wanted, s.num(number)), s.nullif(size(array, engine), s.num(0))))
        array = at(array, s.num(1), engine)
    return s.case(*branches)


def upper(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The last subscript of an array's n-th dimension."""
    return dimension(args, engine)


def lower(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The first subscript of an array's n-th dimension."""
    return s.case((s.is_not_null(dimension(args, engine)), s.num(1)))


def longest(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The size of the longest list in the n-th layer."""
    layers = dimensions(args[0].typ)
    spark = engine is Engine.SPARK
    part, branches = args[0].ast, []
    for number in range(1, layers + 1):
        name = f"ll{number}"
        lists = s.array(part) if number == 1 else part
        sizes = s.mapped(lists, name, size(s.variable(name), engine), engine)
        longest = s.call("ARRAY_MAX" if spark else "LIST_MAX", sizes)
        branches.append((s.eq(args[1].ast, s.num(number)), longest))
        if 1 < number < layers:
            part = s.call("FLATTEN", part)
    return s.integer(s.case(*branches))


def too_deep(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """Whether a list lacks the layer."""
    layers = dimensions(args[0].typ)
    return s.not_(s.between(args[1].ast, s.num(1), s.num(layers)))


def too_deep_message(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The message of `too_deep`."""
    layers = dimensions(args[0].typ)
    tail = s.text(f"; must use value within [1, {layers}]")
    return s.concat(s.text("invalid layer: "), s.string(args[1].ast), tail)


# --- searching and joining -----------------------------------------------------------------------


def concat(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """Concatenation, in which NULL counts as empty; NULL if both are."""
    left, right = args[0].ast, args[1].ast
    name = "CONCAT" if engine is Engine.SPARK else "LIST_CONCAT"
    joined = s.call(name, left, right)
    branches = [(s.is_null(left), right), (s.is_null(right), left)]
    return s.cast(s.case(*branches, otherwise=joined), typ, engine)


def append(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The array or list with an element appended."""
    return concat(engine, [args[0], _alone(args[1], typ, engine)], typ)


def prepend(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The array or list with an element prepended."""
    return concat(engine, [_alone(args[0], typ, engine), args[1]], typ)


def _alone(element: Sql, typ: SqlType, engine: Engine) -> Sql:
    """The array or list of one element; an array that is NULL or empty is none of another array, as in PostgreSQL."""
    one = s.cast(s.array(element.ast), typ, engine)
    if typ.kind == element.typ.kind == "array":
        return Sql(s.case((s.gt(size(element.ast, engine), s.num(0)), one)), typ)
    return Sql(one, typ)


def has_all(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """Whether the first contains all elements of the second; NULL elements equal nothing, so are never contained.

    Raises:
        Unsupported: a spelling for Spark was asked for; there is none, so no dataflow maintains it.
    """
    if engine is Engine.SPARK:
        raise duckdb_only("the containment of arrays and lists")
    whole, part = args[0].ast, args[1].ast
    known = s.eq(s.call("LEN", part), s.call("LIST_COUNT", part))
    return s.case((s.is_not_null(whole), s.and_(s.call("LIST_HAS_ALL", whole, part), known)))


def within(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """Whether the second contains all elements of the first."""
    return has_all(engine, [args[1], args[0]], typ)


def overlap(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """Whether both have a common element."""
    name = "ARRAYS_OVERLAP" if engine is Engine.SPARK else "LIST_HAS_ANY"
    return s.call(name, args[0].ast, args[1].ast)


def same_element(item: Ast, wanted: Ast) -> Ast:
    """Whether an element equals a value, with NULL equal to NULL."""
    neither = s.and_(s.is_null(item), s.is_null(wanted))
    return s.coalesce(s.or_(s.eq(item, wanted), neither), s.boolean(False))


def remove(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The array or list without the elements equal to a value."""
    other = s.not_(same_element(s.variable("rm0"), args[1].ast))
    return s.cast(s.kept(args[0].ast, "rm0", other, engine), typ, engine)


def position(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The first position of an element, from the third argument on.

    Raises:
        Unsupported: a spelling for Spark was asked for; there is none, so no dataflow maintains it.
    """
    if engine is Engine.SPARK:
        raise duckdb_only("array_position")
    start = s.at_least(args[2].ast, s.num(1)) if len(args) > 2 else s.num(1)
    numbers = s.call("RANGE", s.big(start), s.add(s.big(s.call("LEN", args[0].ast)), s.num(1)))
    equal = same_element(s.call("LIST_EXTRACT", args[0].ast, s.variable("ps0")), args[1].ast)
    found = s.call("LIST_FILTER", numbers, s.lambda_(("ps0",), equal))
    return s.case((s.is_not_null(args[0].ast), s.integer(s.call("LIST_EXTRACT", found, s.num(1)))))


def to_string(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The texts of the elements, with a separator in between."""
    array, element = _leaves(args[0])
    if not all(map(sizes.is_short, args[1:])):
        # NULL where the result would be too large, which is a separate error, so that no giant text is built.
        array = s.case((s.not_(sizes.too_large(_written_size(engine, args, typ))), array))
    item = s.variable("ts0")
    shown = inner_text(item, element, engine, to_text)
    if len(args) > 2:
        shown = s.coalesce(shown, args[2].ast)
    texts = s.mapped(array, "ts0", shown, engine)
    present = s.kept(texts, "ts1", s.is_not_null(s.variable("ts1")), engine)
    joined = _joined(present, args[1].ast, engine)
    known = s.and_(s.is_not_null(array), s.is_not_null(args[1].ast))
    return s.case((known, s.coalesce(joined, s.text(""))))


def _leaves(arg: Sql) -> tuple[Ast, SqlType]:
    """The elements of an array through all dimensions, or of a list, and their type."""
    array, element = arg.ast, arg.typ.element or TEXT
    while element.kind == "array" and element.element is not None:
        array, element = s.call("FLATTEN", array), element.element
    return array, element


def _written_size(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The bytes that `to_string` writes besides the elements: separators, and texts for NULL."""
    array, _ = _leaves(args[0])
    spark = engine is Engine.SPARK
    length, filtered = ("SIZE", "FILTER") if spark else ("LEN", "LIST_FILTER")
    size = s.mul(s.big(s.call(length, array)), sizes.octets(args[1].ast, engine))
    if len(args) > 2:
        missing = s.lambda_(("ts3",), s.is_null(s.variable("ts3")))
        count = s.big(s.call(length, s.call(filtered, array, missing)))
        nulls = s.coalesce(sizes.octets(args[2].ast, engine), s.big(s.num(0)))
        size = s.add(size, s.mul(count, nulls))
    return size


def _is_written_too_often(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    if all(map(sizes.is_short, args[1:])):
        return s.boolean(False)
    return sizes.too_large(_written_size(engine, args, typ))


#: The error of `to_string`: elements have their own limits, but separators and texts for NULL may be long and frequent.
WRITTEN = ErrorRule(_is_written_too_often, sizes.TOO_LARGE)


def _joined(texts: Ast, separator: Ast, engine: Engine) -> Ast:
    """For DuckDB, which joins by constant separators only, each text is prefixed with the separator, and the first
    prefix removed.
    """
    if engine is Engine.SPARK:
        return s.call("ARRAY_JOIN", texts, separator)
    behind = s.lambda_(("ts2",), s.concat(separator, s.variable("ts2")))
    joined = s.call("ARRAY_TO_STRING", s.call("LIST_TRANSFORM", texts, behind), s.text(""))
    return s.call("SUBSTRING", joined, s.add(s.call("LENGTH", separator), s.num(1)))


def layers(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The number of layers of a list."""
    return s.num(dimensions(args[0].typ))
