"""A replica's introspection: its logs, and the subscribes over them.

Promise: the first batch of a subscribe is the full result of its plan, each later one the changes since, each change
once. What a hydration took is reported before the dataflow is said to be hydrated. Other changes are looked for about
every second, sooner after a hydration, and less often, up to every five seconds, if looking is slow: it takes at most a
fiftieth of a processor where that is possible, and next to nothing if no dataflow reported anything meanwhile. A plan
that fails ends its subscribe with an error and does not affect others.
docs/architecture.md, "The way of a status to its relation".
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import duckdb
import pyarrow as pa

from mzsql.compute.logs import (
    ELAPSED,
    FRONTIERS,
    HYDRATION_PROGRESS,
    IMPORT_FRONTIERS,
    LOGS,
    Log,
    LogRow,
)
from mzsql.compute.protocol import (
    CreateIntrospection,
    Frontiers,
    IntrospectionUpdates,
    Refreshed,
    Respond,
    Response,
    Status,
)
from mzsql.compute.replica.dataflows.elapsed import Elapsed
from mzsql.compute.replica.scheduling.installed import Installed
from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle, State
from mzsql.expr.engines import locked_connection, to_sql
from mzsql.expr.functions.table import Engine
from mzsql.expr.relation import RowSetFinishing
from mzsql.lir.plan import DataflowDescription, Get, GetCollection
from mzsql.render.dataflow import one_shot, summed
from mzsql.repr.errors import InternalError, SqlError
from mzsql.repr.frontier import Frontier
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import arrow_schema
from mzsql.threads import Supervised

_LOG = logging.getLogger(__name__)

#: The pause after a look, in multiples of the CPU time that the look took.
_REST = 50
#: The longest such pause, in seconds.
_MOST_REST = 5.0


class _Subscribe:
    """One introspection subscribe: its statement, and the rows that were reported."""

    def __init__(self, command: CreateIntrospection) -> None:
        self.command = command
        self.told: Counter[LogRow] | None = None
        self.reads = frozenset(source.id for source in command.dataflow.source_imports)
        #: the log that it reports unchanged, for which no engine is needed; None if it computes something
        self.whole = _whole(command.dataflow)
        self._text: str | None = None

    def rows(self, duck: duckdb.DuckDBPyConnection) -> Counter[LogRow]:
        """The result of its plan over the logs, which are relations of the connection."""
        if self._text is None:
            rendered = one_shot(self.command.dataflow, errors_in=lambda _: False)
            typ = rendered.output_columns
            ast, loops = rendered.rendered(Engine.DUCKDB)
            if loops:
                raise InternalError("an introspection subscribe is not recursive")
            finishing = RowSetFinishing((), None, 0, tuple(range(len(typ))))
            made = summed(ast, finishing, typ, in_order=False)
            self._text = to_sql(made, Engine.DUCKDB)
        found = duck.sql(self._text).to_arrow_table()
        failed = found.column("mz_error").drop_null()
        if len(failed):
            raise InternalError(str(failed[0].as_py()))
        names = [name for name in found.column_names if name not in ("mz_error", "mz_diff")]
        columns = [found.column(name).to_pylist() for name in names]
        diffs = found.column("mz_diff").to_pylist()
        rows = zip(*columns, strict=True)
        return Counter(dict(zip(rows, diffs, strict=True)))


def _whole(dataflow: DataflowDescription) -> GlobalId | None:
    """The log that a plan reads without changing anything; None if it does more."""
    match dataflow.root.plan:
        case Get(id=str(gid), plan=GetCollection(mfp=mfp)) if mfp.is_identity:
            return GlobalId(gid)
    return None


class Introspection:
    """The introspection logs and subscribes of one replica. Thread-safe.

    Args:
        installed: its dataflows.
        upper: the upper of a stored collection, as last seen.
        respond: takes the batches.
        start: starts a supervised thread.
        replica_id: the replica.
    """

    def __init__(
        self,
        installed: Installed,
        upper: Callable[[GlobalId], Frontier],
        respond: Respond,
        start: Callable[..., Supervised],
        replica_id: str,
    ) -> None:
        self._installed = installed
        self._upper = upper
        self._respond = respond
        self._start = start
        self._replica = replica_id
        self._lock = threading.Condition()
        self._subscribes: dict[GlobalId, _Subscribe] = {}
        self._thread: Supervised | None = None
        # Whether something was hydrated since the last look: what that took is asked for at once.
        self._hydrated = False
        # A lock of its own for what was reported since the last look: whoever calls `noted` holds other locks.
        self._noting = threading.Lock()
        self._touched: set[GlobalId] = set()
        self._closing = False
        # Held while one looks at the logs: the thread, and whoever tells the times of a dataflow.
        self._looking = threading.Lock()
        # Guarded by that: the rows of each log by dataflow, the logs that have changed since subscribes were last served,
        # and an engine, made when a subscribe needs one.
        self._rows: dict[GlobalId, dict[GlobalId, tuple[LogRow, ...]]] = {gid: {} for gid in LOGS}
        self._changed: set[GlobalId] = set()
        self._duck: duckdb.DuckDBPyConnection | None = None

    # --- commands ---

    def subscribe(self, command: CreateIntrospection) -> None:
        """Begin a subscribe."""
        with self._lock:
            self._subscribes[command.id] = _Subscribe(command)
            if self._thread is None and not self._closing:
                start = self._start
                self._thread = start(
                    "introspection",
                    self._run,
                    thread_name=f"mzsql-{self._replica}-introspection",
                )
            self._lock.notify_all()

    def cancel(self, gid: GlobalId) -> None:
        """End a subscribe."""
        with self._lock:
            self._subscribes.pop(gid, None)

    def noted(self, response: Response) -> None:
        """Record that a response about a dataflow was sent, so its rows may have changed. Called for every response, so
        it returns at once.
        """
        match response:
            case Status(object_id=gid) | Frontiers(id=gid):
                pass
            case Refreshed(stats=stats):
                gid = stats.object_id
            case _:
                return
        with self._noting:
            self._touched.add(gid)
        if isinstance(response, Refreshed) and response.stats.kind == "hydration":
            with self._lock:
                self._hydrated = True
                self._lock.notify_all()

    def tell_times(self, gid: GlobalId, elapsed: Elapsed) -> None:
        """Report how long the replica was at each node of a dataflow before this returns, rather than with the next look.

        Looks at no other dataflow, so thousands that hydrate one after another cost no more each than one.
        """
        rows, log_id = _times(gid, elapsed), ELAPSED.id
        with self._looking:
            with self._lock:
                serve = [one for one in self._subscribes.values() if log_id in one.reads]
            before = self._rows[log_id].get(gid, ())
            if rows == before or self._closing:
                return
            self._rows[log_id][gid] = rows
            even = log_id not in self._changed
            for one in serve:
                if even and one.told is not None and one.whole is not None:
                    self._tell_changes(one, one.told, before, rows)
                else:
                    self._changed.add(log_id)
                    self._tell(one)

    def _tell_changes(
        self,
        one: _Subscribe,
        told: Counter[LogRow],
        before: Iterable[LogRow],
        rows: Iterable[LogRow],
    ) -> None:
        """Report what has become of a dataflow's rows to a subscribe that has everything else."""
        changes = Counter(rows)
        changes.subtract(Counter(before))
        updates = [(row, diff) for row, diff in changes.items() if diff]
        self._send(one.command, updates)
        for row, diff in updates:
            told[row] += diff
            if not told[row]:
                del told[row]

    def close(self) -> None:
        """Report nothing any more. Idempotent."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended, up to `timeout` seconds."""
        if self._thread is not None:
            self._thread.stop()
            self._thread.join(timeout)

    # --- the thread ---

    def _run(self, thread: Supervised) -> None:
        try:
            while True:
                with self._lock:
                    self._hydrated = False
                began = time.thread_time()
                with self._looking:
                    again = self._look()
                # The first look of a subscribe, which compiles its plan, says nothing about the cost of later ones.
                spent = time.thread_time() - began if again else 0.0
                thread.well()
                with self._lock:
                    every = [one.command.seconds for one in self._subscribes.values()]
                    least = min(spent * _REST, _MOST_REST)
                    self._lock.wait_for(self._has_news, least)
                    rest = max(min(every, default=1.0) - least, 0.0)
                    self._lock.wait_for(lambda: self._hydrated or self._has_news(), rest)
                    if self._closing:
                        return
        finally:
            duck, self._duck = self._duck, None
            if duck is not None:
                duck.close()

    def _has_news(self) -> bool:
        """Whether the thread should not wait."""
        return self._closing or any(one.told is None for one in self._subscribes.values())

    def _look(self) -> bool:
        """Report what has changed; return whether no subscribe was served for the first time."""
        self._refresh()
        with self._lock:
            wanted = list(self._subscribes.values())
        due = [one for one in wanted if one.told is None or one.reads & self._changed]
        again = all(one.told is not None for one in due)
        for one in due:
            self._tell(one)
        # Cleared last: what fails before is reported by the next look.
        self._changed = set()
        return again

    def _refresh(self) -> None:
        """Bring the logs up to date, and record which of them have changed."""
        every = {flow.gid: flow for flow in self._installed.all()}
        flows = {gid: flow for gid, flow in every.items() if not flow.dropped}
        for rows in self._rows.values():
            for gone in rows.keys() - flows.keys():
                del rows[gone]
                self._changed.update(self._rows)
        with self._noting:
            touched, self._touched = self._touched, set()
        try:
            uppers = _Uppers(every, self._upper)
            for gid, flow in flows.items():
                known = gid in self._rows[FRONTIERS.id]
                # A dataflow that has work reports nothing while its inputs advance, so it is looked at in any case.
                works = flow.busy or flow.failures or flow.state is not State.RUNNING
                if known and gid not in touched and not works:
                    continue
                for log_id, now in _rows_of(flow, uppers).items():
                    if self._rows[log_id].get(gid) != now:
                        self._rows[log_id][gid] = now
                        self._changed.add(log_id)
        except BaseException:
            with self._noting:
                self._touched |= touched
            raise

    def _counted(self, log_id: GlobalId) -> Counter[LogRow]:
        return Counter(row for some in self._rows[log_id].values() for row in some)

    def _table(self, log: Log) -> pa.Table:
        rows = [row for some in self._rows[log.id].values() for row in some]
        schema = arrow_schema(log.desc.typ.columns)
        columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
        arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)]
        arrays.append(pa.array([1] * len(rows), pa.int64()))
        return pa.table(arrays, names=[*schema.names, "mz_diff"])

    def _computed(self, one: _Subscribe) -> Counter[LogRow]:
        if self._duck is None:
            self._duck = locked_connection()
        for log_id in one.reads:
            self._duck.register(f"snap_{log_id}", self._table(LOGS[log_id]))
        return one.rows(self._duck)

    def _tell(self, one: _Subscribe) -> None:
        command = one.command
        try:
            now = self._computed(one) if one.whole is None else self._counted(one.whole)
        except (duckdb.Error, SqlError) as error:
            _LOG.warning("an introspection subscribe has failed: %s: %s", command.relation, error)
            self.cancel(command.id)
            self._send(command, error=str(error))
            return
        before = one.told
        changes = Counter(now)
        changes.subtract(before or Counter())
        updates = [(row, diff) for row, diff in changes.items() if diff]
        if updates or before is None:
            self._send(command, updates, snapshot=before is None)
        one.told = now

    def _send(
        self,
        command: CreateIntrospection,
        updates: Iterable[tuple[LogRow, int]] = (),
        *,
        snapshot: bool = False,
        error: str | None = None,
    ) -> None:
        with self._lock:
            # Under the lock, so that nothing is sent for a subscribe after it was canceled.
            if command.id in self._subscribes or error is not None:
                self._respond(
                    IntrospectionUpdates(
                        command.id, command.relation, tuple(updates), snapshot, error
                    )
                )


