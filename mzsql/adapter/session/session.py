"""A session: its variables, its open transaction, its running statement.

Promise: SET in a transaction is undone when the transaction fails or is rolled back, SET LOCAL also when it commits. A
transaction is read-only (its first SELECT fixes one timestamp, and the relations that can be read at it) or write-only
(its writes are buffered and committed as one); its first statement decides, as in Materialize
(https://materialize.com/docs/sql/begin/). Constants and the system catalog may be read in any transaction. DDL is a
transaction by itself, except for statements that only rename objects, and is carried out by COMMIT. A failed statement
fails its transaction. A transaction that idles for ``idle_in_transaction_session_timeout`` is rolled back: the
session's next statement fails with an error that says so, and is not carried out.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from mzsql.adapter.session.commit_batches import Write
from mzsql.adapter.session.copy_paths import ANYWHERE
from mzsql.adapter.session.holds import Held, TimeDomain
from mzsql.adapter.session.staging import Staged
from mzsql.catalog.settings import (
    SESSION_VARIABLES,
    VARIABLES,
    milliseconds,
    path_element,
    path_of,
    shown_size,
    size_in_bytes,
    system_value,
    value_for,
    variable,
)
from mzsql.frontend.catalog import temporary_schema
from mzsql.frontend.plan import plans as p
from mzsql.repr.errors import (
    IdleInTransactionTimeout,
    InvalidParameter,
    ResultTooLarge,
    TransactionError,
)
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import NO_LIMIT, Interrupt
from mzsql.threads import ALARMS

READ_ONLY = frozenset(name for name, one in VARIABLES.items() if one.read_only)


def seconds(text: str, name: str) -> float:
    """A duration such as ``500``, ``500 ms``, ``10s`` or ``1 min`` in seconds; a bare number is in milliseconds.

    Args:
        text: the duration.
        name: the variable that has it, for messages.
    """
    return milliseconds(text, name) / 1000


class Transaction:
    """An open transaction.

    Attributes:
        kind: ``read``, ``subscribe``, ``write`` or ``ddl``, as the first statement that is not a constant query
            decided; None before it.
        read_only: whether it was declared READ ONLY.
        queried: whether a query was answered in it.
        read_ts: the timestamp of its reads.
        domain: the relations that it may read, held readable at `read_ts`; None before the first read.
        held: what else is held readable: the relations of the session's schemas, where the first query read only the
            time.
        write_read_ts: the timestamp of the reads that its writes were computed from.
        writes: its buffered writes, by table.
        reads: the relations that its writes were computed from.
        ddl: the plan that COMMIT carries out.
        staged: the catalog changes of several DDL statements, which COMMIT writes; `ddl` is None then.
        failed: whether a statement in it failed.
        implicit: whether it is a single statement outside BEGIN.
        begun: whether BEGIN opened it.
        synced: a time of the environment's monotonic clock, before the present statement read the catalog.
    """

    def __init__(self, *, implicit: bool) -> None:
        self.implicit = implicit
        self.begun = False
        self.kind: str | None = None
        self.read_only = False
        self.queried = False
        self.read_ts: Timestamp | None = None
        self.domain: TimeDomain | None = None
        self.held: Held | None = None
        self.write_read_ts: Timestamp | None = None
        self.writes: dict[GlobalId, list[Write]] = {}
        self.reads: set[GlobalId] = set()
        self.ddl: p.Plan | None = None
        self.staged: Staged | None = None
        self.failed = False
        self.synced = float("-inf")

    @property
    def active(self) -> bool:
        """Whether a statement was carried out in it, after which its isolation level and cluster may not change."""
        return self.queried or self.kind is not None

    def begin(self, *, read_only: bool | None) -> None:
        """BEGIN: from now on the transaction ends with COMMIT or ROLLBACK."""
        self.begun = True
        self.implicit = False
        self.set_mode(read_only=read_only)

    def set_mode(self, *, read_only: bool | None) -> None:
        """Set READ ONLY or READ WRITE; None leaves it.

        Raises:
            TransactionError: READ ONLY after a write, or READ WRITE after a query.
        """
        if read_only is None:
            return
        if read_only and self.kind in ("write", "ddl"):
            raise TransactionError("transaction in write-only mode", sqlstate="25001")
        if not read_only and self.active and self.kind != "write":
            raise TransactionError(
                "transaction read-write mode must be set before any query", sqlstate="25001"
            )
        self.read_only = read_only

    def enter(self, kind: str) -> None:
        """Admit a statement of this kind.

        Raises:
            TransactionError: it does not fit the statements before it.
        """
        if self.implicit:
            return
        if self.kind == "ddl" and self.staged is not None:
            if kind == "ddl":
                return
            raise TransactionError(
                "transactions which modify objects are restricted to just modifying objects",
                sqlstate="25001",
            )
        if self.kind == "ddl":
            raise TransactionError(
                "this transaction can only execute a single statement", sqlstate="25001"
            )
        if kind in ("write", "ddl") and (
            self.read_only
            or self.kind in ("read", "subscribe")
            or (kind == "ddl" and self.queried and self.kind is None)
        ):
            raise TransactionError("transaction in read-only mode", sqlstate="25006")
        if kind != "write" and self.kind == "write":
            raise TransactionError("transaction in write-only mode", sqlstate="25001")
        if self.kind == "subscribe":
            raise TransactionError(
                "SUBSCRIBE in transactions must be the only read statement", sqlstate="25001"
            )
        if kind == "subscribe" and self.active:
            raise TransactionError(
                "transaction in read-only mode",
                detail="SELECT queries cannot be combined with other query types, including SUBSCRIBE.",
                sqlstate="25006",
            )
        self.kind = kind

    def query(self, *, timed: bool) -> None:
        """Admit a query. One that is ``timed`` reads a relation or the time; a constant query fits any transaction."""
        if timed or self.kind in ("ddl", "subscribe"):
            self.enter("read")
        self.queried = True

    def add(self, gid: GlobalId, writes: Sequence[Write]) -> None:
        """Buffer writes to a table."""
        self.writes.setdefault(gid, []).extend(writes)

    def end(self) -> None:
        """Release the read holds. Idempotent."""
        if self.domain is not None:
            self.domain.held.release()
        if self.held is not None:
            self.held.release()


class Notice(msgspec.Struct, frozen=True):
    """A message for the client that is not an error."""

    severity: str
    message: str
    hint: str | None = None


_RESULT_SIZE = "max_query_result_size"


class Defaults(Protocol):
    """Where the variables of sessions begin."""

    def of(self, role: str) -> Mapping[str, str]:
        """The defaults of the variables of a role's sessions, and the system variables, as they are now."""


