"""The rows of introspection relations that every process can compute: plans, arrangement sizes, errors, sessions,
history.

Promise: rows about dataflows follow from the catalog, the plans and the shards alone, so every process gives the same,
whatever state the replicas are in. The replica's id is the first column. A dataflow's id and its operators' ids are
derived from the exported object's id: numbers from ``dataflow_id`` on, first the dataflow, then its nodes by LIR id.
"""

from __future__ import annotations

import datetime
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, get_args

import msgspec
import pyarrow.compute as pc

from mzsql.adapter.environment.cache_entries import GlobalExpressions
from mzsql.adapter.planning.names import Names
from mzsql.adapter.system.existing import FetchedAhead, StateOf, states_ahead
from mzsql.adapter.system.source import Rows, Source
from mzsql.catalog.objects import Index, Item, Maintained, MaterializedView, Replica, Stored
from mzsql.catalog.settings import path_of
from mzsql.catalog.state import CatalogState
from mzsql.explain.operators import Operator, operators
from mzsql.location import LocationError
from mzsql.persist import PersistClient, ShardState
from mzsql.render.nodes.naming import fingerprint_in, index_in
from mzsql.repr.errors import SqlError
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId, sort_key
from mzsql.repr.refresh import done
from mzsql.repr.types import RelationDesc
from mzsql.repr.version import VERSION
from mzsql.storage import Reach

#: Numbers reserved for each dataflow: more than any plan has nodes.
_OPERATORS = 1 << 16
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
#: The kinds of objects.
_OBJECTS = frozenset(one.kind for one in get_args(Item))
#: A filter that every error row passes.
_ERRORS: dict[str, list[tuple[Any, Any]]] = {"mz_error": [("", None)]}


def dataflow_id(gid: GlobalId) -> int:
    """The number of an object's dataflow, the same on every replica."""
    return sort_key(gid)[1] * _OPERATORS


def operator_id(gid: GlobalId, lir_id: int) -> int:
    """The number of a node of an object's dataflow."""
    return dataflow_id(gid) + 1 + lir_id


def _replicas(state: CatalogState) -> Callable[[str | None], list[Replica]]:
    """What gives the replicas that run the dataflows of a cluster, by its name."""

    @functools.cache
    def of(name: str | None) -> list[Replica]:
        cluster = state.cluster(name or "")
        return [] if cluster is None else state.working(cluster.id)

    return of


def worker_rows(source: Source) -> Rows:
    """The workers of each replica."""
    for replica in source.state.replicas.values():
        for worker in range(replica.workers):
            yield replica.id, worker


def dataflow_rows(source: Source) -> Rows:
    """The dataflows of each replica."""
    state = source.state
    replicas_of = _replicas(state)
    for item in state.maintained:
        for replica in replicas_of(item.cluster):
            yield replica.id, dataflow_id(item.id), f"Dataflow: {item.full_name}", item.id


def lir_mapping_rows(source: Source) -> Rows:
    """The nodes of each dataflow's plan, and the range of operators that each is."""
    state = source.state
    names = Names(state, _NoColumns(), {})
    replicas_of = _replicas(state)
    for item, runs in source.running():
        replicas = replicas_of(item.cluster)
        if not replicas or runs is None:
            continue
        told = _Printed(runs, names)
        first = operator_id(item.id, 0)
        for replica in replicas:
            for lir_id in runs.lir_ids:
                start = first + lir_id
                # What takes a printed plan is found only where it is read: most of the time would go there.
                texts = (
                    partial(told.name, lir_id),
                    partial(told.parent, lir_id),
                    partial(told.nesting, lir_id),
                )
                yield replica.id, item.id, lir_id, *texts, start, start + 1


class _Printed:
    """What a dataflow's printed plan says of its nodes, printed when it is first asked for."""

    __slots__ = ("_found", "_names", "_runs")

    def __init__(self, runs: GlobalExpressions, names: Names) -> None:
        self._runs = runs
        self._names = names
        self._found: dict[int, Operator] | None = None

    def name(self, lir_id: int) -> str:
        """A node's line in EXPLAIN."""
        return self._of(lir_id).name

    def parent(self, lir_id: int) -> int | None:
        """The node whose input it is."""
        return self._of(lir_id).parent

    def nesting(self, lir_id: int) -> int:
        """How far it is indented."""
        return self._of(lir_id).nesting

    def _of(self, lir_id: int) -> Operator:
        if self._found is None:
            nodes = (operators(built.plan, self._names) for built in self._runs.plan.objects)
            self._found = {one.lir_id: one for of_one in nodes for one in of_one}
        return self._found[lir_id]


