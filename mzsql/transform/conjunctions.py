"""Simplifies the predicates of one filter by each other.

Promise: the set of rows for which all predicates are true stays the same, and no predicate fails that did not
before. A predicate that can fail is rewritten only by one that precedes it, which then drops the row first.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr import functions
from mzsql.expr import scalar as sc
from mzsql.expr.memo import memo
from mzsql.expr.typing import nullable, strict_columns
from mzsql.repr.types import BOOLEAN, ColumnType
from mzsql.transform.context import OptimizerContext
from mzsql.transform.scalars import FALSE, TRUE, may_error, simplify

#: The most predicates that are compared with each other; if there are more, each is simplified alone.
_COMPARED = 100
#: The most rewrites of one conjunction. Each replaces a part by a truth value, so far fewer are enough.
_REWRITTEN = 1000


def reduce_across(
    predicates: Sequence[sc.Scalar], columns: Sequence[ColumnType], ctx: OptimizerContext
) -> list[sc.Scalar]:
    """Predicates with what the others imply substituted: ``p AND f(p)`` becomes ``p AND f(TRUE)`` if p is never NULL.

    They are simplified already; a resulting AND is taken apart.
    """
    preds = list(dict.fromkeys(predicates))
    if not 1 < len(preds) <= _COMPARED:
        return preds
    for _ in range(_REWRITTEN):
        facts = _facts(preds, columns)
        changed = list(preds)
        for at, pred in enumerate(preds):
            if not isinstance(pred, sc.Call | sc.If):
                continue
            fails = may_error(pred)
            # A predicate that can fail uses only facts of predicates before it: one that comes later does not keep it
            # from failing.
            known = {
                part: truth
                for part, (truth, by) in facts.items()
                if by != at and (by < at or not fails)
            }
            new = _knowing(pred, known)
            if new != pred:
                changed[at] = simplify(new, columns, ctx)
                break
        else:
            return preds
        taken_apart = [part for pred in changed for part in taken(pred, pred)]
        preds = [pred for pred in dict.fromkeys(taken_apart) if pred != TRUE]
    return preds


def _facts(
    preds: Sequence[sc.Scalar], columns: Sequence[ColumnType]
) -> dict[sc.Scalar, tuple[sc.Literal, int]]:
    """What is TRUE or FALSE in every row for which all predicates are true, and the predicate that implies it."""
    facts: dict[sc.Scalar, tuple[sc.Literal, int]] = {}
    for at, pred in enumerate(preds):
        if may_error(pred) or isinstance(pred, sc.Literal):
            continue
        for column in _rejects(pred):
            facts.setdefault(sc.Call("is_null", (sc.Column(column),), BOOLEAN), (FALSE, at))
        match pred:
            case sc.Call(func="not", args=(inner,)) if not nullable(inner, columns):
                facts.setdefault(inner, (FALSE, at))
            case _ if not nullable(pred, columns):
                facts.setdefault(pred, (TRUE, at))
    return facts


def _knowing(pred: sc.Scalar, known: dict[sc.Scalar, sc.Literal]) -> sc.Scalar:
    return sc.transform(pred, lambda node: known.get(node, node))


def simplified_apart(
    pred: sc.Scalar, columns: Sequence[ColumnType], ctx: OptimizerContext
) -> list[sc.Scalar]:
    """Simplify a predicate as a whole, then take it apart; what can fail still follows what it was written after."""
    whole = simplify(pred, columns, ctx)
    if not (isinstance(whole, sc.Call) and whole.func == "and"):
        return [whole]
    written = [simplify(part, columns, ctx) for part in _conjuncts(pred)]
    return taken(whole, sc.Call("and", tuple(written), BOOLEAN))


def taken(whole: sc.Scalar, written: sc.Scalar) -> list[sc.Scalar]:
    """The predicates of an AND: first those that cannot fail, then those that can, in the order of another AND, then
    those that are not in it.
    """
    at: dict[sc.Scalar, int] = {}
    for part in _conjuncts(written):
        at.setdefault(part, len(at))
    last = len(at)
    return sorted(_conjuncts(whole), key=lambda part: at.get(part, last) if may_error(part) else -1)


def _conjuncts(pred: sc.Scalar) -> list[sc.Scalar]:
    if not (isinstance(pred, sc.Call) and pred.func == "and"):
        return [pred]
    return [part for arg in pred.args for part in _conjuncts(arg)]


def without_redundant_not_nulls(predicates: Sequence[sc.Scalar]) -> list[sc.Scalar]:
    """Predicates without each ``x IS NOT NULL`` for a column whose NULL another predicate rejects anyway, without
    failing.
    """
    rejected: set[int] = set()
    for pred in predicates:
        if _not_null_column(pred) is None:
            rejected |= _rejects(pred)
    return [p for p in predicates if _not_null_column(p) not in rejected]


def _not_null_column(pred: sc.Scalar) -> int | None:
    match pred:
        case sc.Call(func="not", args=(sc.Call(func="is_null", args=(sc.Column(index=index),)),)):
            return index
        case _:
            return None


def _rejects(pred: sc.Scalar) -> frozenset[int]:
    """Columns whose NULL makes a predicate NULL before anything in it can fail."""
    known: dict[sc.Scalar, frozenset[int]] = memo("rejected NULLs")
    rejected = known.get(pred)
    if rejected is None:
        rejected = known[pred] = _rejected(pred)
    return rejected


def _rejected(pred: sc.Scalar) -> frozenset[int]:
    found = strict_columns(pred)
    for node in sc.walk(pred):
        fails = isinstance(node, sc.Call) and functions.scalar(node.func).may_error
        if isinstance(node, sc.LiteralError):
            return frozenset()
        if fails:
            found &= strict_columns(node)
    return found