class _BuiltinDefaults:
    """Each variable's own default."""

    def of(self, role: str) -> Mapping[str, str]:
        del role
        return {}


class Session:
    """One client's session.

    Args:
        defaults: the defaults of its variables; by default those of an environment where nobody has set any.

    Attributes:
        temporary: the name under which the catalog keeps its schema of temporary objects, once there is one.
    """

    user = "mzsql"

    def __init__(self, defaults: Defaults | None = None) -> None:
        self._defaults = defaults or _BuiltinDefaults()
        stored = self._system()
        self._values = {name: system_value(stored, name) for name in SESSION_VARIABLES}
        self._staged: dict[str, str] = {}
        self._local: dict[str, str] = {}
        self._interrupt: Interrupt | None = None
        self._idle_lock = threading.Lock()
        self._idle_key: object | None = None
        self._idle_ended = False
        self._transaction: Transaction | None = None
        # Nobody else can name the schema, as nobody can guess it.
        self.temporary = temporary_schema(secrets.token_hex(8))
        self.notices: list[Notice] = []
        self.seen_ts: Timestamp = 0
        self.stdin: Path | None = None
        self.copy_paths = ANYWHERE

    @property
    def transaction(self) -> Transaction | None:
        """The open transaction, if any; assigning another one releases what the old one holds."""
        return self._transaction

    @transaction.setter
    def transaction(self, new: Transaction | None) -> None:
        old, self._transaction = self._transaction, new
        if old is not None and old is not new:
            old.end()

    # --- variables ----------------------------------------------------------------------------

    def _system(self) -> Mapping[str, str]:
        """The system's and the role's settings as they are now."""
        return self._defaults.of(self.user)

    def get(self, name: str) -> str:
        """A variable's value: the session's own or, for a system variable, the system's.

        Raises:
            UndefinedObject: there is no such variable.
        """
        # A statement asks some twenty times, so what nearly always holds is found without a call of ours.
        for values in (self._local, self._staged, self._values):
            if name in values:
                return values[name]
        variable(name)  # the rest are system variables, or there is no such one
        return system_value(self._system(), name)

    def names(self) -> list[str]:
        """The names of all variables, system variables included, sorted."""
        return sorted(VARIABLES)

    def set(self, name: str, values: Sequence[str] | None, *, local: bool = False) -> None:
        """Set a variable.

        Args:
            name: the variable.
            values: the elements of its value; None: the default.
            local: whether only until the transaction ends.

        Raises:
            UndefinedObject: there is no such variable.
            InvalidParameter: the variable cannot have this value, or is a system variable.
            TransactionError: the transaction has gone too far for it.
        """
        if variable(name).of_system:
            raise InvalidParameter(
                f'parameter "{name}" cannot be changed now',
                hint="It is the system's: ALTER SYSTEM SET changes it.",
                sqlstate="55P02",
            )
        if values is None:
            value = value_for(name, (self.default(name),))
        elif name == "search_path":
            value = value_for(name, tuple(map(path_element, values)))
        else:
            value = value_for(name, tuple(values))
        if self.transaction is not None and self.transaction.active:
            if name == "transaction_isolation":
                raise TransactionError(
                    "SET TRANSACTION ISOLATION LEVEL must be called before any query",
                    sqlstate="25001",
                )
            if name == "cluster":
                raise TransactionError(
                    "SET cluster cannot be called in an active transaction", sqlstate="25001"
                )
        if local:
            self._local[name] = value
        else:
            # As in PostgreSQL, a SET outlives a SET LOCAL that came before it in the transaction.
            self._local.pop(name, None)
            self._staged[name] = value

    def reset_all(self) -> None:
        """RESET ALL: set every variable that can be set to its default."""
        for name in SESSION_VARIABLES:
            # Skip those at their default: setting one, such as cluster, would fail in an active transaction.
            if name not in READ_ONLY and self.get(name) != self.default(name):
                self.set(name, None)

    def default(self, name: str) -> str:
        """The value that RESET gives a variable: the role's or the system's setting."""
        return system_value(self._system(), name)

    def end_transaction(self, *, committed: bool) -> None:
        """End the transaction: its SETs stay only if it committed, its SET LOCALs never."""
        self.transaction = None
        if committed:
            self._values.update(self._staged)
        self._staged.clear()
        self._local.clear()

    @property
    def search_path(self) -> tuple[str, ...]:
        """The schemas in which unqualified names are looked up, in order."""
        return path_of(self.get("search_path"))

    @property
    def statement_timeout(self) -> float | None:
        """Seconds that a statement may take; None: no limit."""
        limit = seconds(self.get("statement_timeout"), "statement_timeout")
        return limit if limit > 0 else None

    def limit(self, *, lengthy: bool) -> float | None:
        """Seconds that a statement may take; None: no limit.

        The default of ``statement_timeout`` bounds queries and changes of rows, as in Materialize. A ``lengthy``
        statement (DDL, loading files) is bounded only by a value that was set explicitly.
        """
        if lengthy:
            name = "statement_timeout"
            if self.get(name) == variable(name).default:
                return None
        return self.statement_timeout

    @property
    def timeout(self) -> float:
        """As `statement_timeout`, as a number fit for waits: `NO_LIMIT` where there is no limit."""
        limit = self.statement_timeout
        return NO_LIMIT if limit is None else limit

    @property
    def result_size(self) -> int:
        """How many bytes a result may have: ``max_query_result_size``."""
        return size_in_bytes(self.get(_RESULT_SIZE), _RESULT_SIZE)

    def check_size(self, rows: int, size: int) -> None:
        """Check ``size``, the bytes of the first ``rows`` rows of a result, against ``max_query_result_size``.

        Raises:
            ResultTooLarge: they exceed it.
        """
        limit = self.result_size
        if size > limit:
            raise ResultTooLarge(
                f"result exceeds max size of {shown_size(limit)}",
                detail=f"Its first {rows} rows have {shown_size(size)}.",
                hint=f"Ask for less, or raise {_RESULT_SIZE}.",
            )

    # --- statements ---------------------------------------------------------------------------

    def begin(self) -> Interrupt:
        """What interrupts the text of statements that begins now, until `end`: `cancel` does; `Interrupt.begin` starts the
        timeout of each statement.
        """
        self._interrupt = Interrupt(self.statement_timeout, ALARMS)
        return self._interrupt

    def end(self) -> None:
        """The text of statements is over: `cancel` finds nothing to interrupt. Idempotent."""
        self._interrupt = None

    def cancel(self) -> None:
        """Cancel the running statement; callable from any thread. Does nothing where none runs."""
        interrupt = self._interrupt
        if interrupt is not None:
            interrupt.cancel()

    # --- idle transactions --------------------------------------------------------------------

    def rest(self) -> None:
        """No statement runs now: start the timer of ``idle_in_transaction_session_timeout`` for an open transaction."""
        if self.transaction is None or not self.transaction.begun:
            return
        limit = seconds(
            self.get("idle_in_transaction_session_timeout"), "idle_in_transaction_session_timeout"
        )
        if limit > 0:
            with self._idle_lock:  # the time may be over before the key is known here
                self._idle_key = ALARMS.add(time.monotonic() + limit, self._end_idle)

    def _end_idle(self) -> None:
        with self._idle_lock:
            if self._idle_key is None or self.transaction is None:
                return
            self._idle_ended = True
            # Runs on the timer's thread: release the read holds, which others may wait for. The session's next
            # statement does the rest.
            self.transaction.end()

    def resume(self) -> None:
        """A statement begins: stop the idle timer.

        Raises:
            IdleInTransactionTimeout: the timer had rolled the transaction back; raised once.
        """
        with self._idle_lock:
            key, self._idle_key = self._idle_key, None
            ended, self._idle_ended = self._idle_ended, False
        if key is not None:
            ALARMS.remove(key)
        if ended:
            raise IdleInTransactionTimeout(
                "terminating transaction due to idle-in-transaction timeout",
                detail="The transaction was rolled back; this statement was not carried out.",
                hint="Run the transaction again, or raise idle_in_transaction_session_timeout.",
            )

    # --- notices ------------------------------------------------------------------------------

    def saw(self, ts: Timestamp) -> None:
        """Record that the session read or wrote at ``ts``: its later strong session serializable reads are not earlier."""
        self.seen_ts = max(self.seen_ts, ts)

    def notice(self, message: str, *, severity: str = "NOTICE", hint: str | None = None) -> None:
        """Queue a notice for the client, unless ``client_min_messages`` asks for more severe ones only."""
        least = self.get("client_min_messages")
        if (least == "warning" and severity == "NOTICE") or least == "error":
            return
        self.notices.append(Notice(severity, message, hint))

    def take_notices(self) -> list[Notice]:
        """The notices queued since the last call."""
        taken, self.notices = self.notices, []
        return taken