class _NoColumns:
    """The names of columns are not shown."""

    def desc(self, gid: GlobalId) -> RelationDesc:
        raise SqlError(f"the names of columns are not shown: {gid}")


# --- arrangements -----------------------------------------------------------------------------


def arrangement_size_rows(source: Source) -> Rows:
    """The size of each arrangement as stored, by worker."""
    workers = {one.id: one.workers for one in source.state.replicas.values()}
    found = list(source.arrangements())
    ahead = states_ahead(source.env.persist, [shard for *_, shard in found])
    for gid, lir_id, replica, shard in found:
        figure = _Sized(ahead.of, shard).figure
        for worker in range(workers.get(replica, 1)):
            records, batches, size = (partial(figure, worker, place) for place in range(3))
            yield replica, gid, lir_id, worker, records, batches, size, size, batches


class _Sized:
    """A shard's updates, batches and bytes by worker, looked up when they are first asked for."""

    __slots__ = ("_found", "_shard", "_state_of")

    def __init__(self, state_of: StateOf, shard: str) -> None:
        self._state_of = state_of
        self._shard = shard
        self._found: dict[int, tuple[int, int, int]] | None = None

    def figure(self, worker: int, place: int) -> int:
        """Of a worker, the number of updates (0), of batches (1) or of bytes (2)."""
        if self._found is None:
            self._found = _sizes(self._state_of(self._shard))
        return self._found.get(worker, (0, 0, 0))[place]


def _sizes(state: ShardState | None) -> dict[int, tuple[int, int, int]]:
    """A shard's updates, batches and bytes, by worker."""
    records: Counter[int] = Counter()
    batches: Counter[int] = Counter()
    size: Counter[int] = Counter()
    for batch in () if state is None else state.trace:
        batches.update({part.worker or 0 for part in batch.parts})
        for part in batch.parts:
            records[part.worker or 0] += part.rows
            size[part.worker or 0] += part.size
    return {worker: (records[worker], batches[worker], size[worker]) for worker in records}


# --- errors -----------------------------------------------------------------------------------


def arranged_indexes(state: CatalogState) -> dict[tuple[str, str], list[str]]:
    """The shards of indexes, by replica and index."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, shard in sorted(state.arrangements.items()):
        replica, _, rest = name.partition("/")
        index = index_in(fingerprint_in(rest))
        if index is not None:
            found.setdefault((replica, index), []).append(shard)
    return found


def error_count_rows(source: Source) -> Rows:
    """The current number of errors in each export."""
    state = source.state
    shards = arranged_indexes(state)
    logged = functools.cache(source.env.collections.logged)
    replicas_of = _replicas(state)
    exports: list[tuple[Replica, Maintained, str]] = []
    for item in state.maintained:
        for replica in replicas_of(item.cluster):
            if isinstance(item, MaterializedView):
                exports.append((replica, item, item.shard))
            else:
                found = shards.get((replica.id, item.id), ())
                exports.extend((replica, item, shard) for shard in found[-1:])
    persist = source.env.persist
    absent: int | None = 0
    wanted = [shard for *_, shard in exports]
    counts = FetchedAhead(persist, wanted, partial(_counted, persist), absent)
    for replica, item, shard in exports:
        if isinstance(item, MaterializedView):
            yield replica.id, item.id, partial(_errors_of, source, item, logged, counts)
        else:
            yield replica.id, item.id, partial(_errors_in, source, shard, counts)


def _errors_of(
    source: Source,
    item: MaterializedView,
    logged: Callable[[], frozenset[str]],
    counts: FetchedAhead[int | None],
) -> int:
    """The number of errors in a view: in its shard, where that has all of the view."""
    if item.shard not in logged():
        counted = counts.of(item.shard)
        if counted is not None:
            return counted
    collections = source.env.collections
    at = _last_readable(*collections.frontiers(item.id))
    if at is None:
        return 0
    found = collections.snapshot(item.id, at, [], filters=_ERRORS)
    return _count(found.column("mz_error"), found.column("mz_diff"))


def _errors_in(source: Source, shard: str, counts: FetchedAhead[int | None]) -> int:
    """The number of errors in an index's shard."""
    counted = counts.of(shard)
    if counted is not None:
        return counted
    try:
        reader = source.env.persist.open_reader(shard)
    except LocationError:
        return 0  # it is being filled anew
    try:
        at = _last_readable(reader.since, reader.upper)
        if at is None:
            return 0
        found = reader.snapshot_arrow(at, columns=["mz_error"], filters=_ERRORS)
    finally:
        reader.expire()
    return _count(found.column("mz_error"), found.column("mz_diff"))


