"""Simplifies scalar expressions, given the columns' types: folds constants, and applies what NULLs and booleans make
certain.

Promise: the value of an expression, and whether it fails, stay the same for every row. Constants are evaluated by
the evaluator that also answers fast-path reads, so a folded value is the one that Spark would compute.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr import functions
from mzsql.expr import scalar as sc
from mzsql.expr.canonical import can_fail, in_rank, rank
from mzsql.expr.evaluate import EvalError, is_foldable
from mzsql.expr.memo import memo
from mzsql.expr.numeric_folding import refusal
from mzsql.expr.typing import nullable
from mzsql.repr.types import BOOLEAN, ColumnType, SqlType
from mzsql.transform.context import OptimizerContext

TRUE = sc.Literal(True, BOOLEAN)
FALSE = sc.Literal(False, BOOLEAN)


def simplify(expr: sc.Scalar, columns: Sequence[ColumnType], ctx: OptimizerContext) -> sc.Scalar:
    """The simplest known form of an expression."""
    if not isinstance(expr, sc.Call | sc.If):
        return expr
    known: dict[tuple[object, ...], sc.Scalar] = memo("simplify")
    # Only the types of columns that the expression reads matter.
    key = (expr, ctx.evaluator, *(columns[c] for c in sorted(sc.support(expr))))
    found = known.get(key)
    if found is None:
        found = _simplified(expr, columns, ctx)
        if not _has_zero(expr):
            known[key] = found
    return found


def _has_zero(expr: sc.Scalar) -> bool:
    """Whether it contains a float that equals another one but differs from it: 0.0 and -0.0."""
    return any(
        isinstance(node, sc.Literal) and isinstance(node.value, float) and not node.value
        for node in sc.walk(expr)
    )


def _simplified(expr: sc.Scalar, columns: Sequence[ColumnType], ctx: OptimizerContext) -> sc.Scalar:
    def step(node: sc.Scalar) -> sc.Scalar:
        match node:
            case sc.If():
                return _if(node, columns, ctx)
            case sc.Call():
                return _call(node, columns, ctx)
            case _:
                return node

    return sc.transform(expr, step)


def is_literal(expr: sc.Scalar) -> bool:
    """Whether the expression is a constant, including an error."""
    return isinstance(expr, sc.Literal | sc.LiteralError)


def may_error(expr: sc.Scalar) -> bool:
    """Whether an evaluation can fail."""
    if not isinstance(expr, sc.Call | sc.If):
        return isinstance(expr, sc.LiteralError)
    known: dict[sc.Scalar, bool] = memo("may_error")
    found = known.get(expr)
    if found is None:
        found = known[expr] = any(
            isinstance(node, sc.LiteralError) or (isinstance(node, sc.Call) and can_fail(node))
            for node in sc.walk(expr)
        )
    return found


def _if(node: sc.If, columns: Sequence[ColumnType], ctx: OptimizerContext) -> sc.Scalar:
    match node.condition:
        case sc.Literal(value=True):
            return node.then
        case sc.Literal():
            return node.otherwise
        case sc.LiteralError(message=message):
            then = node.then
            while isinstance(then, sc.If):
                then = then.then
            return node if isinstance(then, sc.Column) else sc.LiteralError(message, then.typ)
        case _ if node.then == node.otherwise and not may_error(node.condition):
            return node.then
        case _:
            new = _truth(node) or _inwards(node, columns)
            return node if new is None else simplify(new, columns, ctx)


def _truth(node: sc.If) -> sc.Scalar | None:
    """A CASE between two booleans in terms of AND and OR, in which a NULL condition counts as false; None for other
    expressions.
    """
    condition, then, otherwise = node.condition, node.then, node.otherwise
    if not (isinstance(then, sc.Literal) and isinstance(otherwise, sc.Literal)):
        return None
    if then.typ != BOOLEAN or otherwise.typ != BOOLEAN or then == otherwise:
        return None
    null = sc.Call("is_null", (condition,), BOOLEAN)
    holds = sc.Call("and", (sc.Call("not", (null,), BOOLEAN), condition), BOOLEAN)
    fails = sc.Call("or", (sc.Call("not", (condition,), BOOLEAN), null), BOOLEAN)
    match then.value, otherwise.value:
        case True, _:
            return sc.Call("or", (holds, otherwise), BOOLEAN)
        case False, _:
            return sc.Call("and", (fails, otherwise), BOOLEAN)
        case _, True:
            return sc.Call("or", (fails, then), BOOLEAN)
        case _:
            return sc.Call("and", (holds, then), BOOLEAN)


#: Binary operators that may get a computed argument in place of a constant one at no extra cost.
_OPERATORS = frozenset({*"+-*/%&|#=<>", "<<", ">>", "||", "<>", "<=", ">="})


def _inwards(node: sc.If, columns: Sequence[ColumnType]) -> sc.Scalar | None:
    """A CASE between two calls of one function that differ in one argument as the function of a CASE; None for other
    expressions.
    """
    match node.then, node.otherwise:
        case sc.Call(func=func, args=first), sc.Call(func=other, args=second) if func == other:
            pass
        case _:
            return None
    operator = len(first) == 2 and functions.scalar(func).name in _OPERATORS
    if len(first) != len(second):  # a function of any number of arguments
        return None
    if not (len(first) == 1 or operator) or node.then.typ != node.otherwise.typ:
        return None
    differing = [
        at for at, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1]
    ]
    if len(differing) != 1:
        return None
    (at,) = differing
    if sc.scalar_type(first[at], columns) != sc.scalar_type(second[at], columns):
        return None
    args = list(first)
    args[at] = sc.If(node.condition, first[at], second[at])
    return sc.Call(func, tuple(args), node.then.typ)


def _call(node: sc.Call, columns: Sequence[ColumnType], ctx: OptimizerContext) -> sc.Scalar:
    match node:
        case sc.Call(func="and" | "or"):
            return _and_or(node)
        case sc.Call(func="not", args=(arg,)):
            return _not(node, arg)
        case sc.Call(func="is_null", args=(arg,)):
            return _is_null(node, arg, columns)
        case sc.Call(func="coalesce", args=args):
            simpler = _coalesce(node, args, columns)
            if simpler is not node:
                return simpler
        case _:
            node = in_rank(node)
    func = functions.scalar(node.func)
    null = any(isinstance(a, sc.Literal) and a.value is None for a in node.args)
    if func.strict and null and not any(may_error(arg) for arg in node.args):
        # A strict function of NULL is NULL, unless computing another argument fails first.
        return sc.Literal(None, node.typ)
    if node.args and all(is_literal(arg) for arg in node.args):
        return _evaluate(node, ctx)
    known = _beyond_columns(node, func.name)
    return node if known is None else known


_WHOLE = SqlType("numeric", scale=0)
#: The result of a comparison if its left side is less (or, below, greater) than its right side.
_WHERE_LESS = {"=": False, "<>": True, "<": True, "<=": True, ">": False, ">=": False}
_WHERE_GREATER = {"=": False, "<>": True, "<": False, "<=": False, ">": True, ">=": True}


def _beyond_columns(node: sc.Call, symbol: str) -> sc.Scalar | None:
    """A comparison with a numeric that no column can hold (NaN, more than 38 digits), which is beyond every value; None
    for other expressions.
    """
    if len(node.args) != 2 or symbol not in _WHERE_LESS:
        return None
    left, right = node.args
    for literal, other, first in ((left, right, True), (right, left, False)):
        if not isinstance(literal, sc.Literal) or literal.typ.kind != "numeric":
            continue
        if isinstance(other, sc.Literal | sc.LiteralError):
            continue
        if refusal(literal.value, _WHOLE) is None:
            continue
        negative = str(literal.value).startswith("-")
        truth = (_WHERE_LESS if negative == first else _WHERE_GREATER)[symbol]
        null = sc.Call("is_null", (other,), BOOLEAN)
        unknown = sc.Literal(None, BOOLEAN)
        if truth:
            return sc.Call("or", (sc.Call("not", (null,), BOOLEAN), unknown), BOOLEAN)
        return sc.Call("and", (null, unknown), BOOLEAN)
    return None


def _evaluate(node: sc.Call, ctx: OptimizerContext) -> sc.Scalar:
    if ctx.evaluator is None:
        return node
    large = memo("large constants")
    if node in large or not is_foldable(
        (a.value, a.typ) for a in node.args if isinstance(a, sc.Literal)
    ):
        return node
    (value,) = ctx.evaluator.evaluate([node])
    if not is_foldable([(value, node.typ)]):
        large[node] = True
        return node
    if isinstance(value, EvalError):
        return sc.LiteralError(value.message, node.typ)
    return sc.Literal(value, node.typ)


def _and_or(node: sc.Call) -> sc.Scalar:
    """AND and OR flattened and sorted, without neutral, repeated and absorbed arguments; decided if one argument
    decides.
    """
    neutral, deciding = (TRUE, FALSE) if node.func == "and" else (FALSE, TRUE)
    flat: dict[sc.Scalar, None] = {}
    for arg in node.args:
        for part in _parts(arg, node.func):
            if part != neutral:
                flat[part] = None
    if deciding in flat:
        return deciding  # whatever the others are, errors included
    if not flat:
        return neutral
    kept = _without_absorbed(list(flat), "or" if node.func == "and" else "and")
    if len(kept) == 1:
        return kept[0]
    return _factored(sc.Call(node.func, tuple(sorted(kept, key=rank)), BOOLEAN))


def _parts(arg: sc.Scalar, func: str) -> tuple[sc.Scalar, ...]:
    return arg.args if isinstance(arg, sc.Call) and arg.func == func else (arg,)


def _without_absorbed(args: list[sc.Scalar], other: str) -> list[sc.Scalar]:
    """Apply ``x OR (x AND y)`` = ``x``, and the dual, unless y can fail."""
    if not any(isinstance(arg, sc.Call) and arg.func == other for arg in args):
        return args
    members = {arg: frozenset(_parts(arg, other)) for arg in args}
    single = {arg for arg in args if len(members[arg]) == 1}
    several = [arg for arg in args if len(members[arg]) > 1]
    # Compare with each other only if there are few; arguments without parts are found by a set lookup.
    small = several if len(several) <= _COMPARED else []

    def absorbed(arg: sc.Scalar) -> bool:
        own = members[arg]
        if len(own) == 1 or may_error(arg):
            return False
        return bool(own & single) or any(members[one] < own for one in small)

    return [arg for arg in args if not absorbed(arg)]


#: The most disjunctions of a conjunction, or the reverse, that are compared with each other.
_COMPARED = 100


def _factored(node: sc.Call) -> sc.Scalar:
    """``(a AND b) OR (a AND c)`` as ``a AND (b OR c)``, and the dual; if only some arguments share one, these."""
    other = "or" if node.func == "and" else "and"
    members = [_parts(arg, other) for arg in node.args]
    if not all(len(parts) > 1 for parts in members):
        return _factored_in_groups(node, members)
    common = set(members[0]).intersection(*members[1:])
    if not common:
        return _factored_in_groups(node, members)
    shared = [part for part in members[0] if part in common]
    rests: list[sc.Scalar] = []
    for parts in members:
        rest = tuple(part for part in parts if part not in common)
        rests.append(rest[0] if len(rest) == 1 else _and_or(sc.Call(other, rest, BOOLEAN)))
    inner = _and_or(sc.Call(node.func, tuple(rests), BOOLEAN))
    return _and_or(sc.Call(other, (*shared, inner), BOOLEAN))


def _factored_in_groups(node: sc.Call, members: Sequence[tuple[sc.Scalar, ...]]) -> sc.Scalar:
    """Group arguments that share a part, each with the first others that it shares one with."""
    having: dict[sc.Scalar, list[int]] = {}
    for at, parts in enumerate(members):
        for part in parts if len(parts) > 1 else ():
            having.setdefault(part, []).append(at)
    group_of: dict[int, int] = {}
    groups: list[list[int]] = []
    for part in sorted((p for p, found in having.items() if len(found) > 1), key=rank):
        free = [at for at in having[part] if at not in group_of]
        if len(free) > 1:
            group_of.update(dict.fromkeys(free, len(groups)))
            groups.append(free)
    if not groups:
        return node
    rest = [arg for at, arg in enumerate(node.args) if at not in group_of]
    done = [
        _and_or(sc.Call(node.func, tuple(node.args[at] for at in group), BOOLEAN))
        for group in groups
    ]
    return _and_or(sc.Call(node.func, (*rest, *done), BOOLEAN))


def _not(node: sc.Call, arg: sc.Scalar) -> sc.Scalar:
    match arg:
        case sc.Literal(value=None):
            return sc.Literal(None, BOOLEAN)
        case sc.Literal(value=value):
            return sc.Literal(not value, BOOLEAN)
        case sc.Call(func="not", args=(inner,)):
            return inner
        case sc.Call(func="and" | "or" as op, args=args):
            other = "or" if op == "and" else "and"
            negated = tuple(_not(sc.Call("not", (a,), BOOLEAN), a) for a in args)
            return sc.Call(other, negated, BOOLEAN)
        case sc.Call(func=func, args=args):
            negation = functions.scalar(func).negation
            return node if negation is None else sc.Call(negation, args, BOOLEAN)
        case _:
            return node


def _is_null(node: sc.Call, arg: sc.Scalar, columns: Sequence[ColumnType]) -> sc.Scalar:
    match arg:
        case sc.Literal(value=value):
            return TRUE if value is None else FALSE
        case sc.LiteralError(message=message):
            return sc.LiteralError(message, BOOLEAN)
        case _ if not nullable(arg, columns):
            return FALSE
        case sc.Call(func=func, args=args):
            declared = functions.scalar(func)
            if declared.strict and not declared.introduces_nulls and args:
                # It is NULL exactly if an argument is, which is known even where it fails, so the function need not be
                # computed.
                parts = tuple(
                    _is_null(sc.Call("is_null", (a,), BOOLEAN), a, columns)
                    for a in args
                    if not isinstance(a, sc.Literal)
                )
                return _and_or(sc.Call("or", parts, BOOLEAN))
            return node
        case _:
            return node


def _coalesce(node: sc.Call, args: Sequence[sc.Scalar], columns: Sequence[ColumnType]) -> sc.Scalar:
    kept: list[sc.Scalar] = []
    for arg in args:
        if isinstance(arg, sc.Literal) and arg.value is None:
            continue
        if arg in kept:
            continue
        kept.append(arg)
        if not nullable(arg, columns):
            break
    if not kept:
        return sc.Literal(None, node.typ)
    if len(kept) == 1:
        return kept[0]
    return node if len(kept) == len(args) else sc.Call(node.func, tuple(kept), node.typ)
