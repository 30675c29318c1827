"""Types of expressions: literals without a type, casts, overloads.

Promise: PostgreSQL's rules. A literal in quotes and NULL have type ``unknown`` until something decides; among a function's overloads
the one with most exact matches wins, then the one with most preferred types, then what the categories of the unknowns say
(PostgreSQL, "Type Conversion"). The table of functions (`mzsql.expr.functions`) says what there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mzsql.expr import functions
from mzsql.expr.decimal_functions import out_of_range
from mzsql.expr.functions.numeric import common_numeric
from mzsql.expr.functions.polymorphic import bind, common, is_polymorphic
from mzsql.expr.scalar import Literal
from mzsql.frontend import container_literals, hir
from mzsql.frontend.constant_texts import datum_of_text, nested_datum
from mzsql.frontend.placeholders import decided
from mzsql.repr.decimals import numeric_text, parsed
from mzsql.repr.errors import (
    DataError,
    DatatypeMismatch,
    UndefinedFunction,
    UndefinedObject,
    Unsupported,
)
from mzsql.repr.jsonb import canonical
from mzsql.repr.types import (
    BOOLEAN,
    DEFAULT_NUMERIC_SCALE,
    NUMERIC,
    TEXT,
    UNKNOWN,
    SqlType,
    type_name,
)

_CATEGORIES = {
    "boolean": "boolean",
    **dict.fromkeys(
        (
            "smallint",
            "integer",
            "bigint",
            "uint2",
            "uint4",
            "uint8",
            "real",
            "double",
            "numeric",
        ),
        "number",
    ),
    **dict.fromkeys(("text", "varchar", "char"), "string"),
    **dict.fromkeys(("date", "time", "timestamp", "timestamptz"), "datetime"),
    "interval": "timespan",
}
_PREFERRED = frozenset({"boolean", "double", "text", "timestamptz", "interval"})
_MODIFIED = frozenset({"numeric", "varchar", "char", "timestamp", "timestamptz"})
_CONTAINERS = frozenset({"array", "list", "map", "record"})
_INTEGER_BOUNDS = {"smallint": 15, "integer": 31, "bigint": 63}


@dataclass(frozen=True)
class Typed:
    """A scalar with its type, and whether it can be NULL."""

    expr: hir.Scalar
    typ: SqlType
    nullable: bool = True


def plain_name(typ: SqlType) -> str:
    """A type without its modifiers: what an overload is called by."""
    return type_name(SqlType(typ.kind)) if typ.kind in _MODIFIED else type_name(typ)


def category(typ: SqlType) -> str:
    """PostgreSQL's category of a type."""
    return _CATEGORIES.get(typ.kind, typ.kind)


def numeric_literal(text: str) -> Typed:
    """A number as written: integer, bigint or numeric, whichever holds it."""
    if text.isdigit():
        value = int(text)
        for kind in ("integer", "bigint"):
            if value < 2 ** _INTEGER_BOUNDS[kind]:
                return Typed(Literal(value, SqlType(kind)), SqlType(kind), False)
    return exact_numeric(text)


def exact_numeric(text: str, sign: str = "") -> Typed:
    """A numeric literal with as many digits behind the point as written.

    Raises:
        ValueError: the text is no number.
        DataError: it has more digits than a numeric.
    """
    try:
        number = parsed(f"{sign}{text}")
    except OverflowError:
        raise DataError(out_of_range(f"{sign}{text.upper()}"), sqlstate="22003") from None
    if number is None:
        raise ValueError(text)
    if number.is_nan():
        return Typed(Literal("NaN", NUMERIC), NUMERIC, False)
    scale = max(0, -int(number.as_tuple().exponent))
    typ = SqlType("numeric", scale=scale)
    return Typed(Literal(numeric_text(number), typ), typ, False)


def call(key: str, args: Sequence[Typed], typ: SqlType | None = None) -> Typed:
    """The function `key` applied; its arguments are of its types already."""
    func = functions.scalar(key)
    result = func.result_type([a.typ for a in args]) if typ is None else typ
    nullable = func.introduces_nulls or any(a.nullable for a in args)
    if not func.strict:
        nullable = _nullable_unstrict(key, args, func.introduces_nulls)
    return Typed(hir.Call(key, tuple(a.expr for a in args), result), result, nullable)


