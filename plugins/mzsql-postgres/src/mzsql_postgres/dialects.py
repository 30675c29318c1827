"""The statements, in PostgreSQL's and in CockroachDB's dialect.

Promise: each compare-and-set is one statement that is a transaction by itself. Names of schemas are quoted by `psycopg.sql`.

PostgreSQL, under READ COMMITTED. The entries of a key are contiguous and the newest is never removed, so ``expected`` is the newest
exactly when its row is there and the row after it is not. The statement locks the row ``expected`` FOR KEY SHARE, which holds off its
removal until the commit, and inserts the next one from it; the primary key lets one of several in. A truncation removes a row only
with or after all rows before it, so whoever has ``expected`` locked knows that the next row was not removed either: it was never there, or
it is there and the insertion does nothing. A deadlock between a truncation and a compare-and-set that is far behind ends with an error of
which either is known not to have happened.

The first entry of a key has no row before it to lock. With nothing but the primary key to keep it out, a statement that began when the
key was not there could insert entry 0 once more after others have written 0, 1, 2 and truncated 0 away. So each key has a row in the
table of keys, which is never removed: it is inserted with entry 0 by one statement, and only who inserts it inserts entry 0.

CockroachDB runs every transaction SERIALIZABLE, retries what it can by itself, and reports the rest as 40001, of which nothing was done.
There the insertion is guarded by the newest entry's number, which keeps the statement a write to one range, committed in one phase. It
has no LISTEN, and its table options differ: no automatic statistics, whose collection costs more than they gain on tables whose every
access is by key, and ten minutes instead of a day until removed rows are collected, as scans step over those.
"""

from __future__ import annotations

from typing import Protocol

from psycopg import sql

from mzsql_postgres.options import Limits
from mzsql_postgres.sessions import BYTEA, INT8, INT8_ARRAY, TEXT, TEXT_ARRAY, Statement

CONSENSUS, KEYS, ORACLE, MIGRATIONS = (
    "consensus",
    "consensus_keys",
    "timestamp_oracle",
    "mzsql_migrations",
)


def quoted(text: str, schema: str) -> str:
    """``text`` with ``{consensus}``, ``{keys}``, ``{oracle}``, ``{migrations}`` and ``{schema}`` replaced by quoted
    names.
    """
    tables = {"consensus": CONSENSUS, "keys": KEYS, "oracle": ORACLE, "migrations": MIGRATIONS}
    names = {name: sql.Identifier(schema, table) for name, table in tables.items()}
    return sql.SQL(text).format(schema=sql.Identifier(schema), **names).as_string(None)


NOTIFY = Statement("notify", "SELECT pg_notify($1, $2)", (TEXT, TEXT), name="mzsql_notify")
"""Sends $2 on the channel $1. A new session on PostgreSQL prepares it first."""


class Dialect(Protocol):
    """The differences between servers."""

    name: str
    notifies: bool
    """Whether it has LISTEN and NOTIFY."""
    isolation: str
    """What a compare-and-set needs."""
    next_entry: str
    """Appends to a key: $1 the key, $2 the new number, $3 its data, $4 the number expected."""
    locks: bool
    """Whether it has advisory locks and DDL in transactions."""
    keys_table: str
    consensus_table: str
    oracle_table: str

    def settings(self, limits: Limits) -> str:
        """The first statements of a new session."""


class Postgres:
    """PostgreSQL, 12 or newer.

    Sessions prefer indexes: a cached plan from when a table was small would scan the whole table ever after.
    """

    name = "PostgreSQL"
    notifies = True
    locks = True
    isolation = "read committed"
    next_entry = (
        "INSERT INTO {consensus} (shard, sequence_number, data) SELECT shard, $2, $3 FROM {consensus}"
        " WHERE shard = $1 AND sequence_number = $4 FOR KEY SHARE ON CONFLICT DO NOTHING"
    )
    # Collation "C" orders by bytes, so no upgrade of the server's locale corrupts the index.
    keys_table = 'CREATE TABLE {keys} (shard text COLLATE "C" PRIMARY KEY)'
    consensus_table = (
        'CREATE TABLE {consensus} (shard text COLLATE "C" NOT NULL, sequence_number bigint NOT NULL,'
        " data bytea NOT NULL, PRIMARY KEY (shard, sequence_number))"
    )
    oracle_table = (
        'CREATE TABLE {oracle} (timeline text COLLATE "C" PRIMARY KEY,'
        " read_ts bigint NOT NULL, write_ts bigint NOT NULL)"
    )

    def settings(self, limits: Limits) -> str:
        """Timeouts, isolation level, and synchronous commit even if the server's default is not to wait for the disk."""
        return (
            f"SET statement_timeout = {_ms(limits.statement_timeout)}; SET lock_timeout = {_ms(limits.lock_timeout)};"
            f" SET idle_in_transaction_session_timeout = {_ms(limits.statement_timeout)};"
            f" SET default_transaction_isolation = '{self.isolation}'; SET client_encoding = 'UTF8';"
            " SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off;"
            " SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';"
            " PREPARE mzsql_notify (text, text) AS SELECT pg_notify($1, $2)"
        )


class GuardedPostgres(Postgres):
    """PostgreSQL with CockroachDB's compare-and-set under SERIALIZABLE: also correct, but slower with many writers."""

    name = "PostgreSQL (guarded)"
    isolation = "serializable"
    next_entry = (
        "INSERT INTO {consensus} (shard, sequence_number, data) SELECT $1, $2, $3 WHERE (SELECT sequence_number"
        " FROM {consensus} WHERE shard = $1 ORDER BY sequence_number DESC LIMIT 1) = $4"
    )


