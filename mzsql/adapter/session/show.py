"""Results that are a few texts: SHOW of one variable, and the output of EXPLAIN."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mzsql.adapter.session.session import Session
from mzsql.catalog.settings import spelled
from mzsql.repr.types import TEXT, ColumnType, RelationDesc, RelationType

Rows = Sequence[tuple[str | None, ...]]


def text_desc(*names: str) -> RelationDesc:
    """A relation of text columns."""
    return RelationDesc(names, RelationType(tuple(ColumnType(TEXT, True) for _ in names)))


def show_variable(session: Session, name: str) -> tuple[RelationDesc, Rows]:
    """SHOW <variable>: its one value."""
    return text_desc(spelled(name)), [(session.get(name),)]


def as_table(desc: RelationDesc, rows: Rows) -> pa.Table:
    """The rows as an Arrow table of strings."""
    arrays = [pa.array([row[i] for row in rows], pa.string()) for i in range(desc.arity)]
    return pa.table(arrays, names=list(desc.names))
