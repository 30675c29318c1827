"""The timestamp oracle: one row per timeline in the table ``timestamp_oracle``.

Promise: every operation is one statement on one row, so it is linearizable for any number of processes. An allocation
is retried when its response is lost: a timestamp that nobody received is skipped. The statements are those of the
distributed timestamp oracle design, except ``apply_write``, which raises the read timestamp to its argument (the
design's text takes the stored write timestamp, and would miss the write just applied). Timestamps are bigint, since a
time is an int64.
"""

from __future__ import annotations

from collections.abc import Callable

from mzsql.location import MAX_SEQNO, Determinate, UsageError
from mzsql.location.keys import check_ts
from mzsql_postgres.dialects import Dialect, OracleStatements
from mzsql_postgres.options import Options
from mzsql_postgres.sessions import Statement, from_int8, int8
from mzsql_postgres.store import encoded, open_database


class PostgresOracle:
    """The oracle of a timeline.

    Args:
        options: the server and the schema.
        timeline: the timeline.
        now: the wall clock in milliseconds.
        initial: a lower bound for both timestamps from now on.
        dialect: the server's dialect; detected by default.
    """

    def __init__(
        self,
        options: Options,
        timeline: str,
        now: Callable[[], int],
        *,
        initial: int = 0,
        dialect: Dialect | None = None,
    ) -> None:
        check_ts(initial)
        self._name = timeline
        self._timeline = encoded(timeline, "a timeline")
        self._now = now
        self._database, _ = open_database(options, dialect)
        self._statements = OracleStatements(options.schema)
        try:
            rows = self._database.run(
                "open the timeline", self._statements.read_ts, self._timeline
            ).rows
            if rows and from_int8(rows[0][0] or b"") >= initial:
                # Nothing to write, so that a process with read access only can open it too.
                return
            self._database.run(
                "open the timeline",
                self._statements.begin,
                self._timeline,
                int8(initial),
                repeatable=True,
            )
            self.apply_write(initial)
        except BaseException:
            self.close()
            raise

    def write_ts(self) -> int:
        """Allocate a timestamp greater than all others and not below the clock.

        Raises:
            UsageError: the clock is beyond what a timestamp can be.
            Determinate: the timeline has no timestamps left, or the server refused.
            Indeterminate: the answer was lost; a timestamp may have been given to nobody.
        """
        now = self._now()
        if now >= MAX_SEQNO:
            raise UsageError(f"the clock says {now}, which is no timestamp")
        rows = self._database.run(
            "allocate a write timestamp",
            self._statements.write_ts,
            self._timeline,
            int8(max(0, now)),
            int8(MAX_SEQNO - 1),
            repeatable=True,
        ).rows
        if rows:
            return from_int8(rows[0][0] or b"")
        self.peek_write_ts()
        raise Determinate(f"{self._database.place}: timeline {self._name!r} has no timestamps left")

    def peek_write_ts(self) -> int:
        """The latest allocated timestamp."""
        return self._select("read the write timestamp", self._statements.peek_write_ts)

    def read_ts(self) -> int:
        """The read timestamp."""
        return self._select("read the read timestamp", self._statements.read_ts)

    def _select(self, act: str, statement: Statement) -> int:
        rows = self._database.run(act, statement, self._timeline).rows
        if not rows:
            raise Determinate(
                f"{self._database.place}: the row of timeline {self._name!r} is gone",
                hint="It was removed from timestamp_oracle. Restore it with timestamps not below the old ones; begun anew"
                " from 0 it would hand out times that were used.",
            )
        return from_int8(rows[0][0] or b"")

    def apply_write(self, ts: int) -> None:
        """Raise both timestamps to at least ``ts``; writes nothing if they are there already."""
        check_ts(ts)
        done = self._database.run(
            "apply a write",
            self._statements.apply_write,
            self._timeline,
            int8(ts),
            repeatable=True,
        )
        if not done.touched:
            # Applied already, unless the row is gone, which this reports.
            self.read_ts()

    def clock_ms(self) -> int:
        """The server's clock in milliseconds."""
        rows = self._database.run("read the server's clock", self._statements.clock).rows
        return from_int8(rows[0][0] or b"")

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._database.close()
