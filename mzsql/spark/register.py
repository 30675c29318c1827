"""``mzsql.spark.register(spark, env)``: an environment in a Spark session that knows nothing else of mzsql.

Promise: from then on the relations are in the session's catalog under their schemas. ``spark.sql`` of this session
object accepts SELECTs over them, read natively at one timestamp, and mzsql's own statements; everything else goes to
Spark. An object created or dropped, here or elsewhere, is in the catalog before the next ``spark.sql`` of this session
reads it, and within a second for everybody else. `Registered.close` undoes all of it. The trade-off: like a connection,
this process leads the environment where no other does, so that created views are maintained; ``lead=False`` leaves that
to others. In a Spark Connect session, whose server takes long to create a table, builtin relations are registered in
the background; ``spark.sql`` of the session object can read them before.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.closing import close_all
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.reader import EnvironmentReader
from mzsql.compute.peek.rows import as_columns
from mzsql.repr.errors import InvalidParameter, Unsupported
from mzsql.spark.mz_spark import MzSpark
from mzsql.threads import Supervised

#: Seconds between two reads of the catalog, where its store cannot notify.
LOOK_SECONDS = 1.0

#: Builtin relations registered in a Spark Connect server's catalog at a time.
MORE = 4


class Registered:
    """An environment in a session; made by `register`. A context manager.

    Attributes:
        session: the session.
    """

    def __init__(
        self, session: SparkSession, env: Environment, options: Mapping[str, str], *, lead: bool
    ) -> None:
        self.session = session
        self._env = env
        self._coordinator = Coordinator(env, spark=lambda: session, lead=lead)
        self._own = self._coordinator.session()
        reader = EnvironmentReader(env, self._coordinator)
        self._relations = MzSpark(session, reader, self._execute, options)
        try:
            env.sync()
            self._seen = env.catalog.step
            self._relations.register()
        except BaseException:
            close_all([self._relations.unregister, self._coordinator.close], env.clock)
            raise
        self._updating = threading.Lock()
        # Only this session object is patched: other sessions of the application see the catalog only.
        vars(session)["sql"] = self.sql
        self._closed = False
        self._follower: Supervised = env.supervisor.start(
            "spark-catalog", self._follow, thread_name="mzsql-spark-catalog"
        )

    def sql(self, sqlQuery: str, *args: Any, **kwargs: Any) -> DataFrame:  # noqa: N803  Spark's own parameter name
        """As `MzSpark.sql`, with the catalog as it is now; this replaces ``spark.sql`` of the session object."""
        self._env.sync()
        self._bring_up_to_date()
        return self._relations.sql(sqlQuery, *args, **kwargs)

    def _execute(self, text: str) -> pa.Table | None:
        results = self._coordinator.execute(self._own, text)
        if any(result.stream is not None or result.copy is not None for result in results):
            for result in results:
                result.close()
            raise Unsupported(
                "SUBSCRIBE and COPY … TO STDOUT cannot be run through Spark's sql()",
                hint='Read changes with spark.readStream.format("mzsql").',
            )
        if any(result.defined for result in results):
            self._bring_up_to_date()
        last = results[-1] if results else None
        if last is None or last.rows is None or last.desc is None:
            return None if last is None else last.rows
        return as_columns(last.rows, last.desc)

    def _bring_up_to_date(self) -> None:
        with self._updating:
            step = self._env.catalog.step
            if step != self._seen:
                self._relations.register()
                self._seen = step

    def _follow(self, thread: Supervised) -> None:
        self._register_the_rest(thread)
        while not thread.stopping:
            if self._env.catalog.await_change(LOOK_SECONDS) is None and thread.wait(LOOK_SECONDS):
                return
            if thread.stopping:
                return
            self._env.sync()
            self._bring_up_to_date()
            thread.well()

    def _register_the_rest(self, thread: Supervised) -> None:
        """Register builtin relations with a Spark Connect server, a few at a time so that queries wait for no more than
        those.
        """
        more = True
        while more and not thread.stopping:
            self._env.sync()
            with self._updating:
                more = self._relations.register_more(MORE)
            thread.well()

    def close(self) -> None:
        """Remove the environment from the session and close it. Idempotent."""
        if self._closed:
            return
        self._closed = True
        vars(self.session).pop("sql", None)
        self._follower.stop()
        steps = [
            lambda: self._follower.join(2 * LOOK_SECONDS),
            self._relations.unregister,
            self._coordinator.close,
            self._env.close,
        ]
        close_all(steps, self._env.clock)

    def __enter__(self) -> Registered:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def register(
    spark: SparkSession,
    env: str | None = None,
    *,
    profile: str | None = None,
    blob: str | None = None,
    consensus: str | None = None,
    oracle: str | None = None,
    lead: bool = True,
) -> Registered:
    """Put an environment's relations into a session's catalog, and mzsql's statements into its ``sql``.

    Args:
        spark: the session.
        env: the environment's directory.
        profile: the name of a profile, instead of a directory.
        blob: the URL of its Blob store, instead of either.
        consensus: the URL of its Consensus store.
        oracle: the URL of its timestamp oracle.
        lead: whether this process maintains the environment's views where no other does.

    Raises:
        InvalidParameter: an environment is registered in the session already, or the Python that Spark runs has no
            data source ``mzsql``.
        EnvironmentRefused: there is no environment there.
        ObjectInUse: the catalog has something else under a relation's name.
    """
    if "sql" in vars(spark):
        raise InvalidParameter(
            "this session has an environment registered already",
            hint="Close it first, or register in spark.newSession().",
        )
    places = {
        "env": env,
        "profile": profile,
        "blob": blob,
        "consensus": consensus,
        "oracle": oracle,
    }
    options = {key: place for key, place in places.items() if place is not None}
    locations = locate(
        env, blob=blob, consensus=consensus, oracle=oracle, profile=profile, create=False
    )
    environment = Environment.open(locations, create=False)
    try:
        return Registered(spark, environment, options, lead=lead)
    except BaseException:
        environment.close()
        raise