def _nullable_unstrict(key: str, args: Sequence[Typed], introduces: bool) -> bool:
    if key in ("coalesce", "greatest", "least"):
        return all(a.nullable for a in args)
    if key in ("and", "or"):
        return any(a.nullable for a in args)
    return introduces


# --- casts ---------------------------------------------------------------------------------------


def can_cast(source: SqlType, target: SqlType, context: str) -> bool:
    """Whether there is a cast in this context."""
    return source.kind == "unknown" or functions.find_cast(source, target, context) is not None


def cast(value: Typed, target: SqlType, context: str) -> Typed | None:
    """`value` as `target`; None where there is no such cast in `context`."""
    if value.typ.kind == "unknown":
        return _from_unknown(value, target, context)
    if value.typ.kind == target.kind == "array":
        target = _of_dimensions(target, _dimensions(value.typ))
    if category(value.typ) == "string" and target.element is not None and context == "explicit":
        constant = _read_text(value, target)
        if constant is not None:
            return constant
    keys = functions.find_cast(value.typ, target, context)
    if keys is None:
        return None
    if target.kind == value.typ.kind == "numeric" and not keys:
        return _as_numeric(value, target, context)
    plain = _wider_literal(value, target)
    if plain is not None:
        return plain
    # An explicit modifier says what the type is; without one, a numeric keeps the scale that it has.
    typ = value.typ
    out = value
    for i, key in enumerate(keys):
        func = functions.scalar(key)
        last = i == len(keys) - 1
        wanted = last and not (target.kind == "numeric" and target.scale is None)
        typ = target if wanted else func.result_type([out.typ])
        out = call(key, [out], typ)
    return out


def _as_numeric(value: Typed, target: SqlType, context: str) -> Typed:
    """A numeric as a numeric of another declaration where the table of casts asks for nothing.

    What is stored without a scale keeps the digits that a column has; what was computed is brought to the scale that a cast declares,
    since a constant may have more digits than its type says.
    """
    finer = value.typ.effective_scale > DEFAULT_NUMERIC_SCALE
    if context == "assignment" and target.scale is None and finer:
        return call("numeric_to_numeric", [value], target)
    computed = isinstance(value.expr, hir.Call) and functions.scalar(value.expr.func).name != "cast"
    if context == "explicit" and target.scale is not None and computed:
        return call("numeric_to_numeric", [value], target)
    return value


def _dimensions(typ: SqlType) -> int:
    count = 0
    while typ.kind == "array" and typ.element is not None:
        count, typ = count + 1, typ.element
    return count


def _of_dimensions(array: SqlType, count: int) -> SqlType:
    """An array's type with so many dimensions, which are no part of the type that a statement writes."""
    typ = array
    while typ.kind == "array" and typ.element is not None:
        typ = typ.element
    for _ in range(count):
        typ = SqlType("array", element=typ)
    return typ


def _read_text(value: Typed, target: SqlType) -> Typed | None:
    """A constant text as an array, list, map or range, read while the statement is planned; None where the cast is to decide."""
    if not isinstance(value.expr, Literal):
        return None
    if target.kind == "range" and value.expr.value is not None:
        datum = datum_of_text(str(value.expr.value), target)
        return None if datum is None else Typed(Literal(datum, target), target, False)
    if value.expr.value is None:
        return Typed(Literal(None, target), target, True)
    return read_container(str(value.expr.value), target)


