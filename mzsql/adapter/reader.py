"""Reading an environment without a session, dataflows or leadership: what Spark's data source needs.

Promise: `EnvironmentReader` resolves a name, gives a timestamp at which a read sees every acknowledged write, and
returns a relation's contents or changes as Arrow tables, or as the Parquet parts that hold them. Tables and
materialized views are read from their shards; plain views and builtin relations are computed in this process, without
Spark. Nothing durable is written but read leases.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.catalog import SessionCatalog
from mzsql.catalog.builtin import Builtin, builtins
from mzsql.catalog.objects import DATABASE
from mzsql.compute.peek.rows import expand, named
from mzsql.frontend.catalog import CatalogItem, PartialName, partial_name
from mzsql.frontend.names.items import unknown_item
from mzsql.persist import Filters, PartRef, SinceViolation
from mzsql.repr.errors import DatatypeMismatch, InvalidParameter, NotReadable, UndefinedTable
from mzsql.repr.frontier import Frontier, Timestamp, show
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import RelationDesc
from mzsql.storage import DurableHold

_LOOK_ROWS = 100_000
"""`EnvironmentReader.changed` examines at most so many updates; past that it assumes a change."""

STORED = ("table", "materialized-view")


class RelationInfo(msgspec.Struct, frozen=True):
    """A relation that can be read.

    Attributes:
        id: its global id.
        database: its database; None for a builtin relation.
        schema, name: its name.
        kind: ``table``, ``view``, ``materialized-view`` or ``source``.
        desc: names and types of its columns.
    """

    id: GlobalId
    database: str | None
    schema: str
    name: str
    kind: str
    desc: RelationDesc

    @property
    def stored(self) -> bool:
        """Whether its contents are on a shard, so that it has parts and changes."""
        return self.kind in STORED

    @property
    def full_name(self) -> str:
        """``public.orders``: the name without the database."""
        return f"{self.schema}.{self.name}"


class Computes(Protocol):
    """Computes relations without a shard: plain views and builtin relations."""

    def builtin_desc(self, builtin: Builtin) -> RelationDesc:
        """A builtin relation's columns."""

    def read_relation(self, gid: GlobalId, as_of: Timestamp | None = None) -> pa.Table:
        """All rows of a relation."""


