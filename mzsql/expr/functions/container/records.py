"""Records: rows as values, used as arguments of ordered aggregates.

Promise: the fields of a record are named f1, f2, … in every engine; a getter's key has the position, ``record_get_1``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.comparison import ANY
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.table import Engine, ScalarFunc, Sql
from mzsql.repr.types import ColumnType, SqlType

_GET = re.compile(r"record_get_(\d+)")


def record_type(args: Sequence[SqlType]) -> SqlType:
    """The type of records of these types, all nullable."""
    fields = tuple((f"f{i}", ColumnType(arg)) for i, arg in enumerate(args, start=1))
    return SqlType("record", fields=fields)


def _row(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    fields = {f"f{i}": arg.ast for i, arg in enumerate(args, start=1)}
    return s.cast(s.struct(**fields), typ, engine)


def getter(key: str) -> ScalarFunc:
    """The function with key ``record_get_<position>``, from 1.

    Raises:
        KeyError: it is another key.
    """
    match = _GET.fullmatch(key)
    if match is None:
        raise KeyError(key)
    position = int(match[1])

    def result(args: Sequence[SqlType]) -> SqlType:
        return args[0].fields[position - 1][1].type

    def value(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        return s.field(args[0].ast, f"f{position}")

    return ScalarFunc(
        key=key,
        name="record_get",
        args=(ANY,),
        result=result,
        value=value,
        explain=f"record_get[{position - 1}]({{0}})",
        introduces_nulls=True,
    )


def _item(kind: str) -> ScalarFunc:
    """An item for ``array_agg`` or ``list_agg``: a record with one field, which stands for (and prints as) a container
    of one element.
    """
    return ScalarFunc(
        key=f"{kind}_item",
        name=f"{kind}_item",
        args=(ANY,),
        result=record_type,
        value=_row,
        explain=f"{kind}[{{0}}]",
        strict=False,
    )


FUNCTIONS: tuple[ScalarFunc, ...] = (
    _item("array"),
    _item("list"),
    ScalarFunc(
        key="row",
        name="row",
        args=(),
        variadic=ANY,
        result=record_type,
        value=_row,
        strict=False,
    ),
)