def read_container(text: str, target: SqlType) -> Typed:
    """The array, list, map or record that a text spells; its elements are read as texts of their type.

    Raises:
        DataError: ``invalid input syntax for type array: …``.
    """
    if target.kind == "array":
        target = _of_dimensions(target, container_literals.dimensions(text))
    parsed = container_literals.parse(text, target)
    datum = nested_datum(parsed, target) if parsed else None
    if datum is not None:
        return Typed(Literal(datum, target), target, False)
    if parsed and functions.find_cast(TEXT, target, "explicit") and _leaf(target).kind != "text":
        # What an element's reader says is told of the whole text.
        return call(f"text_to_{target.kind}", [Typed(Literal(text, TEXT), TEXT, False)], target)

    def element(item: Any, typ: SqlType) -> Typed:
        if item is None:
            return Typed(Literal(None, typ), typ, True)
        if isinstance(item, str):
            done = cast(Typed(Literal(item, UNKNOWN), UNKNOWN, False), typ, "explicit")
            if done is None:
                raise Unsupported(f"reading {type_name(typ)} from a text is not supported")
            return done
        return built(item, typ)

    def built(items: Any, typ: SqlType) -> Typed:
        inner = typ.element
        assert inner is not None
        if typ.kind == "map":
            values = [element(item, inner) for item in items.values()]
            keys = [Typed(Literal(key, TEXT), TEXT, False) for key in items]
            pairs = [part for pair in zip(keys, values, strict=True) for part in pair]
            return empty(typ) if not pairs else call("map", pairs, typ)
        made = [element(item, inner) for item in items]
        return empty(typ) if not made else call(typ.kind, made, typ)

    return built(parsed, target)


def _leaf(typ: SqlType) -> SqlType:
    """What lies inside of all arrays, lists and maps."""
    while typ.kind in ("array", "list", "map") and typ.element is not None:
        typ = typ.element
    return typ


def empty(typ: SqlType) -> Typed:
    """An array, list or map without elements."""
    return Typed(Literal("{}" if typ.kind == "map" else "[]", typ), typ, False)


def _wider_literal(value: Typed, target: SqlType) -> Typed | None:
    """An integer literal as a literal of another number's type, where it is exactly that."""
    if not isinstance(value.expr, Literal) or value.typ.kind not in _INTEGER_BOUNDS:
        return None
    number = value.expr.value
    if number is None:
        return None
    if target.kind in _INTEGER_BOUNDS:
        bound = 2 ** _INTEGER_BOUNDS[target.kind]
        if not -bound <= int(number) < bound:
            return None
        return Typed(Literal(number, target), target, False)
    if target.kind == "numeric" and not target.scale:
        typ = SqlType("numeric", scale=0)
        return Typed(Literal(str(number), typ), typ, False)
    return None


def _from_unknown(value: Typed, target: SqlType, context: str) -> Typed | None:
    """An untyped NULL or string becomes what is wanted, by the target's reader of text."""
    if target.kind == "unknown":
        return value
    if isinstance(value.expr, Literal):
        if value.expr.value is None:
            return Typed(Literal(None, target), target, True)
        text = str(value.expr.value)
        decided(text, target)
        simple = _literal(text, target)
        if simple is not None:
            return simple
        if target.kind in _CONTAINERS:
            return read_container(text, target)
        typed = Typed(Literal(text, TEXT), TEXT, False)
    else:
        typed = Typed(value.expr, TEXT, value.nullable)
    if target.kind == "text":
        return typed
    wider = "assignment" if context == "assignment" and target.kind in ("varchar", "char") else None
    return cast(typed, target, wider or "explicit")


def _literal(text: str, target: SqlType) -> Typed | None:
    """The typed literal that a quoted text is without any doubt; None where the cast is to decide."""
    if target.kind == "jsonb":
        return Typed(Literal(canonical(text), target), target, False)
    if target.kind == "numeric":
        if target.scale is not None:
            return None
        try:
            return exact_numeric(text)
        except (DataError, ValueError):
            return None
    return None


def require(value: Typed, target: SqlType, context: str, what: str, position: int | None) -> Typed:
    """`value` as `target`, or ``<what> must be of type …, not type …``."""
    done = cast(value, target, context)
    if done is None:
        raise DatatypeMismatch(
            f"{what} must be of type {type_name(target)}, not type {type_name(value.typ)}",
            position=position,
        )
    return done


def to_boolean(value: Typed, clause: str, position: int | None) -> Typed:
    """A condition: ``argument of WHERE must be type boolean, not type integer``, ``NOT argument must have type …``."""
    done = cast(value, BOOLEAN, "implicit")
    if done is None:
        must = "must have" if clause.endswith(" argument") else "must be"
        raise DatatypeMismatch(
            f"{clause} {must} type boolean, not type {type_name(value.typ)}", position=position
        )
    return done


