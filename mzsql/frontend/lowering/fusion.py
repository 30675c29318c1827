"""Fusion of window functions: several calls over the same window become one, whose result is a record.

Promise: functions of a value in another row (`lag`, `first_value`, …) fuse with each other, and so do aggregates, where
partition, order, frame and IGNORE NULLS are the same; ranks do not. So the rows of a partition are gathered once for all
of them. Columns keep their places and values; calls are fused at the place of the first, so that none reads a column
that comes after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from mzsql.expr.functions.aggregate.windows import FUSED
from mzsql.frontend import hir
from mzsql.frontend.hir_visit import map_columns
from mzsql.repr.types import ColumnType, SqlType


@dataclass
class _Group:
    """Calls over one window, with the columns that they were."""

    window: hir.Windowing
    first: int
    calls: dict[int, hir.Windowing] = field(default_factory=dict)


def fuse(
    scalars: Sequence[hir.Scalar], arity: int
) -> tuple[tuple[hir.Scalar, ...], tuple[int, ...]] | None:
    """The scalars of a Map with window functions fused, and where each of its columns then is; None where no two fuse.

    Args:
        scalars: the scalars.
        arity: how many columns the Map's input has.
    """
    groups = [group for group in _groups(scalars, arity) if len(group.calls) > 1]
    if not groups:
        return None
    starts = {group.first: group for group in groups}
    gone = {column for group in groups for column in group.calls}
    places = {column: column for column in range(arity)}
    made: list[hir.Scalar] = []
    for column, scalar in enumerate(scalars, start=arity):
        if column in starts:
            fused = _fused(list(starts[column].calls.values()))
            at = arity + len(made)
            made.append(_moved(fused, places))
            for position, old in enumerate(starts[column].calls):
                places[old] = arity + len(made)
                made.append(_field(hir.Column(at), position, fused.typ))
        elif column not in gone:
            places[column] = arity + len(made)
            made.append(_moved(scalar, places))
    return tuple(made), tuple(places[arity + i] for i in range(len(scalars)))


def _groups(scalars: Sequence[hir.Scalar], arity: int) -> list[_Group]:
    groups: list[_Group] = []
    for column, call in enumerate(scalars, start=arity):
        if not isinstance(call, hir.Windowing) or call.kind not in FUSED:
            continue
        window = msgspec.structs.replace(call, func="", args=(), typ=SqlType("record"))
        read = _reads(call)
        for group in groups:
            if group.window == window and all(at < group.first for at in read):
                group.calls[column] = call
                break
        else:
            groups.append(_Group(window, column, {column: call}))
    return groups


def _fused(calls: Sequence[hir.Windowing]) -> hir.Windowing:
    """One call for several over the same window; its result is a record of theirs."""
    fields = tuple((f"f{i + 1}", ColumnType(call.typ)) for i, call in enumerate(calls))
    return msgspec.structs.replace(
        calls[0],
        func=FUSED[calls[0].kind],
        kind="fused",
        args=tuple(arg for call in calls for arg in call.args),
        typ=SqlType("record", fields=fields),
        fused=tuple((call.func, call.kind) for call in calls),
    )


def _field(record: hir.Scalar, position: int, typ: SqlType) -> hir.Scalar:
    return hir.Call(f"record_get_{position + 1}", (record,), typ.fields[position][1].type)


def _reads(scalar: hir.Scalar) -> set[int]:
    """The columns of its own input that a scalar reads, also in its subqueries."""
    found: set[int] = set()

    def visit(depth: int, column: hir.Column) -> hir.Scalar:
        if column.level == depth:
            found.add(column.index)
        return column

    map_columns(scalar, visit)
    return found


def _moved(scalar: hir.Scalar, places: dict[int, int]) -> hir.Scalar:
    def moved(depth: int, column: hir.Column) -> hir.Scalar:
        return hir.Column(places[column.index], depth) if column.level == depth else column

    return map_columns(scalar, moved)
