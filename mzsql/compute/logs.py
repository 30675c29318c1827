"""The introspection logs of a replica (relations of what only the replica knows of its dataflows), and LIR plans that
read them.

Promise: a log has a row for each fact that is true on the replica now, and no history. Only introspection subscribes
read logs (`mzsql.compute.controller.introspection` defines them). A log's id is a system id beyond those of the
catalog's relations, so no session can name it. The first column of a log, and of every plan over logs, is the id of
the dataflow's exported object. Values are texts, integers and booleans, which travel unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import Scalar
from mzsql.lir import plan as lir
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import (
    BIGINT,
    MZ_TIMESTAMP,
    TEXT,
    ColumnType,
    RelationDesc,
    RelationType,
)

#: A row of a log, or of the result of a plan over logs.
LogRow: TypeAlias = tuple[Any, ...]

_TEXT, _BIGINT = ColumnType(TEXT, False), ColumnType(BIGINT, False)
_TIME = ColumnType(MZ_TIMESTAMP, True)


class Log(msgspec.Struct, frozen=True):
    """One introspection log.

    Attributes:
        id: by which plans read it.
        desc: its columns.
    """

    id: GlobalId
    desc: RelationDesc


def _log(number: int, **columns: ColumnType) -> Log:
    names, types = tuple(columns), tuple(columns.values())
    return Log(GlobalId(f"s{1_000_000 + number}"), RelationDesc(names, RelationType(types)))


#: The upper of each exported object; NULL if it is sealed.
FRONTIERS = _log(1, export_id=_TEXT, time=_TIME)
#: The upper of each input of each exported object, as the replica sees it.
IMPORT_FRONTIERS = _log(2, export_id=_TEXT, import_id=_TEXT, time=_TIME)
#: For each LIR node the time spent, including running statements, the number of statements, and the number of rows
#: produced.
ELAPSED = _log(
    3, export_id=_TEXT, lir_id=_BIGINT, elapsed_ns=_BIGINT, statements=_BIGINT, rows_out=_BIGINT
)
#: What each worker of a LIR node has put out, while a hydration is under way that takes longer than a second. The worker
#: is NULL for rows of none, the number of rows where Spark writes them, which tells of bytes alone.
HYDRATION_PROGRESS = _log(
    4,
    export_id=_TEXT,
    lir_id=_BIGINT,
    worker_id=ColumnType(BIGINT, True),
    rows=ColumnType(BIGINT, True),
    bytes=_BIGINT,
)
#: All logs, by id.
LOGS = {log.id: log for log in (FRONTIERS, IMPORT_FRONTIERS, ELAPSED, HYDRATION_PROGRESS)}


class LogPlan(msgspec.Struct, frozen=True):
    """A plan over logs, and the type of its rows."""

    plan: lir.Plan
    typ: RelationType


def get(log: Log, mfp: MapFilterProject | None = None, *, lir_id: int = 0) -> lir.Get:
    """The LIR node that reads a log."""
    columns = log.desc.typ.columns
    read = MapFilterProject.identity(len(columns)) if mfp is None else mfp
    raw = lir.AvailableCollections(raw=True)
    return lir.Get(lir_id, log.id, raw, lir.GetCollection(read), columns)


def whole(log: Log) -> LogPlan:
    """The plan that returns a log unchanged."""
    return LogPlan(get(log), log.desc.typ)


def kept(log: Log, columns: Sequence[str], *predicates: Scalar) -> LogPlan:
    """The plan that returns some columns of the log's rows for which all predicates (over the log's columns) hold."""
    places = [log.desc.names.index(name) for name in columns]
    mfp = MapFilterProject.identity(log.desc.arity).filter(predicates).project(places)
    return LogPlan(
        get(log, mfp), RelationType(tuple(log.desc.typ.columns[place] for place in places))
    )


def over_logs(read: LogPlan) -> lir.DataflowDescription:
    """The dataflow description of a plan over logs."""
    logs = {
        node.id: LOGS[node.id]
        for node in lir.walk(read.plan)
        if isinstance(node, lir.Get) and isinstance(node.id, str)
    }
    of = GlobalId("t0")
    return lir.DataflowDescription(
        tuple(lir.SourceImport(log.id, log.desc.typ) for log in logs.values()),
        (),
        (lir.BuildDesc(of, read.plan, read.typ),),
        lir.PeekExport(of),
    )