def settle(value: Typed) -> Typed:
    """What is still unknown at the end is text."""
    if value.typ.kind != "unknown":
        return value
    done = _from_unknown(value, TEXT, "implicit")
    assert done is not None
    return done


def explicit(value: Typed, target: SqlType, position: int | None) -> Typed:
    """CAST(value AS target)."""
    done = cast(value, target, "explicit")
    if done is None:
        raise UndefinedObject(
            f"CAST does not support casting from {type_name(value.typ)} to {type_name(target)}",
            position=position,
            sqlstate="42846",
        )
    return done


# --- a type for several -----------------------------------------------------------------------------


def common_type(values: Sequence[Typed], what: str, position: int | None) -> SqlType:
    """The type that the branches of CASE, COALESCE, UNION or VALUES have in common.

    Raises:
        DatatypeMismatch: ``<what> types integer and text cannot be matched``.
    """
    known = [v.typ for v in values if v.typ.kind != "unknown"]
    if not known:
        return TEXT
    best = known[0]
    for typ in known[1:]:
        best = _wider(best, typ, what, position)
    if best.kind in ("varchar", "char") and len(known) < len(values):
        # An untyped string may be longer than the declared length of the others.
        return SqlType(best.kind)
    return best


def _wider(a: SqlType, b: SqlType, what: str, position: int | None) -> SqlType:
    if a == b:
        return a
    if a.kind == b.kind:
        if a.kind == "numeric":
            return common_numeric([a, b])
        if a.kind in ("varchar", "char"):
            return SqlType(a.kind)
        wider = common([a, b])
        if wider is None:
            raise DatatypeMismatch(
                f"{what} types {type_name(a)} and {type_name(b)} cannot be matched",
                position=position,
            )
        return wider
    if {a.kind, b.kind} & {"numeric"} and category(a) == category(b) == "number":
        number, other = (a, b) if a.kind == "numeric" else (b, a)
        if functions.find_cast(other, SqlType("numeric"), "implicit") is not None:
            return number
    forward = functions.find_cast(a, b, "implicit") is not None
    backward = functions.find_cast(b, a, "implicit") is not None
    if category(a) != category(b) or not (forward or backward):
        raise DatatypeMismatch(
            f"{what} types {type_name(a)} and {type_name(b)} cannot be matched", position=position
        )
    return b if forward and (not backward or b.kind in _PREFERRED) else a


def as_common(value: Typed, typ: SqlType) -> Typed | None:
    """`value` as the type that it has in common with others; a numeric gets the scale in which all of them are carried."""
    if typ.kind != "numeric":
        return cast(value, typ, "implicit")
    if isinstance(value.expr, Literal) and value.typ.kind == "numeric":
        return Typed(Literal(value.expr.value, typ), typ, value.nullable)
    done = cast(value, typ, "implicit")
    if done is None or done.typ.effective_scale == typ.effective_scale:
        return done
    if isinstance(done.expr, Literal):
        return Typed(Literal(done.expr.value, typ), typ, done.nullable)
    return call("numeric_to_numeric", [done], typ)


def _own_scales(values: Sequence[Typed]) -> Sequence[Typed]:
    """Beside numerics a quoted number has the digits that it is written with, not only those that the others have."""
    if not any(value.typ.kind == "numeric" for value in values):
        return values
    return [
        (_literal(str(value.expr.value), NUMERIC) or value)
        if value.typ.kind == "unknown"
        and isinstance(value.expr, Literal)
        and value.expr.value is not None
        else value
        for value in values
    ]


def unify(values: Sequence[Typed], what: str, position: int | None) -> tuple[list[Typed], SqlType]:
    """All values as their common type."""
    values = _own_scales(values)
    typ = common_type(values, what, position)
    done: list[Typed] = []
    for value in values:
        out = as_common(value, typ)
        if out is None:
            raise DatatypeMismatch(
                f"{what} types {type_name(typ)} and {type_name(value.typ)} cannot be matched",
                position=position,
            )
        done.append(out)
    return done, typ


def combine_types(values: Sequence[Typed], name: str, position: int | None) -> list[Typed]:
    """The sides of a merged join column, as one type."""
    return unify(values, f'NATURAL/USING join column "{name}"', position)[0]


# --- overloads -------------------------------------------------------------------------------------


