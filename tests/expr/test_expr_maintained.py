"""Whatever a SELECT computes in process a view computes on either engine: no function is spelled for one of them alone."""

from __future__ import annotations

from mzsql.expr import functions, spell
from mzsql.expr.functions.table import Engine
from mzsql.expr.scalar import Call, Column
from mzsql.render.statement import columns_of
from mzsql.repr.errors import SqlError
from mzsql.repr.types import ColumnType, SqlType


def _calls() -> list[tuple[Call, list[ColumnType]]]:
    """A call over columns of each function whose types are all its own."""
    made = []
    for func in functions.all_scalars():
        if not all(isinstance(arg, SqlType) for arg in func.args):
            continue
        args = [ColumnType(arg) for arg in func.args]
        if isinstance(func.result, SqlType):
            columns = tuple(Column(i) for i in range(len(args)))
            made.append((Call(func.key, columns, func.result), args))
    return made


def _spelled(call: Call, args: list[ColumnType], engine: Engine) -> bool:
    try:
        spell.value(call, columns_of(args), engine)
        spell.error(call, columns_of(args), engine)
    except (SqlError, KeyError, IndexError, AssertionError):
        return False  # a function that takes literals only, or containers of a type to be said
    return True


def test_what_runs_in_process_runs_on_spark() -> None:
    calls = _calls()
    here = [one for one in calls if _spelled(*one, Engine.DUCKDB)]
    assert len(here) > 800
    assert [call.func for call, args in here if not _spelled(call, args, Engine.SPARK)] == []