class EnvironmentReader:
    """Reads an environment; made by `open_read_only`. Thread-safe; a context manager.

    Args:
        env: the environment.
        computes: computes relations without a shard.
        close: called when the reader is closed.
        temporary: the schema of temporary objects of the session that it reads for; empty: it reads for none.
    """

    def __init__(
        self,
        env: Environment,
        computes: Computes,
        close: Callable[[], None] = lambda: None,
        temporary: str = "",
    ) -> None:
        self._temporary = temporary
        self._env = env
        self._computes = computes
        self._close = close

    def _catalog(self) -> SessionCatalog:
        return SessionCatalog(self._env.sync(), self._computes, temporary=self._temporary)

    def relations(self) -> list[RelationInfo]:
        """Every relation of the default database, users' before builtin ones, each group in order of id."""
        catalog = self._catalog()
        items = [
            catalog.item(i.id)
            for i in catalog.state.relations
            if i.database == DATABASE and not i.temporary
        ]
        items += [catalog.item(gid) for gid in builtins()]
        return [_info(item) for item in items]

    def relation(self, name: str) -> RelationInfo:
        """The relation of a name such as ``orders``, ``public.orders`` or ``materialize.public.orders``.

        Raises:
            UndefinedTable: there is none.
        """
        partial = partial_name(name)
        found = self.find(partial)
        if found is None:
            raise self.unknown(partial)
        return found

    def unknown(self, name: PartialName) -> UndefinedTable:
        """The error for a name that no relation has, with a similar one as its hint."""
        return unknown_item(self._catalog(), name)

    def has_schema(self, name: str) -> bool:
        """Whether the environment has a schema of this name."""
        catalog = self._catalog()
        return name in catalog.schema_names(catalog.database)

    def find(self, name: PartialName) -> RelationInfo | None:
        """The relation that a name refers to; None where there is none."""
        item = self._catalog().resolve_item(name)
        return None if item is None or item.desc is None else _info(item)

    def fresh_timestamp(self) -> Timestamp:
        """A timestamp at which a read sees every write acknowledged before this call."""
        return self._env.fresh_timestamp()

    def since(self, relation: RelationInfo) -> Frontier:
        """The earliest time at which a stored relation can be read."""
        return self._env.collections.since(relation.id)

    def upper(self, relation: RelationInfo) -> Frontier:
        """A stored relation's write frontier."""
        return self._env.collections.upper(relation.id)

    def wait(self, relation: RelationInfo, as_of: Timestamp, timeout: float = 60.0) -> None:
        """Wait until a stored relation is complete at ``as_of``.

        Raises:
            NotReadable: it is not after ``timeout`` seconds.
        """
        try:
            self._env.collections.wait_for_upper(relation.id, as_of, timeout)
        except NotReadable as late:
            if late.hint is None and relation.kind == "materialized-view":
                late.hint = "mz_internal.mz_compute_dataflow_statuses says what it waits for."
            raise

    def check(self, relation: RelationInfo, as_of: Timestamp, timeout: float = 60.0) -> None:
        """Check that a stored relation's contents can be read at ``as_of``, which is waited for.

        Raises:
            InvalidParameter: its history begins later.
            NotReadable: it is not complete at ``as_of`` after ``timeout`` seconds.
            DataError: it holds an error at ``as_of``.
        """
        self.wait(relation, as_of, timeout)
        since = self.since(relation)
        if since is None or as_of < since:
            raise InvalidParameter(
                f"Timestamp ({as_of}) is not valid for all inputs: {show(since)}",
                detail=f"The history of {relation.full_name} begins there.",
            )
        self._check_errors(relation, as_of)

    def rows(
        self,
        relation: RelationInfo,
        as_of: Timestamp | None = None,
        *,
        columns: Sequence[str] | None = None,
        timeout: float = 60.0,
    ) -> pa.Table:
        """A relation's contents at a timestamp.

        Args:
            relation: any relation.
            as_of: the timestamp; a fresh one by default.
            columns: names of the columns wanted, in this order; all by default.
            timeout: seconds to wait until a stored relation is complete at ``as_of``.

        Returns:
            A table with the relation's column names, and as many copies of a row as the relation has.

        Raises:
            NotReadable: the relation was not complete at ``as_of`` in time.
            DataError: the relation holds an error at ``as_of``.
        """
        desc = relation.desc
        positions = list(range(desc.arity))
        if columns is not None:
            positions = [desc.names.index(c) for c in columns]
        if not relation.stored:
            table = self._computes.read_relation(relation.id, as_of)
            return table.select(positions)
        at = self.fresh_timestamp() if as_of is None else as_of
        self.wait(relation, at, timeout)
        updates = self._env.collections.snapshot(relation.id, at)
        rows = named(expand(updates, relation.full_name), desc)
        return rows.select(positions)

    def parts(
        self, relation: RelationInfo, as_of: Timestamp, timeout: float = 60.0
    ) -> Sequence[PartRef]:
        """The parts of a stored relation's contents at ``as_of``.

        Their columns are c0, c1, …, mz_error (where the relation can hold errors), mz_time and mz_diff. Keep the
        returned objects alive while the files are read. A reader takes a row's time to be ``greatest(mz_time,
        time_floor)`` and keeps the rows at or below ``as_of``.
        """
        _require_stored(relation)
        self.wait(relation, as_of, timeout)
        return self._env.collections.parts(relation.id, as_of)

    def changes(
        self, relation: RelationInfo, lower: Timestamp, upper: Timestamp, timeout: float = 60.0
    ) -> pa.Table:
        """A stored relation's updates with ``lower <= mz_time < upper``: its columns by name, then mz_time and mz_diff."""
        _require_stored(relation)
        collections = self._env.collections
        if lower < upper:
            self.wait(relation, upper - 1, timeout)
        updates = collections.updates(relation.id, lower, upper)
        names = [*relation.desc.names, "mz_time", "mz_diff"]
        if collections.has_errors(relation.id):
            expand(updates.filter(pa.compute.is_valid(updates.column("mz_error"))), relation.name)
            updates = updates.drop_columns(["mz_error"])
        return pa.table(updates.columns, names=names)

    def stored_rows(self, relation: RelationInfo, as_of: Timestamp, after: Timestamp = -1) -> int:
        """An upper bound on the number of updates that `pieces` returns."""
        return sum(part.rows for part in self._parts(relation, as_of, after))

    def pieces(
        self,
        relation: RelationInfo,
        as_of: Timestamp,
        *,
        after: Timestamp = -1,
        columns: Sequence[int] | None = None,
        filters: Filters | None = None,
        timeout: float = 60.0,
    ) -> Iterator[pa.Table]:
        """A stored relation's updates with ``after < mz_time <= as_of``, one table for each stored part, not
        consolidated.

        Args:
            relation: a table or a materialized view.
            as_of: the last time wanted; waited for.
            after: only later times are wanted. With the default of -1 all are, compacted history being at the
                relation's since.
            columns: positions of the columns, in this order before mz_time and mz_diff; all by default.
            filters: conditions on ``c0``, ``c1``, …; see `mzsql.persist.Filters`.
            timeout: seconds to wait for ``as_of``.

        Raises:
            DataError: the relation holds an error at ``as_of``.
            NotReadable: history after ``after`` was compacted away.
        """
        self.wait(relation, as_of, timeout)
        self._check_errors(relation, as_of)
        positions = range(relation.desc.arity) if columns is None else columns
        names = [f"c{i}" for i in positions]
        timed = pc.field("mz_time")
        wanted = (timed > after) & (timed <= as_of)
        if self._env.collections.has_errors(relation.id):
            wanted &= pc.field("mz_error").is_null()
            names.append("mz_error")
        for part in self._parts(relation, as_of, after, filters):
            updates = part.to_arrow(columns=names, filters=filters).filter(wanted)
            yield updates.select([f"c{i}" for i in positions] + ["mz_time", "mz_diff"])

    def _parts(
        self,
        relation: RelationInfo,
        as_of: Timestamp,
        after: Timestamp,
        filters: Filters | None = None,
    ) -> Sequence[PartRef]:
        _require_stored(relation)
        collections = self._env.collections
        if after < 0:
            return collections.parts(relation.id, as_of, filters=filters)
        try:
            return collections.parts_between(relation.id, after + 1, as_of + 1)
        except SinceViolation as gone:
            raise NotReadable(
                f"the changes of {relation.full_name} after {after} are not kept: its history begins at {show(gone.since)}",
                hint="Begin later, or leave the beginning out to begin with the contents.",
            ) from None

    def _check_errors(self, relation: RelationInfo, as_of: Timestamp) -> None:
        """Raise the error that the relation holds at ``as_of``, if any; errors retracted by then do not count."""
        if not self._env.collections.has_errors(relation.id):
            return
        only = {"mz_error": [("", None)]}
        for part in self._env.collections.parts(relation.id, as_of, filters=only):
            errors = part.to_arrow(columns=["mz_error"], filters=only)
            if errors.num_rows:  # seldom: then all of them are added up
                expand(self._env.collections.snapshot(relation.id, as_of), relation.full_name)
                return

    def changed(self, relation: RelationInfo, as_of: Timestamp, after: Timestamp) -> bool:
        """Whether something may have changed at times ``after < t <= as_of``; False is certain."""
        parts = self._parts(relation, as_of, after)
        if sum(part.rows for part in parts) > _LOOK_ROWS:
            return True
        timed = pc.field("mz_time")
        return any(
            part.to_arrow(columns=[]).filter((timed > after) & (timed <= as_of)).num_rows
            for part in parts
        )

    def let_go(self, relation: RelationInfo, until: Timestamp) -> None:
        """Release this process's own hold on a relation's history before ``until``; other holds stay."""
        self._env.collections.release_history(0, {relation.id: until})

    def durable_hold(self, relation: RelationInfo, name: str, purpose: str) -> DurableHold:
        """A named hold on a stored relation's history that survives this process until it is released.

        Where a hold of this name exists it is shared with its other users; else it is created at the relation's since.
        """
        _require_stored(relation)
        return DurableHold(self._env.collections, relation.id, name, purpose)

    def release_durable_hold(self, name: str) -> bool:
        """Release the durable hold of a name, whichever relation it is on; False where there was none."""
        state, persist = self._env.sync(), self._env.persist
        for item in state.relations:
            if item.kind not in STORED:
                continue
            shard = self._env.collections.meta(item.id).shard
            seen = persist.inspect(shard)
            if seen is not None and name in seen.critical:
                persist.open_critical_reader(shard, name, token=name).release()
                return True
        return False

    def require_history(self, relation: RelationInfo) -> None:
        """Check that a relation has changes to read.

        Raises:
            DatatypeMismatch: it is not stored, and so has none.
        """
        _require_stored(relation)

    def close(self) -> None:
        """Close the environment, if this reader has opened it. Idempotent."""
        self._close()

    def __enter__(self) -> EnvironmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _info(item: CatalogItem) -> RelationInfo:
    assert item.desc is not None
    name = item.name
    return RelationInfo(item.id, name.database, name.schema, name.item, item.kind, item.desc)


