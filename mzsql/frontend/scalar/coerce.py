"""Type coercion: a common type for several expressions, and choosing among overloads.

Promise: PostgreSQL's rules (PostgreSQL documentation, chapter "Type Conversion"): of a function's overloads the one
with most exact matches wins, then the one with most preferred types, then the categories of unknown literals decide.
The overloads are those in `mzsql.expr.functions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from mzsql.expr import functions
from mzsql.expr.functions.container.polymorphic import bind, common, is_polymorphic
from mzsql.expr.functions.number.numeric import common_numeric
from mzsql.expr.scalar import Literal
from mzsql.frontend.scalar.casting import (
    CONTAINERS,
    can_cast,
    cast,
    check_same_dimensions,
    empty,
    explicit,
    require,
    settle,
    text_literal,
    to_boolean,
)
from mzsql.frontend.scalar.typed import (
    PREFERRED,
    Typed,
    call,
    category,
    exact_numeric,
    integer,
    numeric_literal,
    plain_name,
)
from mzsql.repr.errors import DatatypeMismatch, UndefinedFunction, Unsupported
from mzsql.repr.types import CHAR, NUMERIC, TEXT, SqlType, type_name

_CASTS = "You might need to add explicit type casts."
#: The hints where no overload fits the arguments, of a function and of an operator.
NO_OVERLOAD = f"No function matches the given name and argument types. {_CASTS}"
_NO_OPERATOR = f"No operator matches the given name and argument types. {_CASTS}"
#: The hints where several overloads fit the arguments equally well.
NOT_UNIQUE = f"Could not choose a best candidate function. {_CASTS}"
_OPERATOR_NOT_UNIQUE = f"Could not choose a best candidate operator. {_CASTS}"

# --- a type for several -----------------------------------------------------------------------------


def common_type(values: Sequence[Typed], what: str, position: int | None) -> SqlType:
    """The common type of the branches of CASE, COALESCE, UNION or VALUES.

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
        # An untyped literal may be longer than the others' declared length.
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
        if wider is None and a.kind == "array" and type_name(a) == type_name(b):
            check_same_dimensions(b, a)
        if wider is None:
            said = f"{what} types {type_name(a)} and {type_name(b)} cannot be matched"
            if a.kind == "record":
                said = f"{what} could not convert type {type_name(b)} to {type_name(a)}"
            raise DatatypeMismatch(said, position=position)
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
    return b if forward and (not backward or b.kind in PREFERRED) else a


def as_common(value: Typed, typ: SqlType) -> Typed | None:
    """The value as the common type; a numeric gets the scale in which all of them are carried, a char of any length no blanks.

    Returns:
        None where it cannot be cast implicitly.
    """
    if typ == CHAR and value.typ.kind == "char" and value.typ.length is not None:
        # Values of several lengths are equal whatever blanks fill them up, so none keeps any.
        text = cast(value, TEXT, "implicit")
        return text and cast(text, typ, "explicit")
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
    """Quoted numbers beside numerics, typed with the digits that they are written with instead of the others' scale."""
    if not any(value.typ.kind == "numeric" for value in values):
        return values
    return [
        (text_literal(str(value.expr.value), NUMERIC) or value)
        if value.typ.kind == "unknown"
        and isinstance(value.expr, Literal)
        and value.expr.value is not None
        else value
        for value in values
    ]


def _is_text(value: Typed) -> bool:
    return isinstance(value.expr, Literal) and value.expr.value is not None


def unify(values: Sequence[Typed], what: str, position: int | None) -> tuple[list[Typed], SqlType]:
    """All values cast to their common type, and the type.

    Raises:
        DatatypeMismatch: they have none.
    """
    values = _own_scales(values)
    typ = common_type(values, what, position)
    done: list[Typed] = []
    for value in values:
        if typ.kind == "record" and value.typ.kind == "unknown" and _is_text(value):
            said = f"{what} could not convert type {type_name(typ)} to text"
            raise DatatypeMismatch(said, position=position)
        out = as_common(value, typ)
        if out is None:
            raise DatatypeMismatch(
                f"{what} types {type_name(typ)} and {type_name(value.typ)} cannot be matched",
                position=position,
            )
        done.append(out)
    return done, typ


def combine_types(values: Sequence[Typed], name: str, position: int | None) -> list[Typed]:
    """Both sides of a merged join column, cast to their common type."""
    return unify(values, f'NATURAL/USING join column "{name}"', position)[0]


