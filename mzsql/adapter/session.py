"""A session: its variables and the transaction it is in.

Promise: variables have Materialize's names and defaults; an unknown one is PostgreSQL's error. A transaction is read-only (its first
SELECT fixes one timestamp) or write-only (its writes are buffered and committed as one), decided by its first statement, as in
Materialize (reference facts 11); DDL stands alone. A failed statement fails its transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from mzsql.adapter.commit_batches import Write
from mzsql.adapter.holds import TimeDomain
from mzsql.repr.errors import InvalidParameter, TransactionError, UndefinedObject
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId

#: Variables a session has, with their defaults.
DEFAULTS: Mapping[str, str] = {
    "application_name": "",
    "auto_route_catalog_queries": "on",
    "client_encoding": "UTF8",
    "client_min_messages": "notice",
    "cluster": "quickstart",
    "cluster_replica": "",
    "database": "materialize",
    "datestyle": "ISO, MDY",
    "emit_timestamp_notice": "off",
    "emit_trace_id_notice": "off",
    "extra_float_digits": "3",
    "idle_in_transaction_session_timeout": "2 min",
    "integer_datetimes": "on",
    "intervalstyle": "postgres",
    "is_superuser": "on",
    "max_query_result_size": "1GB",
    "real_time_recency": "off",
    "search_path": "public",
    "server_version": "9.5.0",
    "server_version_num": "90500",
    "sql_safe_updates": "off",
    "standard_conforming_strings": "on",
    "statement_timeout": "1 min",
    "timezone": "UTC",
    "transaction_isolation": "strict serializable",
    "welcome_message": "on",
}
READ_ONLY = frozenset({"integer_datetimes", "is_superuser", "server_version", "server_version_num"})
_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "transaction_isolation": (
        "read uncommitted",
        "read committed",
        "repeatable read",
        "serializable",
        "strong session serializable",
        "strict serializable",
    ),
    "client_encoding": ("utf8",),
    "timezone": ("utc", "+00:00"),
    "datestyle": ("iso, mdy", "iso", "mdy"),
    "intervalstyle": ("postgres",),
    "standard_conforming_strings": ("on",),
}
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str, name: str) -> float:
    """A duration such as ``500``, ``500 ms``, ``10s`` or ``1 min`` in seconds; a bare number is milliseconds."""
    stripped = text.strip().replace("'", "")
    digits = stripped.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = stripped[len(digits) :].strip() or "ms"
    try:
        return float(digits) * _SECONDS[unit]
    except (ValueError, KeyError):
        raise InvalidParameter(f'invalid value for parameter "{name}": "{text}"') from None


class Transaction:
    """An open transaction.

    Attributes:
        kind: None while nothing was done in it, then ``read``, ``write`` or ``ddl``.
        read_ts: the time of its reads.
        writes: what it will write, by table.
        reads: what its writes were computed from.
        failed: whether a statement in it failed.
        implicit: whether it is a single statement outside BEGIN.
        begun: whether BEGIN has opened it.
        domain: what its reads may name, held readable; None before the first of them.
        synced: a moment of the environment's clock after which the present statement has looked at the catalog.
    """

    def __init__(self, *, implicit: bool) -> None:
        self.implicit = implicit
        self.begun = False
        self.kind: str | None = None
        self.read_ts: Timestamp | None = None
        self.write_read_ts: Timestamp | None = None
        self.writes: dict[GlobalId, list[Write]] = {}
        self.reads: set[GlobalId] = set()
        self.failed = False
        self.domain: TimeDomain | None = None
        self.synced = float("-inf")

    def end(self) -> None:
        """Let go of what it holds. Idempotent."""
        if self.domain is not None:
            self.domain.held.release()

    def begin(self, *, read_only: bool) -> None:
        """BEGIN: from here on the transaction ends with COMMIT or ROLLBACK."""
        self.begun = True
        self.implicit = False
        if read_only:
            self.set_mode(read_only=True)

    def set_mode(self, *, read_only: bool) -> None:
        """READ ONLY or READ WRITE; the latter only before the first query."""
        if read_only:
            if self.kind == "write":
                raise TransactionError("transaction in write-only mode", sqlstate="25001")
            self.kind = "read"
        elif self.kind in ("read", "subscribe"):
            if self.read_ts is not None or self.kind == "subscribe":
                raise TransactionError(
                    "transaction read-write mode must be set before any query", sqlstate="25001"
                )
            self.kind = None

    def enter(self, kind: str) -> None:
        """Take a statement of this kind in; raises TransactionError where it does not fit what came before."""
        if self.implicit:
            return
        if self.kind == "ddl" or (kind == "ddl" and self.kind is not None):
            raise TransactionError(
                "this transaction can only execute a single DDL statement"
                if self.kind == "ddl"
                else "transactions which modify objects are restricted to just modifying objects",
                sqlstate="25001",
            )
        if kind == "subscribe" and self.kind == "read" and self.read_ts is not None:
            raise TransactionError(
                "transaction in read-only mode",
                detail="SELECT queries cannot be combined with other query types, including SUBSCRIBE.",
                sqlstate="25006",
            )
        if self.kind == "subscribe" and kind in ("read", "subscribe"):
            raise TransactionError(
                "SUBSCRIBE in transactions must be the only read statement", sqlstate="25000"
            )
        if kind == "write" and self.kind in ("read", "subscribe"):
            raise TransactionError("transaction in read-only mode", sqlstate="25006")
        if kind in ("read", "subscribe") and self.kind == "write":
            raise TransactionError("transaction in write-only mode", sqlstate="25001")
        if self.kind is None or kind == "subscribe":
            self.kind = kind

    def add(self, gid: GlobalId, writes: Sequence[Write]) -> None:
        """Buffer writes to a table."""
        self.writes.setdefault(gid, []).extend(writes)


class Notice(msgspec.Struct, frozen=True):
    """Something a person should hear that is no error."""

    severity: str
    message: str
    hint: str | None = None


class Session:
    """One client's session.

    Attributes:
        stdin: the file with what the client sends for COPY … FROM STDIN, while a text is run that may have one.
    """

    def __init__(self) -> None:
        self._variables = dict(DEFAULTS)
        self._transaction: Transaction | None = None
        self.notices: list[Notice] = []
        self.seen_ts: Timestamp = 0
        self.user = "mzsql"
        self.stdin: Path | None = None

    @property
    def transaction(self) -> Transaction | None:
        """The transaction that the session is in; one that it leaves lets go of what it holds."""
        return self._transaction

    @transaction.setter
    def transaction(self, new: Transaction | None) -> None:
        old, self._transaction = self._transaction, new
        if old is not None and old is not new:
            old.end()

    def get(self, name: str) -> str:
        """A variable's value; UndefinedObject where there is none of that name."""
        if name not in self._variables:
            raise UndefinedObject(f'unrecognized configuration parameter "{name}"')
        return self._variables[name]

    def names(self) -> list[str]:
        """The names of all variables, in order."""
        return sorted(self._variables)

    def set(self, name: str, values: Sequence[str] | None) -> None:
        """Set a variable; None: back to its default.

        Raises:
            UndefinedObject: there is no such variable.
            InvalidParameter: a value that it cannot have.
        """
        self.get(name)
        if name in READ_ONLY:
            raise InvalidParameter(f'parameter "{name}" cannot be changed', sqlstate="55P02")
        if values is None:
            self._variables[name] = DEFAULTS[name]
            return
        value = ", ".join(values)
        allowed = _ALLOWED.get(name)
        if allowed is not None and value.lower() not in allowed:
            raise InvalidParameter(
                f'invalid value for parameter "{name}": "{value}"',
                hint=f"Available values: {', '.join(allowed)}.",
            )
        if name == "statement_timeout":
            seconds(value, name)
        if name == "transaction_isolation":
            value = value.lower()
        self._variables[name] = value

    @property
    def search_path(self) -> tuple[str, ...]:
        """The schemas of unqualified names."""
        return tuple(s.strip() for s in self._variables["search_path"].split(",") if s.strip())

    @property
    def strict(self) -> bool:
        """Whether reads see every acknowledged write (strong session serializable is given the stronger promise)."""
        isolation = self._variables["transaction_isolation"]
        return isolation in ("strict serializable", "strong session serializable")

    @property
    def timeout(self) -> float:
        """Seconds a statement may wait; the default where it is switched off."""
        limit = seconds(self._variables["statement_timeout"], "statement_timeout")
        return limit if limit > 0 else seconds(DEFAULTS["statement_timeout"], "statement_timeout")

    def saw(self, ts: Timestamp) -> None:
        """The session has read or written at ``ts``: strong session serializable reads are never earlier again."""
        self.seen_ts = max(self.seen_ts, ts)

    def notice(self, message: str, *, severity: str = "NOTICE", hint: str | None = None) -> None:
        """Remember something for the client."""
        self.notices.append(Notice(severity, message, hint))

    def take_notices(self) -> list[Notice]:
        """The notices since the last call."""
        taken, self.notices = self.notices, []
        return taken