def _require_stored(relation: RelationInfo) -> None:
    if not relation.stored:
        raise DatatypeMismatch(
            f'"{relation.full_name}" is a {relation.kind}: only tables and materialized views have a history',
            sqlstate="42809",
        )


def open_read_only(
    path: str | os.PathLike[str] | None = None,
    *,
    blob: str | None = None,
    consensus: str | None = None,
    oracle: str | None = None,
    profile: str | None = None,
) -> EnvironmentReader:
    """Open the environment in a directory, at three URLs, or of a profile, for reading. The caller closes the reader.

    Raises:
        EnvironmentRefused: there is none, or one of a newer format.
    """
    locations = locate(
        path, blob=blob, consensus=consensus, oracle=oracle, profile=profile, create=False
    )
    own = _Own(Environment.open(locations, read_only=True))
    return EnvironmentReader(own.env, own, own.close)


class _Own:
    """An environment opened for reading; what has no shard is computed by a coordinator that is created at first use."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self._lock = threading.Lock()
        self._coordinator: Coordinator | None = None

    def builtin_desc(self, builtin: Builtin) -> RelationDesc:
        """See `Computes`."""
        return self._runs().builtin_desc(builtin)

    def read_relation(self, gid: GlobalId, as_of: Timestamp | None = None) -> pa.Table:
        """See `Computes`."""
        return self._runs().read_relation(gid, as_of)

    def _runs(self) -> Coordinator:
        """The coordinator, which runs no dataflows."""
        with self._lock:
            if self._coordinator is None:
                self._coordinator = Coordinator(self.env, spark=None, lead=False)
            return self._coordinator

    def close(self) -> None:
        """Close both. Idempotent."""
        if self._coordinator is not None:
            self._coordinator.close()
        self.env.close()
