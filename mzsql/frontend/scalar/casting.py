"""Casts: which there are in a context, and what they make of a value.

Promise: PostgreSQL's rules. A literal in quotes and NULL have type ``unknown`` until something decides; then the text is read as the type
that is wanted, a constant array, list, map or range while the statement is planned. The table of functions (`mzsql.expr.functions`) says
what casts there are.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mzsql.expr import functions
from mzsql.expr.scalar import Literal
from mzsql.frontend import hir
from mzsql.frontend.names.levels import check_dimensions
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

#: Kinds of values that hold others.
CONTAINERS = frozenset({"array", "list", "map", "record"})


def can_cast(source: SqlType, target: SqlType, context: str) -> bool:
    """Whether there is a cast in this context."""
    return source.kind == "unknown" or functions.find_cast(source, target, context) is not None


def cast(value: Typed, target: SqlType, context: str) -> Typed | None:
    """`value` as `target`; None where there is no such cast in `context`."""
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
    if not keys and context == "explicit" and typ != target and unnamed(typ) == unnamed(target):
        return _named(out, target)
    return out


def _named(value: Typed, target: SqlType) -> Typed:
    """The same value under the name that its type has."""
    expr = value.expr
    if isinstance(expr, Literal | hir.Call):
        expr = msgspec.structs.replace(expr, typ=target)
    return Typed(expr, target, value.nullable)


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
    check_dimensions(count)
    for _ in range(count):
        typ = SqlType("array", element=typ)
    return typ


def check_same_dimensions(given: SqlType, wanted: SqlType) -> None:
    """Raises Unsupported where an array would stand for one that has other dimensions, which are part of a column's type here."""
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
    """The array, list or map that a text spells; its elements are read as texts of their type.

    Raises:
        DataError: ``invalid input syntax for type array: …``.
        Unsupported: it is to be a record, which has no names in a text.
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
    if not isinstance(value.expr, Literal) or value.typ.kind not in INTEGER_BOUNDS:
        return None
    number = value.expr.value
    if number is None:
        return None
    if target.kind in INTEGER_BOUNDS:
        bound = 2 ** INTEGER_BOUNDS[target.kind]
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
        if undecided(text):
            # As if it had been declared so: there is no text yet that could be read.
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
    """A text that was read as an array, with the dimensions that are wanted; only a cast that is written takes what the text has."""
    if context == "explicit" or target.kind != "array" or value.typ == target:
        return value
    if isinstance(value.expr, Literal) and value.expr.value == "[]":
        return empty(target)
    check_same_dimensions(value.typ, target)
    return value


def text_literal(text: str, target: SqlType) -> Typed | None:
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


def _shown(typ: SqlType) -> str:
    """A type by its name; the digits that a numeric is carried with are not what was written."""
    return typ.kind if typ.kind == "numeric" else type_name(typ)


def explicit(value: Typed, target: SqlType, position: int | None) -> Typed:
    """CAST(value AS target)."""
    done = cast(value, target, "explicit")
    if done is None:
        raise UndefinedObject(
            f"CAST does not support casting from {_shown(value.typ)} to {_shown(target)}",
            position=position,
            sqlstate="42846",
        )
    return done
