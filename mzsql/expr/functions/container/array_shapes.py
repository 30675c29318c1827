"""Arrays of several dimensions, and arrays made from texts.

Promise: an array is rectangular: one built or joined from arrays of different lengths is an error, as in Materialize, and so is one
accumulated from them, as in PostgreSQL; empty ones make only an empty one. Functions without meaning for several dimensions are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, duckdb_only
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.repr.types import TEXT, SqlType


def size(array: Ast, engine: Engine) -> Ast:
    """The number of elements."""
    return s.integer(s.size(array, engine))


def _leaves(array: Ast, typ: SqlType, engine: Engine) -> Ast:
    """The number of elements in all dimensions."""
    inner = typ.element
    while inner is not None and inner.kind == "array":
        array, inner = s.call("FLATTEN", array), inner.element
    return s.coalesce(size(array, engine), s.num(0))


def leaves(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The number of elements in all dimensions of a non-NULL array."""
    (array,) = args
    return s.case((s.is_not_null(array.ast), _leaves(array.ast, array.typ, engine)))


def _of_arrays(args: Sequence[SqlType], _typ: SqlType) -> bool:
    return bool(args) and args[0].kind == "array"


def _of_several(args: Sequence[SqlType], _typ: SqlType) -> bool:
    return any(arg.kind == "array" and _inside(arg) for arg in args)


def _inside(typ: SqlType) -> bool:
    return typ.element is not None and typ.element.kind == "array"


# --- constructors --------------------------------------------------------------------------------