class _Uppers:
    """The uppers of inputs, each asked for once."""

    def __init__(
        self,
        flows: Mapping[GlobalId, DataflowLifecycle],
        of_storage: Callable[[GlobalId], Frontier],
    ) -> None:
        self._flows = flows
        self._of_storage = of_storage
        self._seen: dict[GlobalId, tuple[Frontier, ...]] = {}

    def of(self, gid: GlobalId) -> tuple[Frontier, ...]:
        """The upper of an input, in a tuple; empty if the input was dropped and is not known any more."""
        if gid not in self._seen:
            flow = self._flows.get(gid)
            try:
                self._seen[gid] = (self._of_storage(gid) if flow is None else flow.frontier,)
            except SqlError:
                self._seen[gid] = ()
        return self._seen[gid]


def _rows_of(flow: DataflowLifecycle, uppers: _Uppers) -> dict[GlobalId, tuple[LogRow, ...]]:
    """The rows of each log for a dataflow."""
    gid = flow.gid
    return {
        FRONTIERS.id: ((gid, flow.frontier),),
        IMPORT_FRONTIERS.id: tuple(
            (gid, one.id, upper) for one in flow.rendered.inputs for upper in uppers.of(one.id)
        ),
        ELAPSED.id: _times(gid, flow.elapsed),
        HYDRATION_PROGRESS.id: tuple(
            (gid, lir_id, worker, rows, size)
            for lir_id, put_out in flow.report.put_out().items()
            for worker, (rows, size) in put_out.items()
        ),
    }


def _times(gid: GlobalId, elapsed: Elapsed) -> tuple[LogRow, ...]:
    return tuple(
        (gid, lir_id, one.nanoseconds, one.statements, one.rows)
        for lir_id, one in sorted(elapsed.by_node().items())
    )
