"""Connections: PEP 249 over the coordinator.

Promise: `autocommit` is on by default: outside BEGIN each statement is a transaction, as in PostgreSQL and Materialize. With
``autocommit=False`` the first statement after a commit begins one, as in psycopg; but in Materialize a transaction either reads or writes,
which is why that is not the default. Connections of one process to one environment share its coordinator. Threads may share a connection,
whose statements run one after another. What is still open when the interpreter exits is closed then, before Spark stops.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.closing import close_all
from mzsql.adapter.environment.environment import PROMOTION_SECONDS, Environment
from mzsql.adapter.environment.locations import Locations, locate
from mzsql.adapter.reader import EnvironmentReader
from mzsql.adapter.session.copy_paths import ANYWHERE, CopyPaths
from mzsql.adapter.session.session import Notice
from mzsql.adapter.statements.result import Result
from mzsql.adapter.subscribe.subscription import Subscription
from mzsql.compute.peek.rows import as_columns
from mzsql.dbapi import arguments
from mzsql.dbapi.cursor import Cursor
from mzsql.dbapi.errors import InterfaceError, ProgrammingError, user_errors
from mzsql.dbapi.exits import close_at_exit
from mzsql.dbapi.starting import start_spark
from mzsql.persist.settings import Maintenance, Settings
from mzsql.repr.errors import Fenced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mzsql.spark import MzSpark

_log = logging.getLogger(__name__)

#: Seconds that the interpreter's exit waits for a statement that still runs in a thread nobody joined.
_EXIT_SECONDS = 5.0

Parameters = Sequence[object] | Mapping[str, object] | None


_MAINTENANCE = ("in process", "elsewhere")
#: The largest deploy generation that the catalog can store.
_GREATEST_GENERATION = 2**63 - 1


class _Shared:
    """An environment open in this process, with the connections that use it."""

    def __init__(
        self,
        locations: Locations,
        spark: Callable[[], SparkSession] | None,
        *,
        read_only: bool,
        deploy_generation: int | None,
        maintenance: Maintenance,
    ) -> None:
        settings = Settings(maintenance=maintenance)
        self.env = Environment.open(
            locations, read_only=read_only, deploy_generation=deploy_generation, settings=settings
        )
        try:
            self.coordinator = Coordinator(self.env, spark=spark)
        except BaseException:
            self.env.close()
            raise
        self.users = 0

    def close(self) -> None:
        try:
            self.coordinator.close()
        finally:
            self.env.close()


_open: dict[tuple[object, ...], _Shared] = {}
_open_lock = threading.Lock()
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _close_at_exit() -> None:
    """Close what this process has left open.

    A thread that went on would be stopped inside native code, and its DuckDB connections would outlive it. An open transaction would leave
    objects behind, and leases would have to expire.
    """
    here = os.getpid()  # what a parent process has open is not ours to close
    for connection in [one for one in _connections if one._key[-1] == here]:
        if not connection._lock.acquire(timeout=_EXIT_SECONDS):
            continue  # busy in another thread; its environment is closed below all the same
        try:
            _try_to_close(connection)
        finally:
            connection._lock.release()
    with _open_lock:
        left = [_open.pop(key) for key in list(_open) if key[-1] == here]
    for shared in left:
        _try_to_close(shared)


def _try_to_close(what: Connection | _Shared) -> None:
    try:
        what.close()
    except Exception as failure:
        # There is no caller to raise to, and the other environments must still be closed.
        _log.warning("closing an environment at exit: %s", failure)


def _spark_of(given: SparkSession | None) -> Callable[[], SparkSession]:
    """The function that creates the Spark session. It must not refer to a connection, since the thread that starts Spark may outlive all of
    them.
    """
    if given is None:
        return start_spark
    from mzsql.compute.engines.spark_session import kept_session  # noqa: PLC0415  PySpark is loaded where it is needed

    return kept_session(given)


def _check_spark(given: object) -> None:
    if given is None:
        return
    from pyspark.sql import SparkSession  # noqa: PLC0415  PySpark is loaded where it is needed

    from mzsql.compute.engines.paths import is_connect  # noqa: PLC0415  which loads PySpark

    if not isinstance(given, SparkSession) and not is_connect(given):
        arguments.refuse("spark", "a SparkSession", given)


class Connection:
    """A connection; made by `mzsql.connect`."""

    def __init__(
        self,
        locations: Locations,
        *,
        spark: SparkSession | None,
        autocommit: bool,
        read_only: bool,
        deploy_generation: int | None = None,
        maintenance: Maintenance = "in process",
        copy_paths: CopyPaths = ANYWHERE,
    ) -> None:
        if not isinstance(locations, Locations):
            arguments.refuse("locations", "what mzsql.connect() makes of its arguments", locations)
        self._given_spark = spark
        of_spark = None if spark is None else id(spark)
        self._key = (
            locations,
            read_only,
            deploy_generation,
            maintenance,
            of_spark,
            os.getpid(),
        )
        self._lock = threading.RLock()
        self._mz_spark: MzSpark | None = None
        self._streams: weakref.WeakSet[Subscription] = weakref.WeakSet()
        self._closed = False
        self._autocommit = autocommit
        self._locations = locations
        with _open_lock:
            shared = _open.get(self._key)
            if shared is None or shared.env.fenced:
                shared = _open[self._key] = _Shared(
                    locations,
                    _spark_of(spark),
                    read_only=read_only,
                    deploy_generation=deploy_generation,
                    maintenance=maintenance,
                )
                close_at_exit(_close_at_exit)
            shared.users += 1
            self._shared = shared
        self._session = shared.coordinator.session()
        self._session.copy_paths = copy_paths
        _connections.add(self)

    # --- PEP 249 ------------------------------------------------------------------------------

    @property
    def autocommit(self) -> bool:
        """Whether each statement is a transaction; see the module."""
        return self._autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self._autocommit = arguments.flag(value, "autocommit")

    @property
    def locations(self) -> Locations:
        """The environment's stores."""
        return self._locations

    def cursor(self) -> Cursor:
        """A new cursor."""
        self._check_open()
        return Cursor(self)

    def commit(self) -> None:
        """Commit the open transaction, if any."""
        self._end("COMMIT")

    def rollback(self) -> None:
        """Roll back the open transaction, if any."""
        self._end("ROLLBACK")

    def cancel(self) -> None:
        """Cancel the statement that another thread runs on this connection (it fails with 57014), if any.

        A fetch from a SUBSCRIBE is such a statement.
        """
        self._check_open()
        self._session.cancel()
        for stream in list(self._streams):
            if stream.busy:
                stream.cancel()

    def _end(self, statement: str) -> None:
        self._check_open()
        with self._lock, user_errors():
            if self._session.transaction is not None:
                self._shared.coordinator.execute(self._session, statement)

    def close(self) -> None:
        """Close the connection: roll back an open transaction, and cancel what runs in other threads. The last connection closes the
        environment. Idempotent.
        """
        with _open_lock:
            if self._closed:
                return
            self._closed = True
        self._session.cancel()
        try:
            # A fenced process has nothing to give back.
            with self._lock, user_errors(), contextlib.suppress(Fenced):
                self._shared.coordinator.abandon(self._session)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Release everything, whichever part fails; the environment too where this was its last connection."""
        _connections.discard(self)
        self._shared.coordinator.disconnected(self._session)
        steps = [stream.close for stream in list(self._streams)]
        if self._mz_spark is not None:
            steps.append(self._mz_spark.unregister)
        try:
            with user_errors():
                close_all(steps, self._shared.env.clock)
        finally:
            with _open_lock:
                self._shared.users -= 1
                last = self._shared.users == 0
                if last and _open.get(self._key) is self._shared:
                    del _open[self._key]
            if last:
                with user_errors():
                    self._shared.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        try:
            if not self._closed:
                (self.commit if failure is None else self.rollback)()
        finally:
            self.close()

    # --- shortcuts ----------------------------------------------------------------------------

    def execute(self, sql: str, params: Parameters = None) -> Cursor:
        """Run SQL on a new cursor and return it: ``con.execute("SELECT 1").fetchall()``, ``.df()``, ``.arrow()``, ``.pandas()``.

        Arguments and errors are those of `Cursor.execute`.
        """
        cursor = self.cursor()
        cursor.execute(sql, params)
        return cursor

    def subscribe(self, sql: str, params: Parameters = None) -> Cursor:
        """Run a SUBSCRIBE on a new cursor, to iterate, ``fetchmany`` or ``arrow_batches()``; closing the cursor ends it.

        ``for row in con.subscribe("SUBSCRIBE orders"): …``. The connection can run other statements meanwhile.

        Raises:
            ProgrammingError: it is another statement, which has run by then.
            Error: as `Cursor.execute`.
        """
        cursor = self.execute(sql, params)
        if cursor._stream is None:
            cursor.close()
            raise ProgrammingError("not a SUBSCRIBE statement", sqlstate="42601")
        return cursor

    def follow(self, stream: Subscription) -> None:
        """End a subscription with this connection at the latest. For cursors."""
        if not isinstance(stream, Subscription):
            arguments.refuse("stream", "a Subscription", stream)
        self._streams.add(stream)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._session.transaction is not None

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._closed

    @property
    def coordinator(self) -> Coordinator:
        """This process's coordinator for the environment; it knows refreshes, the leader, and where plans came from."""
        self._check_open()
        return self._shared.coordinator

    @property
    def plans_from_cache(self) -> tuple[int, int]:
        """Of the dataflows installed since the environment was opened here: how many plans came from the expression cache, and how many
        there were.

        Raises:
            OperationalError: a higher deploy generation was promoted.
        """
        with user_errors():
            return self.coordinator.cached_plans()

    def promote(self, wait: float | None = PROMOTION_SECONDS) -> None:
        """Put the deploy generation that this connection was opened with in charge: every process of a lower one is fenced for good, and
        this one may write and lead.

        Args:
            wait: seconds to wait at most until the generation has caught up with every view and index, so that none of them is missed;
                None: do not check. An object that only the generation in charge can hydrate is not waited for, and is logged.

        Raises:
            OperationalError: a higher generation is in charge; or this one has not caught up in time, or cannot run an object, and nothing
                was changed.
        """
        self._check_open()
        with user_errors():
            self._shared.env.promote(wait)

    @property
    def notices(self) -> list[Notice]:
        """The notices of statements since the last call."""
        return self._session.take_notices()

    @property
    def spark(self) -> MzSpark:
        """The Spark session with the environment's relations in it; started where there is none."""
        self._check_open()
        with self._lock, user_errors():
            if self._mz_spark is None:
                from mzsql.spark import MzSpark  # noqa: PLC0415  Spark is not needed before

                self._mz_spark = MzSpark(
                    _spark_of(self._given_spark)(),
                    EnvironmentReader(
                        self._shared.env,
                        self._shared.coordinator,
                        temporary=self._session.temporary,
                    ),
                    self._run_for_spark,
                    self._spark_options(),
                    user_errors,
                )
                self._mz_spark.register()
            return self._mz_spark

    def _spark_options(self) -> dict[str, str]:
        where = self.locations
        if where.profile is not None:
            return {"profile": where.profile}
        if where.directory is not None:
            return {"env": where.directory}
        return {"blob": where.blob, "consensus": where.consensus, "oracle": where.oracle}

    def _run_for_spark(self, sql: str) -> pa.Table | None:
        results = self.run(sql, None)
        if any(result.stream is not None or result.copy is not None for result in results):
            for result in results:
                result.close()
            raise ProgrammingError(
                "SUBSCRIBE and COPY … TO STDOUT cannot be run through Spark's sql()",
                hint="Run them on the connection: subscribe(), or a cursor's copy().",
                sqlstate="0A000",
            )
        last = results[-1] if results else None
        if last is None or last.rows is None or last.desc is None:
            return None if last is None else last.rows
        with user_errors():
            return as_columns(last.rows, last.desc)

    def run(self, sql: str, params: Parameters, stdin: Path | None = None) -> list[Result]:
        """Run SQL; the result of each statement. For cursors.

        Args:
            sql: the statements.
            params: values for their placeholders.
            stdin: the file that COPY … FROM STDIN loads.
        """
        self._check_open()
        if type(sql) is not str:
            sql = arguments.statement(sql)
        params = arguments.parameters(params)
        if stdin is not None and not isinstance(stdin, Path):
            arguments.refuse("stdin", "a Path, or None", stdin)
        with self._lock, user_errors():
            self._check_open()  # it may have been closed while this waited
            coordinator = self._shared.coordinator
            if not self.autocommit and self._session.transaction is None:
                coordinator.execute(self._session, "BEGIN")
            self._session.stdin = stdin
            try:
                results = coordinator.execute(self._session, sql, params)
            finally:
                self._session.stdin = None
            if self._mz_spark is not None and any(result.defined for result in results):
                self._mz_spark.register()
            return results

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed")


