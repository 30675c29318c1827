"""The relations in which a replica keeps what only it knows of its dataflows, and the LIR plans that read them.

Promise: a log has a row for each thing that is so on the replica now, nothing of the past, and is read by introspection subscribes alone
(`mzsql.compute.controller.introspection` defines those). Its id is among the system's, beyond those of the catalog's relations, as no
session can name it. The first column is the export of the dataflow that a row is of, in what a plan makes of it, too. Rows hold text,
whole numbers and booleans, so that they travel as they are.
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

#: A row of a log, or of what a subscribe makes of logs.
LogRow: TypeAlias = tuple[Any, ...]

_TEXT, _BIGINT = ColumnType(TEXT, False), ColumnType(BIGINT, False)
_TIME = ColumnType(MZ_TIMESTAMP, True)


class Log(msgspec.Struct, frozen=True):
    """One of them.

    Attributes:
        id: what plans read it by.
        desc: its columns.
    """

    id: GlobalId
    desc: RelationDesc


def _log(number: int, **columns: ColumnType) -> Log:
    names, types = tuple(columns), tuple(columns.values())
    return Log(GlobalId(f"s{1_000_000 + number}"), RelationDesc(names, RelationType(types)))


#: How far each export is complete; NULL where it is for ever.
FRONTIERS = _log(1, export_id=_TEXT, time=_TIME)
#: How far what each export reads is complete as the replica sees it.
IMPORT_FRONTIERS = _log(2, export_id=_TEXT, import_id=_TEXT, time=_TIME)
#: For how long the replica was at each node, with what is under way, and how many rows came out of that.
ELAPSED = _log(
    3, export_id=_TEXT, lir_id=_BIGINT, elapsed_ns=_BIGINT, statements=_BIGINT, rows_out=_BIGINT
)
#: All that there are, by id.
LOGS = {log.id: log for log in (FRONTIERS, IMPORT_FRONTIERS, ELAPSED)}


class LogPlan(msgspec.Struct, frozen=True):
    """A plan over logs, and the type of its rows."""

    plan: lir.Plan
    typ: RelationType


def get(log: Log, mfp: MapFilterProject | None = None, *, lir_id: int = 0) -> lir.Get:
    """The node that reads a log."""
    columns = log.desc.typ.columns
    read = MapFilterProject.identity(len(columns)) if mfp is None else mfp
    raw = lir.AvailableCollections(raw=True)
    return lir.Get(lir_id, log.id, raw, lir.GetCollection(read), columns)


def whole(log: Log) -> LogPlan:
    """The plan that tells a log as it is."""
    return LogPlan(get(log), log.desc.typ)


def kept(log: Log, columns: Sequence[str], *predicates: Scalar) -> LogPlan:
    """The plan that tells some columns of those rows of a log for which all predicates (over its columns) hold."""
    places = [log.desc.names.index(name) for name in columns]
    mfp = MapFilterProject.identity(log.desc.arity).filter(predicates).project(places)
    return LogPlan(
        get(log, mfp), RelationType(tuple(log.desc.typ.columns[place] for place in places))
    )


def over_logs(read: LogPlan) -> lir.DataflowDescription:
    """The dataflow of a plan over logs, those that it reads imported."""
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
