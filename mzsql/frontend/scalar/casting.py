"""Casts: which exist in a context, and what they make of a value.

Promise: PostgreSQL's rules. A quoted literal or NULL has type ``unknown`` until its use decides; its text is then read
as the wanted type, for constant arrays, lists, maps and ranges already while the statement is planned. Which casts
exist is said by `mzsql.expr.functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from mzsql.expr import functions
from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.names.type_depth import check_dimensions
from mzsql.frontend.scalar import container_literals
from mzsql.frontend.scalar.constant_texts import datum_of_text, nested_datum
from mzsql.frontend.scalar.placeholders import decided, undecided
from mzsql.frontend.scalar.typed import (
    INTEGER_BOUNDS,
    Typed,
    call,
    category,
    exact_numeric,
)
from mzsql.repr.datum import Datum
from mzsql.repr.errors import DataError, DatatypeMismatch, UndefinedObject, Unsupported
from mzsql.repr.jsonb import canonical
from mzsql.repr.types import (
    BOOLEAN,
    DEFAULT_NUMERIC_SCALE,
    TEXT,
    UNKNOWN,
    SqlType,
    type_name,
    unnamed,
)

#: Kinds of types with element types.
CONTAINERS = frozenset({"array", "list", "map", "record"})


def can_cast(source: SqlType, target: SqlType, context: str) -> bool:
    """Whether a cast exists in this context (``implicit``, ``assignment`` or ``explicit``)."""
    return source.kind == "unknown" or functions.find_cast(source, target, context) is not None


def cast(value: Typed, target: SqlType, context: str) -> Typed | None:
    """The value as ``target``; None where no such cast exists in ``context``."""
    if value.typ.kind == "unknown":
        return _from_unknown(value, target, context)
    if value.typ.kind == target.kind == "array":
        if context == "assignment":
            check_same_dimensions(value.typ, target)
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
    plain = _wider_literal(value, target, keys)
    if plain is not None:
        return plain
    # Only an explicit modifier sets the scale; without one a numeric keeps its own.
    typ = value.typ
    out = value
    for i, key in enumerate(keys):
        func = functions.scalar(key)
        last = i == len(keys) - 1
        wanted = last and not (target.kind == "numeric" and target.scale is None)
        typ = target if wanted else func.result_type([out.typ])
        out = call(key, [out], typ)
    if not keys and context == "explicit" and typ != target and unnamed(typ) == unnamed(target):
        return _named(out, target)
    return out


def _named(value: Typed, target: SqlType) -> Typed:
    """The same value, with the name of a type that a user created."""
    expr = value.expr
    if isinstance(expr, Literal | hir.Call):
        expr = msgspec.structs.replace(expr, typ=target)
    return Typed(expr, target, value.nullable)


def _as_numeric(value: Typed, target: SqlType, context: str) -> Typed:
    """A numeric cast to numeric with another declaration, where the table of casts has nothing to do.

    A stored value without declared scale keeps the digits of its column; a computed one is brought to the declared
    scale, since a constant may have more digits than its type says.
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
    """An array type with so many dimensions, which a statement does not write as part of the type."""
    typ = array
    while typ.kind == "array" and typ.element is not None:
        typ = typ.element
    check_dimensions(count)
    for _ in range(count):
        typ = SqlType("array", element=typ)
    return typ


def check_same_dimensions(given: SqlType, wanted: SqlType) -> None:
    """Check that an array has as many dimensions as the type it is used as: here that is part of a column's type.

    Raises:
        Unsupported: it has another number of them.
    """
    name = type_name(wanted)
    has, wants = _dimensions(given), _dimensions(wanted)
    if has == wants:
        return
    raise Unsupported(
        f"an array of {_counted(has)} as a value of type {name} of {_counted(wants)} is not supported",
        hint="A column has arrays of as many dimensions as its type was declared with: integer[][] has two.",
    )


def _counted(dimensions: int) -> str:
    return "1 dimension" if dimensions == 1 else f"{dimensions} dimensions"


def _read_text(value: Typed, target: SqlType) -> Typed | None:
    """A constant text as an array, list, map or range; None where the cast must read it at run time."""
    if not isinstance(value.expr, Literal):
        return None
    if target.kind == "range" and value.expr.value is not None:
        datum = datum_of_text(str(value.expr.value), target)
        return None if datum is None else Typed(Literal(datum, target), target, False)
    if value.expr.value is None:
        return Typed(Literal(None, target), target, True)
    return read_container(str(value.expr.value), target)


def read_container(text: str, target: SqlType) -> Typed:
    """The array, list or map that a text denotes; its elements are read as texts of their type.

    Raises:
        DataError: ``invalid input syntax for type array: …``.
        Unsupported: the element is a record.
    """
    if target.kind == "record":
        raise Unsupported(
            "input of anonymous composite types is not implemented",
            hint="Write the record as ROW(…).",
        )
    if target.kind == "array":
        target = _of_dimensions(target, container_literals.dimensions(text))
    parsed = container_literals.parse(text, target)
    datum = nested_datum(parsed, target) if parsed else None
    if datum is not None:
        return Typed(Literal(datum, target), target, False)
    if parsed and functions.find_cast(TEXT, target, "explicit") and _leaf(target).kind != "text":
        # Report an element's error with the whole text.
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
    """The innermost element type of nested arrays, lists and maps."""
    while typ.kind in ("array", "list", "map") and typ.element is not None:
        typ = typ.element
    return typ