class Cockroach:
    """CockroachDB, 22.1 or newer."""

    name = "CockroachDB"
    notifies = False
    locks = False
    isolation = "serializable"
    next_entry = GuardedPostgres.next_entry
    _options = "sql_stats_automatic_collection_enabled = false"
    keys_table = f"CREATE TABLE IF NOT EXISTS {{keys}} (shard text PRIMARY KEY) WITH ({_options})"
    consensus_table = (
        "CREATE TABLE IF NOT EXISTS {consensus} (shard text NOT NULL, sequence_number bigint NOT NULL,"
        f" data bytea NOT NULL, PRIMARY KEY (shard, sequence_number)) WITH ({_options})"
    )
    oracle_table = (
        "CREATE TABLE IF NOT EXISTS {oracle} (timeline text PRIMARY KEY,"
        f" read_ts bigint NOT NULL, write_ts bigint NOT NULL) WITH ({_options})"
    )
    gc_seconds = 600

    def settings(self, limits: Limits) -> str:
        """Timeouts and isolation level."""
        return (
            f"SET statement_timeout = {_ms(limits.statement_timeout)}; SET lock_timeout = {_ms(limits.lock_timeout)};"
            f" SET idle_in_transaction_session_timeout = {_ms(limits.statement_timeout)};"
            " SET default_transaction_isolation = 'serializable'"
        )


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


class ConsensusStatements:
    """A Consensus' statements in one schema."""

    def __init__(self, dialect: Dialect, schema: str) -> None:
        def made(operation: str, text: str, *types: int, reads: bool = False) -> Statement:
            return Statement(operation, quoted(text, schema), types, reads=reads)

        self.first_entry = made(
            "compare_and_set",
            "WITH fresh AS (INSERT INTO {keys} (shard) VALUES ($1) ON CONFLICT DO NOTHING RETURNING shard)"
            " INSERT INTO {consensus} (shard, sequence_number, data) SELECT shard, $2, $3 FROM fresh",
            TEXT,
            INT8,
            BYTEA,
        )
        self.next_entry = made("compare_and_set", dialect.next_entry, TEXT, INT8, BYTEA, INT8)
        self.head = made(
            "head",
            "SELECT sequence_number, data FROM {consensus} WHERE shard = $1 ORDER BY sequence_number DESC LIMIT 1",
            TEXT,
            reads=True,
        )
        self.scan = made(
            "scan",
            "SELECT sequence_number, data FROM {consensus} WHERE shard = $1 AND sequence_number >= $2"
            " ORDER BY sequence_number LIMIT $3",
            TEXT,
            INT8,
            INT8,
            reads=True,
        )
        self.scan_many = made(
            "scan_many",
            "SELECT asked.shard, log.sequence_number, log.data FROM unnest($1, $2) AS asked (shard, start),"
            " LATERAL (SELECT c.sequence_number, c.data FROM {consensus} AS c WHERE c.shard = asked.shard"
            " AND c.sequence_number >= asked.start ORDER BY c.sequence_number LIMIT $3) AS log",
            TEXT_ARRAY,
            INT8_ARRAY,
            INT8,
            reads=True,
        )
        # The newest number only grows, so what the statement's snapshot says of it still holds when rows are removed.
        self.truncate = made(
            "truncate",
            "WITH newest AS (SELECT sequence_number FROM {consensus} WHERE shard = $1"
            " ORDER BY sequence_number DESC LIMIT 1), removed AS (DELETE FROM {consensus} WHERE shard = $1"
            " AND sequence_number < $2 AND $2 <= (SELECT sequence_number FROM newest) RETURNING 1)"
            " SELECT (SELECT sequence_number FROM newest), (SELECT count(*) FROM removed)",
            TEXT,
            INT8,
        )
        self.list_keys = made(
            "list_keys",
            "SELECT shard FROM {keys} WHERE shard > $1 ORDER BY shard LIMIT $2",
            TEXT,
            INT8,
            reads=True,
        )
        self.heads = made(
            "wait",
            "SELECT k, (SELECT max(c.sequence_number) FROM {consensus} AS c WHERE c.shard = k)"
            " FROM unnest($1) AS k",
            TEXT_ARRAY,
            reads=True,
        )


class OracleStatements:
    """An oracle's statements in one schema."""

    def __init__(self, schema: str) -> None:
        def made(operation: str, text: str, *types: int, reads: bool = False) -> Statement:
            return Statement(operation, quoted(text, schema), types, reads=reads)

        self.begin = made(
            "open_timeline",
            "INSERT INTO {oracle} (timeline, read_ts, write_ts) VALUES ($1, $2, $2) ON CONFLICT DO NOTHING",
            TEXT,
            INT8,
        )
        self.write_ts = made(
            "write_ts",
            "UPDATE {oracle} SET write_ts = greatest(write_ts + 1, $2) WHERE timeline = $1 AND write_ts < $3"
            " RETURNING write_ts",
            TEXT,
            INT8,
            INT8,
        )
        self.peek_write_ts = made(
            "peek_write_ts", "SELECT write_ts FROM {oracle} WHERE timeline = $1", TEXT, reads=True
        )
        self.read_ts = made(
            "read_ts", "SELECT read_ts FROM {oracle} WHERE timeline = $1", TEXT, reads=True
        )
        self.apply_write = made(
            "apply_write",
            "UPDATE {oracle} SET write_ts = greatest(write_ts, $2), read_ts = greatest(read_ts, $2)"
            " WHERE timeline = $1 AND read_ts < $2",
            TEXT,
            INT8,
        )
        self.clock = Statement(
            "clock", "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint", reads=True
        )