# --- overloads -------------------------------------------------------------------------------------


def _is_any(typ: SqlType) -> bool:
    return typ.kind == "any"


def _params(func: Any, given: Sequence[SqlType]) -> tuple[SqlType, ...] | None:
    """The parameter types for these arguments; None where the number of arguments or the element types do not fit."""
    args: tuple[SqlType, ...] = func.args
    variadic: SqlType | None = getattr(func, "variadic", None)
    count = len(given)
    if len(args) == count:
        return bind(args, given)
    if variadic is not None and count >= max(len(args), 1):
        return bind((*args, *(variadic for _ in range(count - len(args)))), given)
    return None


def _fits(arg: SqlType, param: SqlType) -> bool:
    """Whether an argument can be passed for a parameter."""
    if _is_any(param) or (arg.kind == param.kind and arg.kind not in (*CONTAINERS, "range")):
        return True
    return can_cast(arg, param, "implicit")


def resolve(candidates: Sequence[Any], args: Sequence[SqlType]) -> Any | None:
    """The overload that arguments of these types select; None where none fits.

    Raises:
        UndefinedFunction: several fit equally well (SQLSTATE 42725).
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
    """With two arguments of which one is unknown: the overloads that fit if both had the same type."""
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
    """The overloads without container parameters: an untyped literal becomes a container only beside one, or if nothing
    else fits.
    """
    if any(a.kind in CONTAINERS for a in args):
        return []
    return [(f, p) for f, p in fitting if not any(t.kind in CONTAINERS for t in p)]


def _exact_matches(args: Sequence[SqlType], params: tuple[SqlType, ...]) -> int:
    return sum(a.kind == p.kind for a, p in zip(args, params, strict=True))


def _preferred_matches(args: Sequence[SqlType], params: tuple[SqlType, ...]) -> int:
    return sum(
        a.kind == p.kind
        or (a.kind != "unknown" and p.kind in PREFERRED and category(a) == category(p))
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
        preferred = [(f, p) for f, p in fitting if p[i].kind in PREFERRED]
        fitting = preferred or fitting
    known = {a.kind for a in args if a.kind != "unknown"}
    if len(fitting) > 1 and len(known) == 1:
        (kind,) = known
        fitting = [(f, p) for f, p in fitting if all(t.kind == kind for t in p)] or fitting
    if len(fitting) > 1:
        raise UndefinedFunction("ambiguous", sqlstate="42725")
    return fitting[0][0] if fitting else None


def _takes(func: Any, count: int) -> bool:
    """Whether a function accepts this number of arguments."""
    variadic = getattr(func, "variadic", None) is not None
    return count >= len(func.args) if variadic else count == len(func.args)


def polymorphic_problem(candidates: Sequence[Any], args: Sequence[SqlType]) -> str | None:
    """The message for a polymorphic function whose element type cannot be determined; None where that is not the
    problem.
    """
    polymorphic = any(is_polymorphic(func.args) for func in candidates if _takes(func, len(args)))
    if not polymorphic or any(a.element is not None for a in args):
        return None
    if not any(a.kind == "unknown" for a in args):
        return None
    return "could not determine polymorphic type because input has type unknown"


def apply(func: Any, args: Sequence[Typed]) -> list[Typed]:
    """The arguments cast to an overload's parameters; those of type ``any`` are only given a definite type."""
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
    """A call of a scalar function by its SQL name.

    Args:
        name: the function's name.
        args: the arguments.
        position: the call's position, for errors.
        shown: the name to show in errors, if another.

    Raises:
        UndefinedFunction: ``function f(integer) does not exist``.
    """
    subject = f"function {shown or name}({', '.join(plain_name(a.typ) for a in args)})"
    func = _resolved(name, args, subject, position)
    return call(func.key, apply(func, args))


#: Integer types, which become JSON numbers by way of numeric.
_WHOLE = frozenset({"smallint", "integer", "bigint", "uint2", "uint4", "uint8"})


def as_jsonb(value: Typed) -> Typed:
    """The value as jsonb."""
    value = settle(value)
    if value.typ.kind in _WHOLE:
        value = cast(value, NUMERIC, "explicit") or value
    return call("to_jsonb", [value])


