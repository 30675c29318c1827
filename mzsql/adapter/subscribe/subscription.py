"""SUBSCRIBE: a query's contents at one time, then every change of them as it happens.

Promise: every update of the query from AS OF on and before UP TO comes exactly once, in order of time; with PROGRESS
also the frontier up to which they are complete. A single table or materialized view is read from its shard; any other
query runs as a transient dataflow, stepped in this process (`compute.replica.dataflows.transient`). Nothing is computed before it
is fetched. A slow consumer makes steps cover more time; steps are cut to about `STEP_ROWS` updates. The history still
to be read is held until then, or until the subscription is closed. Where nobody writes, time does not advance by
itself: while PROGRESS or UP TO wait for it, the subscription advances it once a second (`Environment.reach`), unless
the environment is read-only.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.adapter.environment.closing import close_all
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.peek.queries import Queries
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.planning.walk import unmaterializables
from mzsql.adapter.session.session import Session
from mzsql.adapter.subscribe.contents import Contents
from mzsql.adapter.subscribe.inputs import CatalogNews, Input, PolledInput, StoredInput
from mzsql.adapter.subscribe.output import OutputRows
from mzsql.adapter.system.activity import Activity
from mzsql.catalog.builtin import builtins
from mzsql.compute.peek.inputs import Inputs
from mzsql.compute.replica.dataflows.transient import TransientDataflow, bounded_connection, load
from mzsql.expr.dataflow import MaterializedViewExport
from mzsql.expr.scalar import Scalar
from mzsql.frontend.plan import cursor_plans
from mzsql.lir.plan import DataflowDescription
from mzsql.render.dataflow import render
from mzsql.repr.errors import DataError, InvalidParameter, QueryCanceled, Unsupported
from mzsql.repr.evaluation import failed
from mzsql.repr.frontier import MAX_TIMESTAMP, Frontier, Timestamp, meet
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import USER_REQUEST, current
from mzsql.repr.types import RelationDesc

#: A step reads at most about so many updates, unless a single timestamp has more.
STEP_ROWS = 200_000
#: Seconds after the log advanced before looking whether a view has advanced too; the pause then grows.
_FIRST_LOOK_SECONDS = 0.002
#: Seconds between two ticks, which advance time and look for drops by other processes.
_TICK_SECONDS = 1.0


class Subscription:
    """A running SUBSCRIBE, which computes rows when they are fetched. Thread-safe; `cancel` and `close` interrupt a
    fetch of another thread.
    """

    def __init__(
        self,
        env: Environment,
        plan: cursor_plans.SubscribePlan,
        contents: Contents,
        as_of: Timestamp,
        up_to: Frontier,
        ended: Callable[[Subscription], None],
        news: CatalogNews,
    ) -> None:
        self.desc: RelationDesc = plan.desc
        self.as_of = as_of
        self._env = env
        self._plan = plan
        self._contents = contents
        self._up_to = up_to
        self._ended = ended
        self._news, self._looked = news, -1
        self._output = OutputRows(plan)
        self._lock = threading.Lock()
        self._cancelled = False
        self._closed = False
        self._frontier: Frontier = as_of
        self._ready: Generator[pa.Table] = self._run()
        self._waited_until = 0.0
        self._ticked = time.monotonic()
        self._directory = tempfile.TemporaryDirectory(prefix="mzsql-subscribe-")
        self._duck: duckdb.DuckDBPyConnection = bounded_connection(self._directory.name)
        # Set by whatever ends a wait early: an advance of the log, a cancel.
        self._stirred = threading.Event()
        self._unwatch = env.collections.watch(self._stirred.set)

    # --- for those who fetch ----------------------------------------------------------------------

    @property
    def frontier(self) -> Frontier:
        """All rows before this time have been returned; None: no more will come."""
        return self._frontier

    @property
    def closed(self) -> bool:
        """Whether it has ended: completed, closed, canceled or failed."""
        return self._closed

    @property
    def busy(self) -> bool:
        """Whether a thread is fetching."""
        return self._lock.locked()

    def next_batch(self, timeout: float | None = None) -> pa.Table | None:
        """Wait for the next rows.

        Args:
            timeout: seconds to wait for the first row; None: for ever.

        Returns:
            Rows with the output's columns; an empty table after the timeout; None at the end.

        Raises:
            QueryCanceled: it was canceled.
            SqlError: the query has an error at some time, or a relation that it reads was dropped.
        """
        with self._lock:
            if self._closed:
                if self._cancelled:
                    raise QueryCanceled(USER_REQUEST)
                return None
            self._waited_until = float("inf") if timeout is None else time.monotonic() + timeout
            try:
                with current().on_interrupt(self._interrupt):
                    rows = next(self._ready, None)
            except duckdb.InterruptException:
                self._end()
                current().check()
                raise QueryCanceled(USER_REQUEST) from None
            except BaseException:
                self._end()
                raise
            if rows is None:
                self._end()
            return rows

    def no_rows(self) -> pa.Table:
        """An empty table with the output's columns."""
        return self._output.nothing()

    def batches(self) -> Iterator[pa.Table]:
        """All rows to the end, as they come."""
        while (rows := self.next_batch()) is not None:
            yield rows

    def cancel(self) -> None:
        """End it; a thread that fetches gets PostgreSQL's "canceling statement due to user request"."""
        self._cancelled = True
        self._interrupt()

    def close(self) -> None:
        """End it and release everything; a thread that fetches gets QueryCanceled. Idempotent."""
        if not self._closed:
            self.cancel()
            with self._lock:
                self._end()

    def _interrupt(self) -> None:
        self._stirred.set()
        if not self._closed:
            # Its fetching thread may close the connection at this very moment.
            with contextlib.suppress(duckdb.ConnectionException):
                self._contents.interrupt()
                self._duck.interrupt()

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._unwatch()
        self._ready.close()
        self._contents.close()
        self._duck.close()
        self._directory.cleanup()
        self._ended(self)

    # --- the rows -----------------------------------------------------------------------------------

    def _run(self) -> Generator[pa.Table]:
        """All rows, from the snapshot to the end; yields an empty table whenever a fetch's timeout expires."""
        as_of, up_to = self.as_of, self._up_to
        if as_of == up_to:
            self._frontier = None
            return
        if self._plan.progress:
            yield self._output.progress(as_of)
        yield from self._until_complete(as_of)
        yield from self._snapshot()
        lower = as_of + 1
        while True:
            self._frontier = lower
            for one in self._contents.inputs.values():
                one.hold(lower - 1)
            if up_to is not None and lower >= up_to:
                return
            upper = meet(*(one.upper() for one in self._contents.inputs.values()))
            if upper is None:
                if self._contents.temporal:
                    # The inputs are complete for ever, but rows still appear and disappear by ``mz_now()``.
                    yield from self._changes(lower, MAX_TIMESTAMP if up_to is None else up_to)
                self._frontier = None
                return
            if upper <= lower:
                yield from self._until_complete(lower)
                continue
            upper = self._cut(lower, upper if up_to is None else min(upper, up_to))
            yield from self._changes(lower, upper)
            lower = upper
            if self._plan.progress:
                self._frontier = lower
                yield self._output.progress(lower)

    def _cut(self, lower: Timestamp, upper: Timestamp) -> Timestamp:
        """``upper``, or an earlier time where ``[lower, upper)`` has too many updates for one step. Halving keeps at
        least one timestamp.
        """
        inputs = self._contents.inputs.values()
        while upper - lower > 1:
            if sum(one.rows_between(lower, upper) for one in inputs) <= STEP_ROWS:
                break
            upper = lower + (upper - lower) // 2
        return upper

    def _snapshot(self) -> Iterator[pa.Table]:
        rows = self._contents.snapshot(self.as_of)
        if isinstance(rows, pa.Table):
            rows = rows.to_reader()
        load(self._duck, "contents", rows)
        names = [field.name for field in rows.schema]
        if "mz_error" in names:
            found = self._duck.execute(
                "SELECT mz_error FROM contents WHERE mz_error IS NOT NULL AND mz_diff > 0 LIMIT 1"
            ).fetchall()
            for (message,) in found:
                raise failed(message)
        if self._plan.snapshot:
            yield from self._output.of_table(self._duck, "contents", self.as_of)
        self._duck.execute("DROP TABLE contents")

    def _changes(self, lower: Timestamp, upper: Timestamp) -> Iterator[pa.Table]:
        rows = self._contents.updates(lower, upper)
        if rows is None:
            return
        error = None
        if "mz_error" in rows.column_names:
            broken = rows.filter(
                pc.and_(pc.is_valid(rows.column("mz_error")), pc.greater(rows.column("mz_diff"), 0))
            )
            if broken.num_rows:
                first = pc.min(broken.column("mz_time")).as_py()
                at = pc.index(broken.column("mz_time"), value=first).as_py()
                error = failed(broken.column("mz_error")[at].as_py())
                rows = rows.filter(pc.less(rows.column("mz_time"), first))
            rows = rows.filter(pc.is_null(rows.column("mz_error"))).drop_columns(["mz_error"])
        if rows.num_rows:
            yield from self._output.of(self._duck, rows)
        if error is not None:
            raise error

    def _until_complete(self, past: Timestamp) -> Iterator[pa.Table]:
        """Wait until every input is complete at ``past``; yields an empty table whenever the fetch's timeout expires."""
        for one in self._contents.inputs.values():
            ask, pause = True, _FIRST_LOOK_SECONDS
            while True:
                self._stirred.clear()
                self._check()
                if one.complete(past, ask=ask):
                    break
                left = self._waited_until - time.monotonic()
                ask = left <= 0
                if ask:
                    yield self._output.nothing()
                    continue
                self._tick(past)
                pause = one.patience(pause)
                if self._stirred.wait(min(left, pause, _TICK_SECONDS)):
                    pause = _FIRST_LOOK_SECONDS

    def _check(self) -> None:
        if self._cancelled:
            raise QueryCanceled(USER_REQUEST)
        current().check()

    def _tick(self, past: Timestamp) -> None:
        now = time.monotonic()
        if now - self._ticked < _TICK_SECONDS:
            return
        self._ticked = now
        self._looked = self._news.sync(self._looked)
        wanted = self._plan.progress or self._up_to is not None or self._waits_for_clock()
        wanted = wanted or self._contents.temporal
        if not wanted or self._env.read_only or self._env.wal.state.upper > past:
            return
        clock = self._env.oracle.present_ms()
        if clock > past:
            self._env.reach(clock)

    def _waits_for_clock(self) -> bool:
        """Whether time must advance: for the snapshot, or because a polled input is combined with a stored one."""
        kinds = {type(one) for one in self._contents.inputs.values()}
        return self._frontier == self.as_of or kinds == {StoredInput, PolledInput}