def _counted(persist: PersistClient, shards: Sequence[str]) -> dict[str, int | None]:
    """The number of errors in each shard, read without leases; None where it was compacted meanwhile: whoever holds a lease can read it."""
    states = persist.inspect_many(shards)
    counts = persist.tallies(states, _ERRORS)
    return {shard: counts.get(shard) for shard in states}


def _last_readable(since: Frontier, upper: Frontier) -> Timestamp | None:
    """The last time at which contents that are complete up to `upper` can be read; None if there is none yet. What is sealed has the same
    contents at all times from `since` on.
    """
    if upper is None:
        return since
    return upper - 1 if upper > 0 else None


def _count(errors: Any, diffs: Any) -> int:
    return int(pc.sum(diffs.filter(pc.is_valid(errors))).as_py() or 0)


# --- what this process does -------------------------------------------------------------------


def session_rows(source: Source) -> Rows:
    """The sessions of this process."""
    roles = {one.name: one.id for one in source.state.roles.values()}
    for gid, number, user, at in source.activity.sessions():
        yield str(gid), number, roles.get(user), None, at


def subscription_rows(source: Source) -> Rows:
    """The subscriptions of this process."""
    for gid, session, cluster, at, reads in source.activity.subscriptions():
        found = source.state.cluster(cluster)
        of = None if session is None else str(session)
        yield gid, of, None if found is None else found.id, at, reads


def peek_rows(source: Source) -> Rows:
    """The queries that this process is answering."""
    for one in source.activity.peeks():
        yield str(one.id), one.object_id, one.kind, one.time


def duration_rows(source: Source) -> Rows:
    """A histogram of query durations."""
    for (kind, most), count in source.activity.durations().items():
        yield kind, most, count


# --- storage ----------------------------------------------------------------------------------


def storage_rows(source: Source) -> Rows:
    """The bytes of each stored object's shard."""
    stored = source.state.stored
    ahead = states_ahead(source.env.persist, [item.shard for item in stored])
    for item in stored:
        yield item.id, partial(_stored_bytes, ahead.of, item.shard)


def shard_rows(source: Source) -> Rows:
    """The shard of each stored object."""
    for item in source.state.stored:
        yield item.id, item.shard


def _stored_bytes(state_of: StateOf, shard: str) -> int:
    return sum(size for _, _, size in _sizes(state_of(shard)).values())


def retention_rows(source: Source) -> Rows:
    """The retained history of objects with RETAIN HISTORY."""
    for item in source.state.items.values():
        if isinstance(item, Stored | Index) and item.retain_ms is not None:
            yield item.id, "FOR", str(item.retain_ms)


def refresh_strategy_rows(source: Source) -> Rows:
    """The REFRESH options of materialized views."""
    for item in source.state.of(MaterializedView):
        if item.refresh is None:
            yield item.id, "on-commit", None, None, None
            continue
        for at in item.refresh.ats:
            yield item.id, "at", None, None, _time(at)
        for one in item.refresh.everies:
            yield item.id, "every", (0, 0, one.interval_ms * 1000), _time(one.aligned_to), None


def refresh_rows(source: Source) -> Rows:
    """The last and the next refresh of materialized views."""
    views = source.state.of(MaterializedView)
    ahead = states_ahead(source.env.persist, [item.shard for item in views])
    reach = functools.cache(source.env.collections.reaching)
    for item in views:
        upper = functools.cache(partial(_upper, source, item.id, ahead.of, reach))
        yield item.id, partial(_refreshed, item, upper), partial(_to_refresh, item, upper)


def _upper(
    source: Source,
    gid: GlobalId,
    state_of: StateOf,
    reach: Callable[[], Reach | None],
) -> Frontier:
    return source.env.collections.frontiers(gid, state_of, reach())[1]


def _refreshed(item: MaterializedView, upper: Callable[[], Frontier]) -> Timestamp | None:
    return _last_refresh(item, upper())


def _to_refresh(item: MaterializedView, upper: Callable[[], Frontier]) -> Frontier:
    return _next_refresh(item, upper())