def empty(typ: SqlType) -> Typed:
    """An array, list or map without elements."""
    return Typed(Literal("{}" if typ.kind == "map" else "[]", typ), typ, False)


def _wider_literal(value: Typed, target: SqlType, keys: Sequence[str]) -> Typed | None:
    """An integer literal as a literal of another numeric type, where that is exact."""
    if not keys or not isinstance(value.expr, Literal) or value.typ.kind not in INTEGER_BOUNDS:
        return None
    number = value.expr.value
    if number is None:
        return None
    made: tuple[Datum, SqlType]
    if target.kind in INTEGER_BOUNDS:
        bound = 2 ** INTEGER_BOUNDS[target.kind]
        if not -bound <= int(number) < bound:
            return None
        made = number, target
    elif target.kind == "numeric" and not target.scale:
        made = str(number), SqlType("numeric", scale=0)
    else:
        return None
    if len(keys) != 1:
        return Typed(Literal(*made), made[1], False)
    inner = value.expr.shown if isinstance(value.expr, hir.CastLiteral) else value.expr
    shown = hir.Call(keys[0], (inner,), made[1])
    return Typed(hir.CastLiteral(*made, shown), made[1], False)


def _from_unknown(value: Typed, target: SqlType, context: str) -> Typed | None:
    """An untyped NULL or literal as ``target``, read by the type's text input."""
    if target.kind == "unknown":
        return value
    if isinstance(value.expr, Literal):
        if value.expr.value is None:
            return Typed(Literal(None, target), target, True)
        text = str(value.expr.value)
        decided(text, target)
        if undecided(text):
            # As if the parameter had been declared with this type: there is no text to read yet.
            return Typed(Literal(None, target), target, True)
        simple = text_literal(text, target)
        if simple is not None:
            return simple
        if target.kind in CONTAINERS:
            return _as_wanted(read_container(text, target), target, context)
        typed = Typed(Literal(text, TEXT), TEXT, False)
    else:
        typed = Typed(value.expr, TEXT, value.nullable)
    if target == TEXT:
        return typed
    wider = "assignment" if context == "assignment" and target.kind in ("varchar", "char") else None
    return cast(typed, target, wider or "explicit")


def _as_wanted(value: Typed, target: SqlType, context: str) -> Typed:
    """A text that was read as an array, with the wanted dimensions; only an explicit cast takes the text's own."""
    if context == "explicit" or target.kind != "array" or value.typ == target:
        return value
    if isinstance(value.expr, Literal) and value.expr.value == "[]":
        return empty(target)
    check_same_dimensions(value.typ, target)
    return value


def text_literal(text: str, target: SqlType) -> Typed | None:
    """The typed literal for a quoted text, where it is certain; None where the cast must decide."""
    if target.kind == "jsonb":
        return _read(text, canonical(text), target)
    if target.kind == "numeric":
        if target.scale is not None:
            return None
        try:
            number = exact_numeric(text)
        except (DataError, ValueError):
            return None
        assert isinstance(number.expr, Literal)
        return _read(text, number.expr.value, number.typ)
    return None


def _read(text: str, value: Datum, typ: SqlType) -> Typed:
    """The literal that a text is read as."""
    shown = hir.Call(f"text_to_{typ.kind}", (Literal(text, TEXT),), typ)
    return Typed(hir.CastLiteral(value, typ, shown), typ, False)


def require(value: Typed, target: SqlType, context: str, what: str, position: int | None) -> Typed:
    """The value as ``target``.

    Raises:
        DatatypeMismatch: ``<what> must be of type …, not type …``.
    """
    done = cast(value, target, context)
    if done is None:
        raise DatatypeMismatch(
            f"{what} must be of type {type_name(target)}, not type {type_name(value.typ)}",
            position=position,
        )
    return done


def to_boolean(value: Typed, clause: str, position: int | None) -> Typed:
    """The value as a condition.

    Raises:
        DatatypeMismatch: ``argument of WHERE must be type boolean, not type integer``.
    """
    done = cast(value, BOOLEAN, "implicit")
    if done is None:
        must = "must have" if clause.endswith(" argument") else "must be"
        raise DatatypeMismatch(
            f"{clause} {must} type boolean, not type {type_name(value.typ)}", position=position
        )
    return done


def settle(value: Typed) -> Typed:
    """The value; as text where its type is still unknown."""
    if value.typ.kind != "unknown":
        return value
    done = _from_unknown(value, TEXT, "implicit")
    assert done is not None
    return done


def _shown(typ: SqlType) -> str:
    """A type's name in messages, without the internal scale of numerics."""
    return typ.kind if typ.kind == "numeric" else type_name(typ)


def _said(typ: SqlType, own_name: Callable[[SqlType], str] | None) -> str:
    return _shown(typ) if own_name is None or unnamed(typ) == typ else own_name(typ)


def explicit(
    value: Typed,
    target: SqlType,
    position: int | None,
    own_name: Callable[[SqlType], str] | None = None,
) -> Typed:
    """CAST(value AS target).

    Args:
        value: what is cast.
        target: the type that it is cast to.
        position: where the cast stands.
        own_name: the name of a type that has one of its users in it, for the message; by default what it is made of.

    Raises:
        UndefinedObject: there is no cast from its type to the target (42846).
    """
    done = cast(value, target, "explicit")
    if done is None:
        raise UndefinedObject(
            f"CAST does not support casting from {_said(value.typ, own_name)} to {_said(target, own_name)}",
            position=position,
            sqlstate="42846",
        )
    return done