def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    blob: str | None = None,
    consensus: str | None = None,
    oracle: str | None = None,
    profile: str | None = None,
    spark: SparkSession | None = None,
    autocommit: bool = True,
    read_only: bool = False,
    deploy_generation: int | None = None,
    maintenance: Maintenance = "in process",
    copy_paths: Iterable[str | os.PathLike[str]] | None = None,
) -> Connection:
    """Open an environment; it is created where there is none yet.

    Args:
        path: the environment's directory (missing or empty: created there, with files and SQLite), or ``"profile:NAME"``.
        blob: the URL of its Blob store, instead of a directory.
        consensus: the URL of its Consensus store.
        oracle: the URL of its timestamp oracle; by default that of Consensus.
        profile: the name of a profile with these URLs, in ``mzsql.toml`` or environment variables (`mzsql.location.profiles`).
        spark: the Spark session to run dataflows on; by default the active one, or a local one started when needed. Where it is stopped
            while dataflows need it, a similar one is started.
        autocommit: whether each statement is a transaction (see the module).
        read_only: whether to refuse writes and DDL, and never to lead.
        deploy_generation: the deploy generation of this process; by default the one in charge. A higher one only reads until
            `Connection.promote` or ``mzsql deploy promote`` puts it in charge, which fences all lower ones for good.
        maintenance: whether this process compacts and cleans up what it writes, or leaves that ``"elsewhere"``, to ``mzsql maintain``.
        copy_paths: the folders in which COPY may read and write local files (``[]``: none); by default wherever the process may. A
            program that runs other people's statements should set it.

    Raises:
        ProgrammingError: an argument has the wrong type or value.
        OperationalError: the place holds no environment, or one of a newer format.
    """
    urls = {"blob": blob, "consensus": consensus, "oracle": oracle, "profile": profile}
    places = {name: arguments.place(value, name) for name, value in urls.items()}
    directory = arguments.directory(path)
    arguments.flag(autocommit, "autocommit")
    arguments.flag(read_only, "read_only")
    if deploy_generation is not None:
        arguments.whole(deploy_generation, "deploy_generation", 0, _GREATEST_GENERATION)
    if maintenance not in _MAINTENANCE:
        arguments.refuse("maintenance", " or ".join(map(repr, _MAINTENANCE)), maintenance)
    _check_spark(spark)
    confined = arguments.copy_paths(copy_paths)
    with user_errors():
        locations = locate(directory, **places, create=not read_only)
        return Connection(
            locations,
            spark=spark,
            autocommit=autocommit,
            read_only=read_only,
            deploy_generation=deploy_generation,
            maintenance=maintenance,
            copy_paths=confined,
        )