def items(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The array or list of these elements; an array of empty arrays is empty, a list of them is not."""
    made = s.cast(s.array(*(arg.ast for arg in args)), typ, engine)
    if typ.kind != "array" or not args or args[0].typ.kind != "array":
        return made
    nothing = s.cast(s.array(), typ, engine)
    hollow = s.eq(_leaves(args[0].ast, args[0].typ, engine), s.num(0))
    return s.case((hollow, nothing), otherwise=made)


def _total(args: Sequence[Sql], engine: Engine) -> Ast:
    total = _leaves(args[0].ast, args[0].typ, engine)
    for arg in args[1:]:
        total = s.add(total, _leaves(arg.ast, arg.typ, engine))
    return total


def _declared(args: Sequence[Sql], engine: Engine) -> Ast:
    return s.mul(s.num(len(args)), _leaves(args[0].ast, args[0].typ, engine))


def _uneven(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    first = s.coalesce(size(args[0].ast, engine), s.num(0))
    unlike = [s.neq(s.coalesce(size(arg.ast, engine), s.num(0)), first) for arg in args[1:]]
    return s.or_(s.neq(_total(args, engine), _declared(args, engine)), *unlike)


def _uneven_message(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.concat(
        s.text("number of array elements ("),
        s.string(_total(args, engine)),
        s.text(") does not match declared cardinality ("),
        s.string(_declared(args, engine)),
        s.text(")"),
    )


#: The error for arrays of different lengths as elements.
EVEN = ErrorRule(_uneven, _uneven_message, _of_arrays)


# --- accumulating ---------------------------------------------------------------------------------


def accumulated(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The array itself; what `array_agg` has made of arrays goes through this for its errors."""
    return args[0].ast


def _any_item(condition: Callable[[Ast, Ast, Engine, SqlType], Ast]) -> Spelling:
    """Whether any element of the array fails; `condition` is given it, and the first one."""

    def failing(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        (array,) = args
        assert array.typ.element is not None
        first = _first(array.ast, engine)
        fails = condition(s.variable("aa0"), first, engine, array.typ.element)
        return s.gt(size(s.kept(array.ast, "aa0", fails, engine), engine), s.num(0))

    return failing


def _first(array: Ast, engine: Engine) -> Ast:
    return s.call("TRY_ELEMENT_AT" if engine is Engine.SPARK else "LIST_EXTRACT", array, s.num(1))


def _unlike(item: Ast, first: Ast, engine: Engine, typ: SqlType) -> Ast:
    """Whether two arrays have other lengths in any dimension."""
    differs = s.neq(size(item, engine), size(first, engine))
    inner = typ.element
    if inner is None or inner.kind != "array":
        return differs
    deeper = _unlike(_first(item, engine), _first(first, engine), engine, inner)
    return s.or_(differs, deeper)


#: The errors of `array_agg` over arrays, as in PostgreSQL.
ACCUMULATED = (
    ErrorRule(
        _any_item(lambda item, _first, _engine, _typ: s.is_null(item)),
        "cannot accumulate null arrays",
    ),
    ErrorRule(
        _any_item(lambda item, _first, engine, _typ: s.eq(size(item, engine), s.num(0))),
        "cannot accumulate empty arrays",
    ),
    ErrorRule(_any_item(_unlike), "cannot accumulate arrays of different dimensionality"),
)


# --- joining and searching -----------------------------------------------------------------------


def _incompatible(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """Whether arrays to be joined contain arrays of different lengths; an empty one fits any."""
    firsts = [_first_size(arg, engine) for arg in args]
    return s.neq(firsts[0], firsts[1])


def _first_size(arg: Sql, engine: Engine) -> Ast:
    return size(_first(arg.ast, engine), engine)


JOINABLE = ErrorRule(
    _incompatible,
    "cannot concatenate incompatible arrays",
    lambda args, _typ: all(_inside(arg) for arg in args),
)


def _element_fits(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """Whether an array as a new element, which an empty one is not, has another length than the existing ones."""
    (whole,) = (arg for arg in args if _inside(arg.typ))
    (one,) = (arg for arg in args if not _inside(arg.typ))
    length = size(one.ast, engine)
    return s.and_(s.gt(length, s.num(0)), s.neq(_first_size(whole, engine), length))


#: For an array of two dimensions and one of one.
ELEMENT_JOINABLE = ErrorRule(
    _element_fits,
    "cannot concatenate incompatible arrays",
    lambda args, _typ: (
        sum(_inside(arg) for arg in args) == 1 and all(arg.kind == "array" for arg in args)
    ),
)


def flat_only(what: str) -> ErrorRule:
    """The error ``<what> multidimensional arrays is not supported``."""
    return ErrorRule(
        lambda _engine, args, _typ: s.is_not_null(args[0].ast),
        f"{what} multidimensional arrays is not supported",
        _of_several,
    )


def _no_start(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.and_(s.is_not_null(args[0].ast), s.is_null(args[2].ast))


#: The error for a search from an unknown position.
STARTED = ErrorRule(_no_start, "initial position must not be null")


# --- of texts ------------------------------------------------------------------------------------


def _split(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The pieces between separators: NULL splits into characters, an empty separator nothing; a piece equal to the
    third argument is NULL.
    """
    if engine is Engine.SPARK:
        raise duckdb_only("string_to_array")
    text, separator = args[0].ast, args[1].ast
    parts = s.case(
        (s.eq(text, s.text("")), s.cast(s.array(), typ, engine)),
        (s.is_null(separator), s.call("STRING_SPLIT", text, s.text(""))),
        (s.eq(separator, s.text("")), s.array(text)),
        (s.is_not_null(text), s.call("STRING_SPLIT", text, separator)),
    )
    if len(args) < 3:
        return parts
    null = s.nullif(s.variable("sa0"), args[2].ast)
    return s.call("LIST_TRANSFORM", parts, s.lambda_(("sa0",), null))


FUNCTIONS: tuple[ScalarFunc, ...] = tuple(
    ScalarFunc(
        key=key,
        name="string_to_array",
        args=args,
        result=SqlType("array", element=TEXT),
        value=_split,
        strict=False,
        introduces_nulls=True,
    )
    for key, args in (
        ("string_to_array", (TEXT, TEXT)),
        ("string_to_array_null", (TEXT, TEXT, TEXT)),
    )
)