def _is_any(typ: SqlType) -> bool:
    return typ.kind == "any"


def _params(func: Any, given: Sequence[SqlType]) -> tuple[SqlType, ...] | None:
    """The parameters' types for these arguments, or None where the function does not take as many, or no such element."""
    args: tuple[SqlType, ...] = func.args
    variadic: SqlType | None = getattr(func, "variadic", None)
    count = len(given)
    if len(args) == count:
        return bind(args, given)
    if variadic is not None and count >= max(len(args), 1):
        return bind((*args, *(variadic for _ in range(count - len(args)))), given)
    return None


def _fits(arg: SqlType, param: SqlType) -> bool:
    """Whether an argument may stand for a parameter."""
    if _is_any(param) or (arg.kind == param.kind and arg.kind not in (*_CONTAINERS, "range")):
        return True
    return can_cast(arg, param, "implicit")


def resolve(candidates: Sequence[Any], args: Sequence[SqlType]) -> Any | None:
    """The overload that these argument types mean; None where there is none.

    Raises:
        UndefinedFunction: several are as good (SQLSTATE 42725).
    """
    fitting = [
        (func, params)
        for func in candidates
        if (params := _params(func, args)) is not None
        and all(_fits(a, p) for a, p in zip(args, params, strict=True))
    ]
    exact = [
        f for f, params in fitting if all(_same(a, p) for a, p in zip(args, params, strict=True))
    ]
    if exact:
        return exact[0]
    fitting = _assume_same(fitting, args) or _no_container(fitting, args) or fitting
    for score in (_exact_matches, _preferred_matches):
        fitting = _best(fitting, args, score)
        if len(fitting) <= 1:
            return fitting[0][0] if fitting else None
    return _by_unknowns(fitting, args)


def _same(arg: SqlType, param: SqlType) -> bool:
    return arg.kind == param.kind or (_is_any(param) and arg.kind != "unknown")


def _assume_same(
    fitting: list[tuple[Any, tuple[SqlType, ...]]], args: Sequence[SqlType]
) -> list[tuple[Any, tuple[SqlType, ...]]]:
    """Of two arguments one unknown: first as if it had the other one's type."""
    if len(args) != 2 or sum(a.kind == "unknown" for a in args) != 1:
        return []
    known = next(a for a in args if a.kind != "unknown")
    return [
        (f, p)
        for f, p in fitting
        if all(t.kind == known.kind and t.element == known.element for t in p)
    ]


def _no_container(
    fitting: list[tuple[Any, tuple[SqlType, ...]]], args: Sequence[SqlType]
) -> list[tuple[Any, tuple[SqlType, ...]]]:
    """A literal without a type is a container only where another argument is one, or nothing else fits."""
    if any(a.kind in _CONTAINERS for a in args):
        return []
    return [(f, p) for f, p in fitting if not any(t.kind in _CONTAINERS for t in p)]


def _exact_matches(args: Sequence[SqlType], params: tuple[SqlType, ...]) -> int:
    return sum(a.kind == p.kind for a, p in zip(args, params, strict=True))


def _preferred_matches(args: Sequence[SqlType], params: tuple[SqlType, ...]) -> int:
    return sum(
        a.kind == p.kind
        or (a.kind != "unknown" and p.kind in _PREFERRED and category(a) == category(p))
        for a, p in zip(args, params, strict=True)
    )


def _best(fitting: Any, args: Sequence[SqlType], score: Any) -> Any:
    scores = [score(args, params) for _, params in fitting]
    most = max(scores, default=0)
    return [pair for pair, s in zip(fitting, scores, strict=True) if s == most]


def _by_unknowns(fitting: Any, args: Sequence[SqlType]) -> Any | None:
    for i, arg in enumerate(args):
        if arg.kind != "unknown":
            continue
        categories = {category(params[i]) for _, params in fitting}
        if "string" in categories:
            chosen = "string"
        elif len(categories) == 1:
            (chosen,) = categories
        else:
            continue
        fitting = [(f, p) for f, p in fitting if category(p[i]) == chosen]
        preferred = [(f, p) for f, p in fitting if p[i].kind in _PREFERRED]
        fitting = preferred or fitting
    known = {a.kind for a in args if a.kind != "unknown"}
    if len(fitting) > 1 and len(known) == 1:
        (kind,) = known
        fitting = [(f, p) for f, p in fitting if all(t.kind == kind for t in p)] or fitting
    if len(fitting) > 1:
        raise UndefinedFunction("ambiguous", sqlstate="42725")
    return fitting[0][0] if fitting else None


