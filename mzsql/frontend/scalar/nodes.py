"""Shared by the modules that plan expressions: nodes' positions and names, conjunctions, common values."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import expressions as exp

from mzsql.expr.scalar import Literal, Unmaterializable
from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.scalar.coerce import Typed, call, cast
from mzsql.repr import types as t
from mzsql.repr.types import SqlType

#: How many levels below a node its position is searched.
_NEAR = 32
#: Up to so many conjuncts become nested binary calls, as written; more become one flat call, which bounds the depth.
_NESTED_LOGIC = 32


def position_of(node: exp.Expr | None) -> int | None:
    """The 1-based position of a node in the text: its own, or that of its leftmost part; None where neither is known."""
    for _ in range(_NEAR):
        if node is None:
            return None
        node = _qualifier(node) or node
        start = node.meta.get("start")
        if start is not None:
            return int(start) + 1
        node = next((part for part in node.iter_expressions()), None)
    return None


def _qualifier(node: exp.Expr) -> exp.Expr | None:
    """The first part of a qualified name."""
    if not isinstance(node, exp.Column | exp.Table):
        return None
    parts = (node.args.get(key) for key in ("catalog", "db", "table", "this"))
    return next((part for part in parts if isinstance(part, exp.Expr)), None)


def function_name(node: exp.Expr) -> str:
    """The name of a call, folded to lower case unless quoted."""
    name = node.this
    return fold(name) if isinstance(name, exp.Identifier) else str(name).lower()


def unparen(node: exp.Expr) -> exp.Expr:
    """The node without enclosing parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def combine(key: str, operands: list[Typed]) -> Typed:
    """``and`` or ``or`` (``key``) of conditions; of none it is the neutral element."""
    if not operands:
        return Typed(Literal(key == "and", t.BOOLEAN), t.BOOLEAN, False)
    if len(operands) > _NESTED_LOGIC:
        return call(key, operands)
    out = operands[0]
    for operand in operands[1:]:
        out = call(key, [out, operand])
    return out


def negate(value: Typed) -> Typed:
    """NOT value."""
    return call("not", [value])


def known(value: Typed) -> Typed:
    """The value, cast to text if its type is unknown."""
    if value.typ.kind != "unknown":
        return value
    done = cast(value, t.TEXT, "implicit")
    assert done is not None
    return done


def null_value() -> Typed:
    """An untyped NULL."""
    return Typed(Literal(None, t.UNKNOWN), t.UNKNOWN, True)


def moment(key: str, typ: SqlType) -> Callable[[object, exp.Expr], Typed]:
    """A handler for a function whose value is known only when the statement runs, such as ``current_user``."""

    def plan(_ctx: object, _node: exp.Expr) -> Typed:
        return Typed(Unmaterializable(key, typ), typ, False)

    return plan