class _Running:
    """The subscriptions that run in one process. Thread-safe."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        # Reentrant, since the garbage collector may close a forgotten subscription on any thread, also inside this
        # lock.
        self._lock = threading.RLock()
        self._found: set[Subscription] = set()

    def all(self) -> list[Subscription]:
        """Those that run."""
        with self._lock:
            return list(self._found)

    def add(self, one: Subscription) -> None:
        """One has begun."""
        with self._lock:
            self._found.add(one)

    def forget(self, gid: GlobalId, one: Subscription) -> None:
        """One of this id has ended."""
        with self._lock:
            self._found.discard(one)
        self._activity.unsubscribed(gid)


class Subscribes:
    """Starts the subscriptions of one process, and knows the running ones. Thread-safe."""

    def __init__(
        self,
        env: Environment,
        planner: Planner,
        queries: Queries,
        inputs: Inputs,
        activity: Activity,
    ) -> None:
        self._env = env
        self._planner = planner
        self._queries = queries
        self._inputs = inputs
        self._activity = activity
        self._running = _Running(activity)
        self._news = CatalogNews(env)

    @property
    def running(self) -> int:
        """How many subscriptions run."""
        return len(self._running.all())

    def start(self, session: Session, plan: cursor_plans.SubscribePlan) -> Subscription:
        """Start a subscription. Nothing is read before the first fetch, but everything to be read is held.

        Raises:
            InvalidParameter: the inputs are not readable at AS OF any more.
            DataError: UP TO is before AS OF.
            Unsupported: the query cannot be maintained.
        """
        self._news.heed()
        as_of = self._time(plan.as_of, "AS OF")
        up_to = self._time(plan.up_to, "UP TO")
        gid = self._env.transient_ids()
        if as_of is not None and not plan.at_least:
            self._check_bounds(as_of, up_to)
        sources, flow_plan = self._sources(plan, gid)
        at = self._as_of(session, sources, as_of, at_least=plan.at_least)
        self._check_bounds(at, up_to)
        if up_to == at:
            session.notice(
                f"subscribe as of {at} (inclusive) up to the same bound {at} (exclusive) is guaranteed to be empty"
            )
        contents = self._contents(sources, at, flow_plan)
        forget = partial(self._running.forget, gid)
        made = Subscription(self._env, plan, contents, at, up_to, forget, self._news)
        self._activity.subscribed(gid, session, session.get("cluster"), sources)
        self._running.add(made)
        return made

    @staticmethod
    def _check_bounds(as_of: Timestamp, up_to: Timestamp | None) -> None:
        if up_to is not None and up_to < as_of:
            raise DataError(
                f"subscription lower bound (`AS OF`) is greater than its upper bound (`UP TO`): {as_of} > {up_to}"
            )

    def _time(self, expr: Scalar | None, clause: str) -> Timestamp | None:
        if expr is None:
            return None
        value = self._queries.constant(expr)
        if value is None:
            raise InvalidParameter(f"can't use null as a mz_timestamp for {clause}")
        return min(int(str(value)), MAX_TIMESTAMP)

    def _as_of(
        self,
        session: Session,
        sources: Sequence[GlobalId],
        as_of: Timestamp | None,
        *,
        at_least: bool,
    ) -> Timestamp:
        if as_of is not None:
            return self._queries.check_as_of(as_of, sources, at_least=at_least)
        if not self._inputs.stored(list(sources)):
            return self._env.fresh_timestamp()
        return self._queries.timestamp(session, sources)

    def _sources(
        self, plan: cursor_plans.SubscribePlan, gid: GlobalId
    ) -> tuple[list[GlobalId], DataflowDescription | None]:
        """The inputs, and the dataflow over them where one is needed."""
        if plan.collection is not None:
            return [plan.collection.id], None
        relation = self._planner.local(plan.query).mir
        called = unmaterializables(relation) - {"mz_now"}
        if called:
            raise Unsupported(f"cannot materialize call to {', '.join(sorted(called))}")
        planned = self._planner.dataflow(MaterializedViewExport(gid), relation, cluster=None)
        return [source.id for source in planned.plan.source_imports], planned.plan

    def _contents(
        self,
        sources: Sequence[GlobalId],
        as_of: Timestamp,
        flow: DataflowDescription | None,
    ) -> Contents:
        inputs: dict[GlobalId, Input] = {}
        try:
            for gid in sources:
                inputs[gid] = self._input(gid, as_of)
            if flow is None:
                return Contents(inputs)
            rendered = render(flow, errors_in=self._has_errors)
            return Contents(inputs, TransientDataflow(rendered, as_of))
        except BaseException:
            for one in inputs.values():
                one.close()
            raise

    def _input(self, gid: GlobalId, as_of: Timestamp) -> Input:
        if gid in builtins():
            return PolledInput(self._env, self._inputs, gid, as_of)
        one = StoredInput(self._env, gid, as_of)
        if one.since is None or one.since > as_of:
            one.close()
            raise InvalidParameter(
                f"Timestamp ({as_of}) is not valid for all inputs: [{one.since}]",
                detail=f"The earliest time at which all of them can be read is {one.since}.",
            )
        return one

    def _has_errors(self, gid: GlobalId) -> bool:
        return gid not in builtins() and self._env.collections.has_errors(gid)

    def close(self) -> None:
        """End every subscription. Idempotent."""
        close_all([one.close for one in self._running.all()], self._env.clock)
