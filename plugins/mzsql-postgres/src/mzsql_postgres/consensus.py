"""Consensus in the tables ``consensus`` and ``consensus_keys``. `mzsql_postgres.dialects` explains why its statements
are correct.

Promise: a compare-and-set is one statement and one round trip. A notification follows outside its transaction, and
nobody waits for the response: PostgreSQL commits transactions that notify one after another, each with an fsync, so
that inside the transaction it would make commits of different keys wait for each other (measured: 24 writers commit 15
times as much without). Trade-off: a writer that dies in between leaves followers to their slow poll, see
`mzsql_postgres.notifications`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from mzsql.location import MAX_SEQNO, Versioned
from mzsql.location.keys import check_limit, check_step, check_truncate
from mzsql_postgres.dialects import NOTIFY, ConsensusStatements, Dialect
from mzsql_postgres.failures import Failed
from mzsql_postgres.notifications import Followers
from mzsql_postgres.options import Options
from mzsql_postgres.sessions import Session, from_int8, int8, int8_array, text_array
from mzsql_postgres.store import encoded, open_database

_KEYS_PAGE = 1000
_DUPLICATE = "23505"


class PostgresConsensus:
    """The Consensus of a schema.

    Args:
        options: the server and the schema.
        dialect: the server's dialect; detected by default.
    """

    def __init__(self, options: Options, dialect: Dialect | None = None) -> None:
        self._database, self._dialect = open_database(options, dialect)
        self._statements = ConsensusStatements(self._dialect, options.schema)
        # A channel's name, like a schema's, has at most 63 bytes.
        digest = hashlib.sha256(options.schema.encode()).hexdigest()[:32]
        self._channel = f"mzsql_{digest}"
        self._followers = Followers(
            self._database,
            self._statements.heads,
            self._channel if self._dialect.notifies else None,
        )

    def head(self, key: str) -> Versioned | None:
        """The newest entry, or `None`."""
        answer = self._database.run("read the head", self._statements.head, encoded(key, _WHAT))
        entries = _entries(answer.rows)
        return entries[0] if entries else None

    def compare_and_set(self, key: str, expected: int | None, new: Versioned) -> bool:
        """Append ``new`` iff the newest seqno is ``expected``; returns whether it did."""
        check_step(key, expected, new.seqno)
        name = encoded(key, _WHAT)
        statement = self._statements.first_entry
        values = [name, int8(new.seqno), new.data]
        if expected is not None:
            statement = self._statements.next_entry
            values.append(int8(expected))
        payload = b"%d " % new.seqno + name

        def attempt(end: float) -> bool:
            session = self._database.take(end)
            try:
                try:
                    done = session.run(statement, values).touched == 1
                except Failed as failure:
                    if failure.sqlstate != _DUPLICATE:
                        raise
                    # Another entry came first.
                    return False
                if done:
                    self._notify(session, payload)
                return done
            finally:
                self._database.give_back(session)

        won = self._database.until(
            self._database.ends(), f"set the key {key!r}", attempt, repeatable=False
        )
        if won:
            self._followers.saw(key, new.seqno)
        return won

    def _notify(self, session: Session, payload: bytes) -> None:
        if self._dialect.notifies:
            session.post(NOTIFY, (self._channel.encode(), payload))

    def scan(self, key: str, from_seqno: int, limit: int) -> list[Versioned]:
        """At most ``limit`` entries from ``from_seqno`` on."""
        check_limit(limit)
        if limit == 0 or from_seqno > MAX_SEQNO:
            return []
        answer = self._database.run(
            "scan",
            self._statements.scan,
            encoded(key, _WHAT),
            int8(max(0, from_seqno)),
            int8(min(limit, MAX_SEQNO)),
        )
        return _entries(answer.rows)

    def scan_many(self, starts: Mapping[str, int], limit: int) -> dict[str, list[Versioned]]:
        """For each key, at most ``limit`` entries from its seqno on: one statement."""
        check_limit(limit)
        asked = {key: max(0, start) for key, start in starts.items() if start <= MAX_SEQNO}
        if limit == 0 or not asked:
            return {}
        for key in asked:
            encoded(key, _WHAT)
        answer = self._database.run(
            "scan",
            self._statements.scan_many,
            text_array(list(asked)),
            int8_array(list(asked.values())),
            int8(min(limit, MAX_SEQNO)),
        )
        found: dict[str, list[Versioned]] = {}
        for name, seqno, data in answer.rows:
            entry = Versioned(from_int8(seqno or b""), data or b"")
            found.setdefault((name or b"").decode(), []).append(entry)
        return {key: sorted(log) for key, log in found.items()}

    def truncate(self, key: str, seqno: int) -> int:
        """Remove the entries below ``seqno``; returns their number."""
        bound = int8(min(max(0, seqno), MAX_SEQNO))
        answer = self._database.run(
            f"truncate the key {key!r}", self._statements.truncate, encoded(key, _WHAT), bound
        )
        newest, removed = answer.rows[0]
        check_truncate(key, seqno, None if newest is None else from_int8(newest))
        return from_int8(removed or b"")

    def list_keys(self) -> Iterator[str]:
        """Every key with an entry, fetched in pages on demand."""
        after = b""
        while True:
            rows = self._database.run(
                "list keys", self._statements.list_keys, after, int8(_KEYS_PAGE)
            ).rows
            for row in rows:
                after = row[0] or b""
                yield after.decode()
            if len(rows) < _KEYS_PAGE:
                return

    def wait(self, key: str, after_seqno: int, timeout: float) -> bool:
        """Block until there is an entry beyond ``after_seqno``, woken by a notification where the server has them."""
        encoded(key, _WHAT)
        return self._followers.wait(key, after_seqno, timeout)

    def close(self) -> None:
        """End waits and close the connections. Idempotent."""
        self._followers.close()
        self._database.close()


_WHAT = "a Consensus key"


def _entries(rows: list[tuple[bytes | None, ...]]) -> list[Versioned]:
    return [Versioned(from_int8(seqno or b""), data or b"") for seqno, data in rows]