def polymorphic_problem(candidates: Sequence[Any], args: Sequence[SqlType]) -> str | None:
    """Why no overload of a function over any elements fits, where that is since nothing is known of them."""
    polymorphic = any(is_polymorphic(func.args) for func in candidates)
    if not polymorphic or any(a.element is not None for a in args):
        return None
    if not any(a.kind == "unknown" for a in args):
        return None
    return "could not determine polymorphic type because input has type unknown"


def apply(func: Any, args: Sequence[Typed]) -> list[Typed]:
    """The arguments as the overload wants them; arguments it takes of any type are brought to a common one."""
    params = _params(func, [a.typ for a in args])
    assert params is not None
    out: list[Typed] = []
    for arg, param in zip(args, params, strict=True):
        if _is_any(param):
            out.append(settle(arg))
            continue
        done = cast(arg, param, "implicit")
        assert done is not None
        out.append(done)
    return out


def function_call(
    name: str, args: Sequence[Typed], position: int | None, shown: str | None = None
) -> Typed:
    """A scalar function by its SQL name.

    Raises:
        UndefinedFunction: ``function f(integer) does not exist``.
    """
    subject = f"function {shown or name}({', '.join(plain_name(a.typ) for a in args)})"
    func = _resolved(name, args, subject, position)
    return call(func.key, apply(func, args))


def operator_call(symbol: str, args: Sequence[Typed], position: int | None) -> Typed:
    """An operator applied to one or two arguments.

    Raises:
        UndefinedFunction: ``operator does not exist: integer + boolean``.
    """
    args = _beside_text(args) if symbol == "||" else args
    names = [plain_name(a.typ) for a in args]
    shown = f"{names[0]} {symbol} {names[1]}" if len(args) == 2 else f"{symbol} {names[0]}"
    func = _resolved(symbol, args, f"operator: {shown}", position)
    return call(func.key, apply(func, args))


_SHOWN_BESIDE_TEXT = frozenset(
    {"number", "boolean", "datetime", "timespan", "uuid", "mz_timestamp"}
)


def _beside_text(args: Sequence[Typed]) -> Sequence[Typed]:
    """``text || value``: the value as its text."""
    kinds = [category(a.typ) for a in args]
    if not {"string", "unknown"} & set(kinds) or not _SHOWN_BESIDE_TEXT & set(kinds):
        return args
    return [cast(a, TEXT, "explicit") or a for a in args]


@lru_cache(maxsize=4096)
def _scalar(name: str, args: tuple[SqlType, ...]) -> Any | None:
    """The scalar overload that these types mean; remembered, as long lists ask the same again and again."""
    return resolve(functions.scalars_named(name), args)


def _resolved(name: str, args: Sequence[Typed], shown: str, position: int | None) -> Any:
    try:
        func = _scalar(name, tuple(a.typ for a in args))
    except UndefinedFunction:
        raise UndefinedFunction(
            f"{_subject(shown)} is not unique: could not determine which to call",
            position=position,
            hint="Could not choose a best candidate. You might need to add explicit type casts.",
            sqlstate="42725",
        ) from None
    if func is None:
        # A record's type has colons of its own.
        rest = shown.removeprefix("operator: ") if shown.startswith("operator: ") else ""
        problem = polymorphic_problem(functions.scalars_named(name), [a.typ for a in args])
        if problem is not None and not rest:
            raise UndefinedFunction(problem, position=position)
        message = f"operator does not exist: {rest}" if rest else f"{shown} does not exist"
        hint = None
        if not functions.scalars_named(name) and not rest:
            message = f'function "{name}" does not exist'
        else:
            hint = "No overload matches the given argument types. You might need to add explicit type casts."
        raise UndefinedFunction(message, position=position, hint=hint)
    return func


def _subject(shown: str) -> str:
    return shown.replace("operator: ", "operator ")
