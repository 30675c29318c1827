"""Appending to tables without a session, dataflows or leadership: what Spark's data source needs to write.

Promise: rows that many processes bring become one commit at one timestamp, or nothing. Each process turns its rows into
updates (`as_table_rows`) and, where they are many, writes them ahead as a batch (`TableAppender.write_ahead`); one
process commits what all of them have returned to it. A batch that was never committed is in no table: `discard` deletes
it, and that of a killed process is found by the maintenance of shards. The trade-off: constraints are checked when the
rows are made; only a drop of the table is noticed by the commit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from mzsql.adapter.commit.group_commit import GroupCommit
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.catalog import SessionCatalog
from mzsql.adapter.session.commit_batches import Write, discard_batch
from mzsql.adapter.statements.incoming import (
    cast_text,
    evaluated,
    is_text,
    safe_cast,
    takes,
    whole_rows,
)
from mzsql.catalog.builtin import Builtin
from mzsql.expr.scalar import Column
from mzsql.frontend.catalog import CatalogItem, partial_name
from mzsql.frontend.parse import statements as st
from mzsql.frontend.plan.dml import table_named
from mzsql.persist import Batch, MissingPart
from mzsql.repr.errors import DatatypeMismatch, NotReadable, UndefinedColumn
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationDesc, RelationType, SqlType, arrow_type
from mzsql.storage.tables import as_updates


class TableAppender:
    """Appends to the tables of an environment; made by `open_for_appending`. Thread-safe; a context manager.

    Args:
        env: the environment, closed with this.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._commits = GroupCommit(env)

    def table(self, name: str) -> CatalogItem:
        """The table that a name such as ``orders`` or ``public.orders`` refers to.

        Raises:
            UndefinedTable: there is nothing of this name.
            SqlError: the object cannot be written.
        """
        catalog = SessionCatalog(self._env.sync(), _NoColumns())
        return table_named(catalog, st.Name(partial_name(name), 0), "insert into")

    def write_ahead(self, gid: GlobalId, updates: pa.RecordBatchReader) -> Batch:
        """Write updates of a table as a batch that a commit can refer to; invisible until then."""
        self._env.require_writable()
        self._env.sync()  # the table may be younger than what this process has seen
        return self._env.collections.table(gid).batch(updates)

    def commit(self, gid: GlobalId, writes: Sequence[Write]) -> Timestamp:
        """Commit writes to a table, all at one timestamp, which is returned.

        Raises:
            UndefinedTable: the table was dropped meanwhile; nothing was written, and its batches are deleted.
            NotReadable: a batch waited longer than a day and was cleaned up as leaked; nothing was written.
            CommitOutcomeUnknown: a backend failed in a way that leaves the outcome open.
            SqlError: nothing was written.
        """
        self._check(gid, [one for one in writes if isinstance(one, Batch)])
        return self._commits.commit({gid: writes})

    def _check(self, gid: GlobalId, batches: Sequence[Batch]) -> None:
        if not batches or gid not in self._env.sync().items:
            return  # what was dropped, the commit tells
        table = self._env.collections.table(gid)
        try:
            table.check(batches)
        except MissingPart as gone:
            raise NotReadable(
                "nothing was written: rows that were made ready more than a day ago are not there any more",
                detail=str(gone),
                hint="Write them again: what waits longer than a day to be committed is cleaned up (mzsql maintain).",
            ) from None

    def discard(self, gid: GlobalId, batch: Batch) -> None:
        """Delete a batch that was never given to `commit`; failures are logged."""
        discard_batch(self._env, gid, batch)

    def close(self) -> None:
        """Close the environment. Idempotent."""
        self._commits.close()
        self._env.close()

    def __enter__(self) -> TableAppender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_for_appending(
    path: str | os.PathLike[str] | None = None,
    *,
    blob: str | None = None,
    consensus: str | None = None,
    oracle: str | None = None,
    profile: str | None = None,
) -> TableAppender:
    """Open the environment in a directory, at three URLs, or of a profile, for appending. The caller closes the result.

    Raises:
        EnvironmentRefused: there is none, or one of a newer format.
        Fenced: a higher deploy generation is in charge.
    """
    locations = locate(
        path, blob=blob, consensus=consensus, oracle=oracle, profile=profile, create=False
    )
    return TableAppender(Environment.open(locations, create=False))


class _NoColumns:
    """Builtin relations cannot be appended to, so their columns are never needed."""

    def builtin_desc(self, builtin: Builtin) -> RelationDesc:
        del builtin
        return RelationDesc((), RelationType(()))


def check_columns(item: CatalogItem, given: pa.Schema) -> None:
    """Check by names and types that columns can be appended to a table; columns that are not given get their defaults.

    Raises:
        UndefinedColumn: the table has no such column.
        DatatypeMismatch: a column does not accept such values, or is given twice.
    """
    desc = item.desc
    assert desc is not None
    for name in given.names:
        if name not in desc.names:
            raise UndefinedColumn(
                f'column "{name}" of relation "{item.name.item}" does not exist',
                hint=f"It has the columns {', '.join(desc.names)}.",
            )
        if given.names.count(name) > 1:
            raise DatatypeMismatch(f'column "{name}" specified more than once', sqlstate="42701")
        typ = desc.typ.columns[desc.names.index(name)].type
        found = given.field(name).type
        if not takes(typ, found) and not is_text(found):
            raise DatatypeMismatch(
                f'column "{name}" is of type {typ} but expression is of type {found}',
                hint="Cast it, or declare the column with this type.",
            )


def as_table_rows(item: CatalogItem, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Turn rows into updates of a table.

    Args:
        item: the table.
        rows: batches whose columns passed `check_columns`, matched by name.

    Returns:
        Tables with the columns c0, c1, …, mz_time (0) and mz_diff (1).

    Raises:
        DataError, NotNullViolation: a value does not fit its column; the message says which.
    """
    desc = item.desc
    assert desc is not None
    first = 1
    for batch in rows:
        columns = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            at = desc.names.index(name)
            columns[at] = _as_column(column, desc.typ.columns[at].type, name, first)
        yield as_updates(whole_rows(columns, item, batch.num_rows, partial(_row, first)))
        first += batch.num_rows


def _row(first: int, number: int) -> str:
    return f"Row {first + number}."


def _as_column(column: pa.Array, typ: SqlType, name: str, first: int) -> pa.Array | pa.ChunkedArray:
    if takes(typ, column.type):
        return safe_cast(column, typ, f'column "{name}"', first)
    texts = pa.table([column.cast(pa.string())], names=["c0"])
    values = evaluated(
        texts,
        [(cast_text(Column(0), typ), typ)],
        lambda row, _: f'Row {first + row}, column "{name}".',
    )
    return values.column(0).cast(arrow_type(typ))
