"""Optimizer notices: what a user may want to change about a plan.

Promise: a notice follows from the plan and the indexes alone; nothing is planned again for it. There are four: an index
whose key is longer than the columns that a filter's literals fix, an index identical to another, an index without a
key, and a comparison with NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from mzsql.explain.config import Humanizer
from mzsql.explain.scalars import ScalarPrinter
from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.dataflow import IndexExport, MirDataflow
from mzsql.expr.mfp import extract_mfp
from mzsql.frontend import hir
from mzsql.repr.datum import Datum
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationType, SqlType
from mzsql.transform import IndexDesc


class Notice(msgspec.Struct, frozen=True):
    """A notice.

    Attributes:
        message: what was found.
        hint: what could be done about it.
        kind: its kind in `mz_notices`.
        about: objects without which it makes no sense.
    """

    message: str
    hint: str = ""
    kind: str = ""
    about: tuple[GlobalId, ...] = ()


#: So many combinations of literals a notice lists at most.
_MOST_COMBINATIONS = 100
#: An expression, and the literals that a filter says it is one of.
_Fixed = tuple[sc.Scalar, tuple[Datum, ...]]


class NoticeFinder:
    """Finds the notices on a dataflow."""

    def __init__(
        self,
        humanizer: Humanizer,
        indexes: Callable[[GlobalId], Sequence[IndexDesc]],
        *,
        redacted: bool = False,
    ) -> None:
        self._humanizer = humanizer
        self._indexes = indexes
        self._redacted = redacted

    def of(self, df: MirDataflow) -> list[Notice]:
        """The notices on a dataflow, without duplicates."""
        return list(dict.fromkeys(self.all_of(df)))

    def all_of(self, df: MirDataflow) -> list[Notice]:
        """The notices on a dataflow, one for each place."""
        found = self._of_export(df)
        for obj in reversed(df.objects):
            found.extend(self._of_filters(obj.plan))
        return found

    # --- indexes ------------------------------------------------------------------------------

    def _of_export(self, df: MirDataflow) -> list[Notice]:
        export = df.export
        if not isinstance(export, IndexExport):
            return []
        if not export.key:
            return [
                Notice(
                    "Empty index key. The index will be completely skewed to one worker thread, "
                    "which can lead to performance problems.",
                    "CREATE DEFAULT INDEX is almost always better than an index with an empty key. "
                    "(Except for cross joins with big inputs, which are better to avoid anyway.)",
                    "Empty index key",
                )
            ]
        for other in df.index_imports:
            if other.on_id == export.on_id and other.key == export.key and other.id != export.id:
                on = self._described(export.on_id, export.key)
                return [
                    Notice(
                        f"Index {self._humanizer.name(export.id)} is identical to "
                        f"{self._humanizer.name(other.id)}, which is also defined on {on}.",
                        f"Please drop all indexes except the first index created on {on} and "
                        "recreate all dependent objects.",
                        "An identical index already exists",
                        (other.id,),
                    )
                ]
        return []

    def _described(self, on: GlobalId, key: Sequence[sc.Scalar]) -> str:
        """``t(a, b)``."""
        shown = self._columns(on).scalars(key)
        return f"{self._humanizer.name(on).rsplit('.', 1)[-1]}({shown})"

    def _columns(self, on: GlobalId) -> ScalarPrinter:
        names = self._humanizer.column_names(on) or ()
        return ScalarPrinter(redacted=self._redacted, names=names, only_names=True)

    # --- filters ------------------------------------------------------------------------------

    def _of_filters(self, rel: mir.Relation) -> list[Notice]:
        found: list[Notice] = []
        stack: list[mir.Relation] = [rel]
        while stack:
            mfp, below = extract_mfp(stack.pop())
            if isinstance(below, mir.Get) and not isinstance(below.id, int):
                fixed = _fixed([pred for _, pred in mfp.predicates])
                found.extend(self._too_wide(below.id, below.typ, fixed))
            if not isinstance(getattr(below, "implementation", None), mir.IndexedFilter):
                stack.extend(reversed(mir.inputs(below)))
        return found

    def _too_wide(self, on: GlobalId, typ: RelationType, fixed: Sequence[_Fixed]) -> list[Notice]:
        known = dict(fixed)
        found: list[Notice] = []
        for index in self._indexes(on):
            usable = [expr for expr in index.key if expr in known]
            if not usable or len(usable) == len(index.key):
                continue
            printer = self._columns(on)
            types = [sc.scalar_type(expr, typ.columns) for expr in usable]
            equalities = _equalities(printer, usable, types, [known[expr] for expr in usable])
            wanted = printer.scalars(known)
            found.append(
                Notice(
                    f"Index {self._humanizer.name(index.id)} on {self._described(on, index.key)} "
                    f"is too wide to use for literal equalities `{equalities}`.",
                    "If your literal equalities filter out many rows, create an index whose key "
                    f"exactly matches your literal equalities: ({wanted}).",
                    "Index too wide for literal constraints",
                    (index.id,),
                )
            )
        return found


def _fixed(predicates: Sequence[sc.Scalar]) -> list[_Fixed]:
    """The expressions that predicates equate with literals."""
    found: dict[sc.Scalar, tuple[Datum, ...]] = {}
    for predicate in predicates:
        one = _fixed_by(predicate)
        if one is not None:
            found.setdefault(*one)
    return list(found.items())


def _fixed_by(predicate: sc.Scalar) -> _Fixed | None:
    match predicate:
        case sc.Call(func=func, args=(left, right)) if func.startswith("eq_"):
            for expr, other in ((left, right), (right, left)):
                if isinstance(other, sc.Literal) and not isinstance(expr, sc.Literal):
                    return expr, (other.value,)
            return None
        case sc.Call(func="or", args=args):
            parts = [_fixed_by(arg) for arg in args]
            if any(part is None for part in parts):
                return None
            fixed = [part for part in parts if part is not None]
            exprs = {expr for expr, _ in fixed}
            values = tuple(dict.fromkeys(value for _, many in fixed for value in many))
            return (fixed[0][0], values) if len(exprs) == 1 else None
        case _:
            return None


def _equalities(
    printer: ScalarPrinter,
    exprs: Sequence[sc.Scalar],
    types: Sequence[SqlType],
    values: Sequence[tuple[Datum, ...]],
) -> str:
    """``a = 1``, ``a IN (1, 2)``, ``a = 1 AND b = 2``, ``(a, b) IN ((1, 2), (1, 3))``.

    Where that were too many combinations, each expression by itself: ``a IN (1, 2) AND b IN (1, 2)``.
    """
    if len(values) > 1 and math.prod(map(len, values)) > _MOST_COMBINATIONS:
        each = zip(exprs, types, values, strict=True)
        return " AND ".join(_equalities(printer, [e], [t], [v]) for e, t, v in each)
    rows: list[tuple[Datum, ...]] = [()]
    for many in values:
        rows = [(*row, value) for row in rows for value in many]

    def cells(row: tuple[Datum, ...]) -> list[str]:
        return [printer.datum(value, typ) for value, typ in zip(row, types, strict=True)]

    def listed(texts: Sequence[str]) -> str:
        return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"

    names = [printer.scalar(expr) for expr in exprs]
    if len(rows) == 1:
        pairs = zip(names, cells(rows[0]), strict=True)
        return " AND ".join(f"{name} = {value}" for name, value in pairs)
    return f"{listed(names)} IN ({', '.join(listed(cells(row)) for row in rows)})"


def comparisons_with_null(query: hir.Query) -> list[Notice]:
    """The notice on a query that compares with NULL, which is never true."""
    for rel in hir.walk(query.relation):
        for outer in hir.relation_scalars(rel):
            if any(_is_with_null(inner) for inner in hir.walk_scalar(outer)):
                return [
                    Notice(
                        "Comparison with NULL using `=`, `<>`, or `!=` always evaluates to NULL.",
                        "Use `IS NULL` or `IS NOT NULL` instead.",
                        "Equality with null",
                    )
                ]
    return []


def _is_with_null(expr: hir.Scalar) -> bool:
    return (
        isinstance(expr, hir.Call)
        and expr.func.startswith(("eq_", "not_eq_"))
        and any(isinstance(arg, sc.Literal) and arg.value is None for arg in expr.args)
    )
