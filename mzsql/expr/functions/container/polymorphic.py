"""Parameters of any element type: ``anyarray``, ``anyelement`` and similar.

Promise: all parameters of a function that mention `ELEMENT` stand for one type, to which every argument casts
implicitly.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions.cast.casts import find_cast
from mzsql.repr.types import VECTOR_ELEMENTS, SqlType

#: Stands for the element type of a call.
ELEMENT = SqlType("anyelement")
ARRAY = SqlType("array", element=ELEMENT)
LIST = SqlType("list", element=ELEMENT)
MAP = SqlType("map", element=ELEMENT)
RECORD = SqlType("record")
RANGE = SqlType("range", element=ELEMENT)


def is_polymorphic(params: Sequence[SqlType]) -> bool:
    """Whether a parameter's type depends on the arguments."""
    return any(_mentions(param) for param in params)


def _mentions(param: SqlType | None) -> bool:
    return param is not None and (param == ELEMENT or _mentions(param.element))


def bind(params: Sequence[SqlType], args: Sequence[SqlType]) -> tuple[SqlType, ...] | None:
    """The parameters' types for these arguments; None if none fit.

    A record gets the argument's fields. Unknown types become the type that the others determine.
    """
    if not is_polymorphic(params):
        return tuple(
            arg if param == RECORD and arg.kind == "record" else param
            for param, arg in zip(params, args, strict=True)
        )
    ranges = {arg.element for p, arg in zip(params, args, strict=True) if p == RANGE == _any(arg)}
    if ranges:
        # A range never casts to one with other elements, so the others must fit it.
        (element, *others) = ranges
        assert element is not None
        return None if others else tuple(_put(param, element) for param in params)
    inside: list[SqlType] = []
    alone: list[SqlType] = []
    for param, arg in zip(params, args, strict=True):
        if arg.kind == "unknown" or not _mentions(param):
            continue
        if param == ELEMENT:
            alone.append(arg)
            continue
        found = _element(param, arg)
        if found is None:
            return None
        inside.append(found)
    element = common([*inside, *alone])
    if element is None:
        return None
    return tuple(_put(param, element) for param in params)


def _any(arg: SqlType) -> SqlType | None:
    """The parameter type for any range, if this is one."""
    return RANGE if arg.kind == "range" else None


def _element(param: SqlType, arg: SqlType) -> SqlType | None:
    if param.kind == "array" and arg in VECTOR_ELEMENTS:
        arg = SqlType("array", element=VECTOR_ELEMENTS[arg])
    while param != ELEMENT:
        if param.kind != arg.kind or param.element is None or arg.element is None:
            return None
        param, arg = param.element, arg.element
    return arg


def _put(param: SqlType, element: SqlType) -> SqlType:
    if param == ELEMENT:
        return element
    if param.element is None:
        return param
    return SqlType(param.kind, element=_put(param.element, element))


def common(types: Sequence[SqlType]) -> SqlType | None:
    """The one of these types to which all others cast implicitly."""
    if not types:
        return None
    best = types[0]
    for typ in types[1:]:
        if typ == best or (
            best.custom_id is not None
            and typ.custom_id is None
            and find_cast(typ, best, "implicit") is not None
        ):
            # A user-named type prevails over an equal one without name.
            continue
        if typ.kind == best.kind == "numeric":
            best = SqlType("numeric", scale=max(typ.effective_scale, best.effective_scale))
        elif find_cast(best, typ, "implicit") is not None:
            best = typ
        elif find_cast(typ, best, "implicit") is None:
            return None
    return best
