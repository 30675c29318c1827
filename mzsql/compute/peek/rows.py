"""Converts rows for results: updates of collections to rows, and constants of plans to Arrow.

Promise: a result is an Arrow table of the types of `mzsql.repr.types.arrow_schema`, with columns named as in the
query, and one row for each copy. An error row fails the read with its message.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.expr.numeric_folding import holds_numerics, is_held
from mzsql.repr.datum import Datum, Row
from mzsql.repr.decimals import carried
from mzsql.repr.errors import InternalError
from mzsql.repr.evaluation import failed
from mzsql.repr.tables import repeated
from mzsql.repr.types import ColumnType, RelationDesc, SqlType, arrow_type
from mzsql.repr.values import arrow_value


def expand(updates: pa.Table, name: str) -> pa.Table:
    """The rows of consolidated updates at one time, each as often as its diff says, without time, diff and error
    columns.

    Raises:
        DataError: there is an error row.
        InternalError: a row has a negative count.
    """
    rows, counts = counted(updates, name)
    if counts is None:
        return rows
    (copies,) = repeated(rows, counts)
    return copies


def counted(updates: pa.Table, name: str) -> tuple[pa.Table, np.ndarray | None]:
    """As `expand` before copying: the distinct rows and the count of each; None for counts that are all 1, or without
    mz_diff.

    Raises:
        SqlError: the rows have one of an error.
        InternalError: a row occurs less than never, so a view or index is wrong.
    """
    if "mz_error" in updates.column_names:
        errors = updates.column("mz_error")
        if errors.null_count < len(errors):
            raise failed(pc.drop_null(errors)[0].as_py())
        updates = updates.drop_columns(["mz_error"])
    if "mz_diff" not in updates.column_names:
        return updates, None
    diffs = updates.column("mz_diff")
    rows = updates.drop_columns([c for c in ("mz_time", "mz_diff") if c in updates.column_names])
    if not len(diffs) or pc.all(pc.equal(diffs, 1)).as_py():
        return rows, None
    counts = diffs.to_numpy()
    if counts.min() < 0:
        raise InternalError(f"{name} holds a row {counts.min()} times")
    return rows, counts


def named(rows: pa.Table, desc: RelationDesc, *, spelled: bool = False) -> pa.Table:
    """Name the columns as the relation does, and cast them to exactly its Arrow types; with `spelled`, constants may
    stay texts.
    """
    if not desc.arity:
        return rows.select([])  # what is left of them is their number
    columns = [
        column if _as_is(column.type, typ) else column.cast(typ)
        for column, typ in zip(
            rows.columns, (arrow_type(one.type) for one in desc.typ.columns), strict=True
        )
    ]
    # Column names of a result may repeat, which only the list form of Table's constructor allows.
    table = pa.table(columns, names=list(desc.names))
    return table if spelled else as_columns(table, desc)


def as_columns(rows: pa.Table, desc: RelationDesc) -> pa.Table:
    """A result with its texts of constants converted to the columns' Arrow types, digits beyond a column's scale
    rounded.

    Raises:
        NotCarried: a column cannot hold a constant.
    """
    types = [column.type for column in desc.typ.columns]
    if all(
        not pa.types.is_string(given.type) or pa.types.is_string(arrow_type(typ))
        for given, typ in zip(rows.columns, types, strict=False)
    ):
        return rows
    columns = []
    for given, typ in zip(rows.columns, types, strict=True):
        wanted = arrow_type(typ)
        if given.type != wanted and pa.types.is_string(given.type):
            values = [None if v is None else arrow_value(v, typ) for v in given.to_pylist()]
            columns.append(pa.chunked_array([pa.array(values, wanted)]))
        else:
            columns.append(given)
    return pa.table(columns, names=rows.column_names)


def _as_is(given: pa.DataType, wanted: pa.DataType) -> bool:
    return bool(
        given == wanted
        or (
            pa.types.is_string(given)
            and (pa.types.is_nested(wanted) or pa.types.is_decimal(wanted))
        )
    )


def _interval(value: Any) -> Any:
    months, days, micros = str(value).split(" ")
    return {"months": int(months), "days": int(days), "micros": int(micros)}


def decoder(typ: SqlType) -> Callable[[Any], Any]:
    """The function from a `Datum` that is not None to what Arrow takes for the type."""
    match typ.kind:
        case "numeric":
            return lambda v: carried(v, typ)
        case "uint8":
            return lambda v: decimal.Decimal(v)
        case "bytea":
            return lambda v: bytes.fromhex(v)
        case "date":
            return lambda v: v
        case "interval":
            return _interval
        case "list" | "array" | "map" | "record" | "range":
            return lambda v: arrow_value(v, typ)
        case _:
            return lambda v: v


def _may_exceed(typ: SqlType) -> bool:
    """Whether values of a type may be more than its Arrow type holds."""
    return typ.kind == "numeric" or holds_numerics(typ)


def constant_table(
    rows: Sequence[tuple[Row, int]], columns: Sequence[ColumnType], *, spelled: bool = False
) -> pa.Table:
    """The rows of a constant relation as columns c0 …, one row for each copy.

    Args:
        rows: the rows and their counts.
        columns: the columns' types.
        spelled: whether a column with a number that its Arrow type cannot hold is returned as texts, each the
            value's datum.

    Raises:
        NotCarried: there is such a number, and `spelled` is false.
        InternalError: a row has a negative count.
    """
    flat: list[tuple[Datum, ...]] = []
    for row, diff in rows:
        if diff < 0:
            raise InternalError("a constant holds a row a negative number of times")
        flat += [row] * diff
    arrays = []
    for i, column in enumerate(columns):
        if (
            spelled
            and _may_exceed(column.type)
            and not all(is_held(row[i], column.type) for row in flat)
        ):
            arrays.append(pa.array([row[i] for row in flat], pa.string()))
            continue
        decode = decoder(column.type)
        values = [None if row[i] is None else decode(row[i]) for row in flat]
        arrays.append(pa.array(values, arrow_type(column.type)))
    if not columns:
        # Rows without columns are counted by a column that the caller drops.
        return pa.table({"mz_copy": pa.nulls(len(flat))})
    return pa.table(arrays, names=[f"c{i}" for i in range(len(columns))])