def _last_refresh(item: MaterializedView, upper: Frontier) -> Timestamp | None:
    if upper is None:
        return None if item.refresh is None else item.refresh.last
    taken_in = done(item.refresh, upper)
    return taken_in - 1 if taken_in and taken_in > item.as_of else None


def _next_refresh(item: MaterializedView, upper: Frontier) -> Frontier:
    if upper is None or item.refresh is None:
        return upper
    return item.refresh.round_up(max(upper, item.as_of))


def lifetime_rows(source: Source) -> Rows:
    """When each object was created, and when those in the audit log were created and dropped."""
    state = source.state
    for item in state.items.values():
        yield item.id, None, item.kind, "create", _moment(item.created_at * 1_000_000)
    for event in state.audits.values():
        if event.event_type in ("create", "drop") and event.object_type in _OBJECTS:
            gid = msgspec.json.decode(event.details)["id"]
            if event.event_type == "drop" or gid not in state.items:
                at = _moment(event.occurred_at * 1_000_000)
                yield gid, None, event.object_type, event.event_type, at


def audit_rows(source: Source) -> Rows:
    """The audit log: what statements created, changed and dropped."""
    for number, one in source.state.audits.items():
        # As jsonb has it, so that a document equals one that is written out.
        details = msgspec.json.encode(msgspec.json.decode(one.details), order="sorted").decode()
        what = one.event_type, one.object_type, details
        yield int(number), *what, one.user, _moment(one.occurred_at * 1_000_000)


# --- statements -------------------------------------------------------------------------------


def statement_rows(source: Source) -> Rows:
    """The statements that this process ran lately or is running."""
    clusters = {one.name: one.id for one in source.state.clusters.values()}
    for one in source.activity.log.statements():
        began, *_ = one.events
        finished = one.events[-1] if one.status is not None else None
        name = one.variables["cluster"]
        yield (
            str(one.id),
            1.0,
            clusters.get(name),
            one.variables["application_name"],
            name,
            one.variables["database"],
            path_of(one.variables["search_path"]),
            one.variables["transaction_isolation"],
            one.ts,
            VERSION,
            _moment(began[1]),
            None if finished is None else _moment(finished[1]),
            one.status,
            one.error,
            one.size,
            one.rows,
            one.strategy,
            None if one.session_id is None else str(one.session_id),
            one.kind,
            one.connected_at,
            one.user,
            one.sql,
        )


def lifecycle_rows(source: Source) -> Rows:
    """The events of those statements."""
    for one in source.activity.log.statements():
        for event, at in list(one.events):
            yield str(one.id), event, _moment(at)


def _time(milliseconds: Timestamp) -> datetime.datetime | None:
    """A timestamp as a datetime; None beyond the calendar."""
    try:
        return _EPOCH + datetime.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def _moment(nanoseconds: int) -> datetime.datetime:
    """A datetime from nanoseconds since the epoch."""
    return _EPOCH + datetime.timedelta(microseconds=nanoseconds // 1000)


#: The relations computed here that depend on the catalog's definitions alone, by name.
INTROSPECTION_DEFINED: dict[str, Callable[[Source], Rows]] = {
    "mz_internal.mz_history_retention_strategies": retention_rows,
    "mz_internal.mz_materialized_view_refresh_strategies": refresh_strategy_rows,
    "mz_internal.mz_storage_shards": shard_rows,
    "mz_internal.mz_compute_workers_unified": worker_rows,
    "mz_internal.mz_compute_dataflows_unified": dataflow_rows,
}
#: The other relations computed here, by name.
INTROSPECTION: dict[str, Callable[[Source], Rows]] = {
    "mz_catalog.mz_recent_storage_usage": storage_rows,
    "mz_internal.mz_object_lifetimes": lifetime_rows,
    "mz_internal.mz_materialized_view_refreshes": refresh_rows,
    "mz_catalog.mz_audit_events": audit_rows,
    "mz_internal.mz_recent_activity_log": statement_rows,
    "mz_internal.mz_statement_lifecycle_history": lifecycle_rows,
    "mz_internal.mz_sessions": session_rows,
    "mz_internal.mz_subscriptions": subscription_rows,
    "mz_introspection.mz_active_peeks": peek_rows,
    "mz_introspection.mz_peek_durations_histogram": duration_rows,
    "mz_internal.mz_compute_lir_mapping_unified": lir_mapping_rows,
    "mz_internal.mz_arrangement_sizes_unified": arrangement_size_rows,
    "mz_internal.mz_compute_error_counts_raw_unified": error_count_rows,
}