def operator_call(symbol: str, args: Sequence[Typed], position: int | None) -> Typed:
    """An operator applied to one or two arguments.

    Raises:
        UndefinedFunction: ``operator does not exist: integer + boolean``.
    """
    args = _beside_text(args) if symbol == "||" else args
    args = _beside_char(args) if symbol in _COMPARISONS else args
    names = [plain_name(a.typ) for a in args]
    shown = f"{names[0]} {symbol} {names[1]}" if len(args) == 2 else f"{symbol} {names[0]}"
    func = _resolved(_AS_FUNCTION.get(symbol, symbol), args, f"operator: {shown}", position)
    return call(func.key, apply(func, args))


#: Operators that Materialize plans, and shows, as functions.
_AS_FUNCTION = {"^": "power"}
_COMPARISONS = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})


def _beside_char(args: Sequence[Typed]) -> Sequence[Typed]:
    """Comparison arguments: char with varchar compares as char, ignoring trailing blanks; varchar with anything else
    compares as text.
    """
    kinds = {a.typ.kind for a in args}
    if kinds == {"char", "varchar"}:
        return [cast(a, SqlType("char"), "explicit") or a for a in args]
    if "varchar" not in kinds:
        return args
    # As in PostgreSQL, varchar has no operators of its own.
    return [(cast(a, TEXT, "implicit") or a) if a.typ.kind == "varchar" else a for a in args]


_SHOWN_BESIDE_TEXT = frozenset(
    {"number", "boolean", "datetime", "timespan", "uuid", "mz_timestamp"}
)


def _beside_text(args: Sequence[Typed]) -> Sequence[Typed]:
    """Arguments of ``text || value``, with the value cast to text."""
    kinds = [category(a.typ) for a in args]
    if not {"string", "unknown"} & set(kinds) or not _SHOWN_BESIDE_TEXT & set(kinds):
        return args
    return [cast(a, TEXT, "explicit") or a for a in args]


@lru_cache(maxsize=4096)
def _scalar(name: str, args: tuple[SqlType, ...]) -> Any | None:
    """The scalar overload for these types; cached, since long IN lists ask for the same one again and again."""
    return resolve(functions.scalars_named(name), args)


def _resolved(name: str, args: Sequence[Typed], shown: str, position: int | None) -> Any:
    try:
        func = _scalar(name, tuple(a.typ for a in args))
    except UndefinedFunction:
        raise UndefinedFunction(
            _not_unique(shown),
            position=position,
            hint=_OPERATOR_NOT_UNIQUE if shown.startswith("operator: ") else NOT_UNIQUE,
            sqlstate="42725",
        ) from None
    if func is None and name in _OF_ONE_DIMENSION and _is_deep(args[0].typ):
        raise Unsupported(f"{_OF_ONE_DIMENSION[name]} is not supported", position=position)
    if func is None:
        # Cut the prefix instead of splitting at a colon: a record's type name contains colons.
        rest = shown.removeprefix("operator: ") if shown.startswith("operator: ") else ""
        problem = polymorphic_problem(functions.scalars_named(name), [a.typ for a in args])
        if problem is not None and not rest:
            raise UndefinedFunction(problem, position=position)
        message = f"operator does not exist: {rest}" if rest else f"{shown} does not exist"
        hint = None
        if not functions.scalars_named(name) and not rest:
            message = f'function "{name}" does not exist'
            hint = functions.function_like(name)
        else:
            hint = _NO_OPERATOR if rest else NO_OVERLOAD
        raise UndefinedFunction(message, position=position, hint=hint)
    return func


#: What these functions cannot do to arrays with several dimensions.
_OF_ONE_DIMENSION = {
    "array_position": "searching for elements in multidimensional arrays",
    "array_positions": "searching for elements in multidimensional arrays",
    "array_remove": "removing elements from multidimensional arrays",
    "array_replace": "replacing elements of multidimensional arrays",
}


def _is_deep(typ: SqlType) -> bool:
    """Whether a type is an array with several dimensions."""
    return typ.kind == "array" and typ.element is not None and typ.element.kind == "array"


def _not_unique(shown: str) -> str:
    operator = shown.removeprefix("operator: ")
    return f"{shown} is not unique" if operator == shown else f"operator is not unique: {operator}"


__all__ = [
    "Typed",
    "apply",
    "as_common",
    "call",
    "can_cast",
    "cast",
    "category",
    "combine_types",
    "empty",
    "exact_numeric",
    "explicit",
    "function_call",
    "integer",
    "numeric_literal",
    "operator_call",
    "plain_name",
    "polymorphic_problem",
    "require",
    "resolve",
    "settle",
    "to_boolean",
    "unify",
]
