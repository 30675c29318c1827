"""Predicates on joins: which are equivalences, what they imply for single inputs, and what must not be NULL.

Promise: pure functions of expressions; `owner` gives for each column of a join its input. What is implied for an
input holds for every row of it that the join keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

from mzsql.expr import functions
from mzsql.expr import scalar as sc
from mzsql.expr.canonical import rank
from mzsql.expr.functions.number.numeric import WIDENED, common_numeric
from mzsql.expr.key_values import as_key
from mzsql.expr.typing import nullable
from mzsql.repr.types import BOOLEAN, TEXT, ColumnType
from mzsql.transform.equal_values import null_safe_equal
from mzsql.transform.fusion import conjuncts, merge_classes
from mzsql.transform.scalars import may_error


def said_not_null(pred: sc.Scalar) -> sc.Scalar | None:
    """The expression that a predicate says is not NULL; None if it says something else."""
    match pred:
        case sc.Call(func="not", args=(sc.Call(func="is_null", args=(expr,)),)):
            return expr
        case _:
            return None


def is_trivial(pred: sc.Scalar) -> TypeGuard[sc.Call]:
    """Whether a predicate says that an expression equals itself."""
    return (
        isinstance(pred, sc.Call) and pred.func.startswith("eq_") and pred.args[0] == pred.args[1]
    )


def of_one_type(
    left: sc.Scalar, right: sc.Scalar, columns: Sequence[ColumnType]
) -> tuple[sc.Scalar, sc.Scalar]:
    """Two sides of an equality as members of one class: converted to one type, so that equal values are one value in
    every engine.

    A numeric that does not fit the larger scale, and so equals nothing of it, becomes NULL.
    """
    left, right = as_key(left, columns), as_key(right, columns)
    types = tuple(sc.scalar_type(side, columns) for side in (left, right))
    if types[0] == types[1]:
        return left, right
    match types[0].kind:
        case "numeric":
            common = common_numeric(types)
            scales = [typ.effective_scale for typ in types]
            if scales[0] < scales[1]:
                return sc.Call(WIDENED, (left,), common), right
            if scales[0] > scales[1]:
                return left, sc.Call(WIDENED, (right,), common)
        case "char":
            # Trailing blanks do not count, and each side is padded to its own declared length.
            return sc.Call("char_to_text", (left,), TEXT), sc.Call("char_to_text", (right,), TEXT)
        case _:
            pass
    return left, right


def as_equivalence(
    pred: sc.Scalar, owner: Sequence[int], types: Sequence[ColumnType]
) -> tuple[tuple[sc.Scalar, ...], list[sc.Scalar]] | None:
    """The class that an equality of two inputs means, and the IS NOT NULL that excludes NULLs; None if it is no such
    equality.
    """
    match pred:
        case sc.Call(func=func, args=(left, right)) if func.startswith("eq_"):
            left_homes, right_homes = inputs_read(left, owner), inputs_read(right, owner)
            if len(left_homes | right_homes) < 2:
                return None
            left, right = of_one_type(left, right, types)
            first, other = sorted((left, right), key=rank)
            if isinstance(first, sc.Column):
                # The equality implies the same of the other side.
                return (left, right), never_null(first)
            # For the other side, require only that its columns are not NULL.
            columns = (p for p in never_null(other) if isinstance(said_not_null(p), sc.Column))
            return (left, right), [*never_null(first), *columns]
        case sc.Call(func="or", args=(either, other)):
            sides = _null_safe(either, other) or _null_safe(other, either)
            if sides is None:
                return None
            left, right = sides
            left_homes = {owner[c] for c in sc.support(left)}
            right_homes = {owner[c] for c in sc.support(right)}
            if len(left_homes) != 1 or len(right_homes) != 1 or left_homes == right_homes:
                return None
            ones = of_one_type(left, right, types)
            # A value that becomes NULL only because it does not fit the common type must not equal NULL.
            fits: list[sc.Scalar] = [
                sc.Call("or", (sc.Call("is_null", (side,), BOOLEAN), is_not_null(one)), BOOLEAN)
                for side, one in zip(sides, ones, strict=True)
                if isinstance(one, sc.Call) and one.func == WIDENED and one != side
            ]
            return ones, fits
        case _:
            return None


def _null_safe(equal: sc.Scalar, nulls: sc.Scalar) -> tuple[sc.Scalar, sc.Scalar] | None:
    """The sides of ``a = b OR (a IS NULL AND b IS NULL)``."""
    match equal, nulls:
        case sc.Call(func=func, args=(left, right)), sc.Call(func="and") if func.startswith("eq_"):
            said = {_null_part(arg.args[0]) for arg in conjuncts((nulls,)) if _is_null(arg)}
            if all(map(_is_null, conjuncts((nulls,)))) and said == {
                _null_part(left),
                _null_part(right),
            }:
                return left, right
    return None


def _is_null(pred: sc.Scalar) -> TypeGuard[sc.Call]:
    return isinstance(pred, sc.Call) and pred.func == "is_null"


def _null_part(expr: sc.Scalar) -> sc.Scalar:
    """An expression that is NULL exactly where `expr` is: its only argument that is not a literal."""
    while isinstance(expr, sc.Call):
        func = functions.scalar(expr.func)
        rest = [arg for arg in expr.args if not isinstance(arg, sc.Literal)]
        given = all(a.value is not None for a in expr.args if isinstance(a, sc.Literal))
        if not func.strict or func.introduces_nulls or len(rest) != 1 or not given:
            break
        expr = rest[0]
    return expr


def not_null(expr: sc.Scalar, columns: Sequence[ColumnType]) -> list[sc.Scalar]:
    """Predicates that keep the rows in which an expression is not NULL, over single columns where that is equivalent."""
    if not nullable(expr, columns):
        return []
    match expr:
        case sc.Call(func=key, args=args) if args:
            func = functions.scalar(key)
            if func.strict and not func.introduces_nulls:
                return [known for arg in args for known in not_null(arg, columns)]
    return [is_not_null(expr)]


def never_null(expr: sc.Scalar) -> list[sc.Scalar]:
    """As `not_null`, even for columns that cannot be NULL: what equals them may be."""
    match expr:
        case sc.Literal():
            return []
        case sc.Call(func=key, args=args) if args:
            func = functions.scalar(key)
            if func.strict and not func.introduces_nulls:
                return [known for arg in args for known in never_null(arg)]
    return [is_not_null(expr)]


def is_not_null(expr: sc.Scalar) -> sc.Scalar:
    """``expr IS NOT NULL``."""
    return sc.Call("not", (sc.Call("is_null", (expr,), BOOLEAN),), BOOLEAN)


def in_terms_of_firsts(
    classes: Sequence[tuple[sc.Scalar, ...]], owner: Sequence[int]
) -> tuple[tuple[sc.Scalar, ...], ...]:
    """Classes in which members that read several inputs read the first of equal columns."""
    firsts: dict[int, sc.Scalar] = {}
    for cls in classes:
        columns = [e for e in cls if isinstance(e, sc.Column)]
        firsts.update((e.index, columns[0]) for e in columns)
    return merge_classes(
        [
            tuple(_read_firsts(e, firsts) if len(inputs_read(e, owner)) > 1 else e for e in cls)
            for cls in classes
        ]
    )


def _read_firsts(expr: sc.Scalar, firsts: Mapping[int, sc.Scalar]) -> sc.Scalar:
    return _read_through(expr, {c: firsts.get(c, sc.Column(c)) for c in sc.support(expr)})


def within_inputs(
    classes: Sequence[tuple[sc.Scalar, ...]], owner: Sequence[int], columns: Sequence[ColumnType]
) -> tuple[tuple[tuple[sc.Scalar, ...], ...], list[sc.Scalar]]:
    """Split off members of one input that equal each other: that is a filter of this input."""
    kept: list[tuple[sc.Scalar, ...]] = []
    preds: list[sc.Scalar] = []
    for cls in classes:
        first: dict[int, sc.Scalar] = {}
        rest: list[sc.Scalar] = []
        for expr in cls:
            homes = {owner[c] for c in sc.support(expr)}
            if len(homes) != 1:
                rest.append(expr)
                continue
            (home,) = homes
            if home in first:
                preds.append(null_safe_equal(first[home], expr, columns))
            else:
                first[home] = expr
                rest.append(expr)
        kept.append(tuple(rest))
    return merge_classes(kept), preds


def implied(pred: sc.Scalar, owner: Sequence[int]) -> list[tuple[int, sc.Scalar]]:
    """What ``(a AND b) OR (c AND d)`` implies for single inputs, if each alternative says something of them: ``a OR
    c``.
    """
    if not (isinstance(pred, sc.Call) and pred.func == "or"):
        return []
    alternatives = [conjuncts((arg,)) for arg in pred.args]
    found: list[tuple[int, sc.Scalar]] = []
    for home in sorted({owner[c] for c in sc.support(pred)}):
        parts: list[sc.Scalar] = []
        for members in alternatives:
            # A predicate that can fail stays, because the disjunction may forgive its error.
            own = [p for p in members if inputs_read(p, owner) == {home} and not may_error(p)]
            if not own:
                break
            parts.append(own[0] if len(own) == 1 else sc.Call("and", tuple(own), BOOLEAN))
        else:
            distinct = sorted(dict.fromkeys(parts), key=rank)
            found.append(
                (
                    home,
                    distinct[0] if len(distinct) == 1 else sc.Call("or", tuple(distinct), BOOLEAN),
                )
            )
    return found


def inputs_read(expr: sc.Scalar, owner: Sequence[int]) -> set[int]:
    """The inputs that an expression reads."""
    return {owner[c] for c in sc.support(expr)}


def localize(
    pred: sc.Scalar, classes: Sequence[tuple[sc.Scalar, ...]], owner: Sequence[int]
) -> list[tuple[int, sc.Scalar]]:
    """The inputs that can evaluate a predicate, each with the predicate over its columns (still numbered as the
    join's).
    """
    reads = sc.support(pred)
    if not reads:
        return []
    found: list[tuple[int, sc.Scalar]] = []
    class_of = {e.index: cls for cls in classes for e in cls if isinstance(e, sc.Column)}
    for home in sorted(set(owner)):
        columns: dict[int, sc.Scalar] = {}
        for column in reads:
            if owner[column] == home:
                columns[column] = sc.Column(column)
                continue
            # Classes list columns first, so this prefers a column.
            match = next(
                (e for e in class_of.get(column, ()) if inputs_read(e, owner) == {home}), None
            )
            if match is None:
                break
            columns[column] = match
        else:
            found.append((home, _read_through(pred, columns)))
    return found


def _read_through(pred: sc.Scalar, columns: Mapping[int, sc.Scalar]) -> sc.Scalar:
    """A predicate with columns replaced by equal ones."""

    def replace(node: sc.Scalar) -> sc.Scalar:
        return columns[node.index] if isinstance(node, sc.Column) else node

    return sc.transform(pred, replace)
