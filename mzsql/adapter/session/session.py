"""A session: its variables, the transaction it is in, the statement that it runs.

Promise: a variable that is set in a transaction is set back when that fails or is rolled back, one that is set LOCAL also when it
commits. A transaction is read-only (its first SELECT fixes one timestamp and the relations that can be read at it) or write-only (its
writes are buffered and committed as one), decided by its first statement, as in Materialize (https://materialize.com/docs/sql/begin/);
constants and the system catalog may be read in any. DDL stands alone, but for what only gives things other names, and is carried out by
COMMIT. A failed statement fails its transaction. A transaction in which nobody does anything for ``idle_in_transaction_session_timeout``
is rolled back; the session's next statement is told so, and is not carried out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

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
from mzsql.frontend.plan import plans as p
from mzsql.repr.errors import (
    IdleInTransactionTimeout,
    InvalidParameter,
    ResultTooLarge,
    TransactionError,
)
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import NO_LIMIT, Interrupt, running
from mzsql.threads import ALARMS

READ_ONLY = frozenset(name for name, one in VARIABLES.items() if one.read_only)


def seconds(text: str, name: str) -> float:
    """A duration such as ``500``, ``500 ms``, ``10s`` or ``1 min`` in seconds; a bare number is milliseconds."""
    return milliseconds(text, name) / 1000


class Transaction:
    """An open transaction.

    Attributes:
        kind: None while nothing was done in it but reading constants, then ``read``, ``subscribe``, ``write`` or ``ddl``.
        read_only: whether it was said to be READ ONLY.
        queried: whether a query was answered in it.
        read_ts: the time of its reads.
        domain: what its reads may name, held readable; None before the first of them.
        held: what is held readable beside that: the session's schemas, where the first query read only the time.
        write_read_ts: the time of what its writes were computed from.
        writes: what it will write, by table.
        reads: what its writes were computed from.
        ddl: the plan that COMMIT carries out.
        staged: what several statements of DDL have done to the catalog, for COMMIT to write; then there is no `ddl`.
        failed: whether a statement in it failed.
        implicit: whether it is a single statement outside BEGIN.
        begun: whether BEGIN has opened it.
        synced: a moment of the environment's clock after which the present statement has looked at the catalog.
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
        """Whether a statement has been carried out in it that its isolation and cluster matter for."""
        return self.queried or self.kind is not None

    def begin(self, *, read_only: bool | None) -> None:
        """BEGIN: from here on the transaction ends with COMMIT or ROLLBACK."""
        self.begun = True
        self.implicit = False
        self.set_mode(read_only=read_only)

    def set_mode(self, *, read_only: bool | None) -> None:
        """READ ONLY or READ WRITE; the latter only before the first query."""
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
        """Take a statement of this kind in; raises TransactionError where it does not fit what came before."""
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
        """Take a query in; one that is ``timed`` reads something that has a time, a constant may be read in any transaction."""
        if timed or self.kind in ("ddl", "subscribe"):
            self.enter("read")
        self.queried = True

    def add(self, gid: GlobalId, writes: Sequence[Write]) -> None:
        """Buffer writes to a table."""
        self.writes.setdefault(gid, []).extend(writes)

    def end(self) -> None:
        """Let go of what it holds. Idempotent."""
        if self.domain is not None:
            self.domain.held.release()
        if self.held is not None:
            self.held.release()


class Notice(msgspec.Struct, frozen=True):
    """Something a person should hear that is no error."""

    severity: str
    message: str
    hint: str | None = None


_RESULT_SIZE = "max_query_result_size"


class Session:
    """One client's session.

    Args:
        defaults: for a role's name what is set where its sessions begin, and the system's variables.
    """

    user = "mzsql"

    def __init__(self, defaults: Callable[[str], Mapping[str, str]] = lambda _role: {}) -> None:
        self._defaults = defaults
        stored = self._system()
        self._values = {name: system_value(stored, name) for name in SESSION_VARIABLES}
        self._staged: dict[str, str] = {}
        self._local: dict[str, str] = {}
        self._interrupt: Interrupt | None = None
        self._idle_lock = threading.Lock()
        self._idle_key: object | None = None
        self._idle_ended = False
        self._transaction: Transaction | None = None
        self.notices: list[Notice] = []
        self.seen_ts: Timestamp = 0
        self.stdin: Path | None = None
        self.copy_paths = ANYWHERE

    @property
    def transaction(self) -> Transaction | None:
        """The transaction that the session is in; one that it leaves lets go of what it holds."""
        return self._transaction

    @transaction.setter
    def transaction(self, new: Transaction | None) -> None:
        old, self._transaction = self._transaction, new
        if old is not None and old is not new:
            old.end()

    # --- variables ----------------------------------------------------------------------------

    def _system(self) -> Mapping[str, str]:
        """What the system, and the session's role, have set now."""
        return self._defaults(self.user)

    def get(self, name: str) -> str:
        """A variable's value, the session's own or the system's; UndefinedObject where there is none of that name."""
        if variable(name).of_system:
            return system_value(self._system(), name)
        for values in (self._local, self._staged):
            if name in values:
                return values[name]
        return self._values[name]

    def names(self) -> list[str]:
        """The names of all variables, the system's too, in order."""
        return sorted(VARIABLES)

    def set(self, name: str, values: Sequence[str] | None, *, local: bool = False) -> None:
        """Set a variable; None: back to its default; ``local``: until the transaction ends.

        Raises:
            UndefinedObject: there is no such variable.
            InvalidParameter: a value that it cannot have.
            TransactionError: the transaction is too far for it.
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
            self._local.pop(name, None)
            self._staged[name] = value

    def reset_all(self) -> None:
        """RESET ALL: every variable that can be set back to its default."""
        for name in SESSION_VARIABLES:
            # What is at its default already cannot fail, whatever the transaction has done.
            if name not in READ_ONLY and self.get(name) != self.default(name):
                self.set(name, None)

    def default(self, name: str) -> str:
        """What a variable goes back to by RESET: as the system has it."""
        return system_value(self._system(), name)

    def end_transaction(self, *, committed: bool) -> None:
        """The transaction is over: what it has set stays only if it was committed."""
        self.transaction = None
        if committed:
            self._values.update(self._staged)
        self._staged.clear()
        self._local.clear()

    @property
    def search_path(self) -> tuple[str, ...]:
        """The schemas of unqualified names."""
        return path_of(self.get("search_path"))

    @property
    def statement_timeout(self) -> float | None:
        """Seconds that a statement may take; None: it has no limit."""
        limit = seconds(self.get("statement_timeout"), "statement_timeout")
        return limit if limit > 0 else None

    def limit(self, *, lengthy: bool) -> float | None:
        """Seconds that a statement may take; None: it has no limit.

        The default is for queries and changes of rows, as Materialize says it; a ``lengthy`` one (loading files, DDL) is bounded by what
        was set alone.
        """
        if lengthy:
            name = "statement_timeout"
            if self.get(name) == variable(name).default:
                return None
        return self.statement_timeout

    @property
    def timeout(self) -> float:
        """As `statement_timeout`, in a form fit for waits: without a limit `NO_LIMIT`."""
        limit = self.statement_timeout
        return NO_LIMIT if limit is None else limit

    @property
    def result_size(self) -> int:
        """How many bytes a result may have."""
        return size_in_bytes(self.get(_RESULT_SIZE), _RESULT_SIZE)

    def check_size(self, rows: int, size: int) -> None:
        """Raise ResultTooLarge where so many rows of so many bytes are more than ``max_query_result_size`` lets a result be."""
        limit = self.result_size
        if size > limit:
            raise ResultTooLarge(
                f"result exceeds max size of {shown_size(limit)}",
                detail=f"Its first {rows} rows have {shown_size(size)}.",
                hint=f"Ask for less, or raise {_RESULT_SIZE}.",
            )

    # --- statements ---------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[Interrupt]:
        """Run statements of this session, on this thread: `cancel` ends them, and `Interrupt.begin` begins each."""
        interrupt = Interrupt(self.statement_timeout, ALARMS)
        self._interrupt = interrupt
        try:
            with running(interrupt):
                yield interrupt
        finally:
            self._interrupt = None

    def cancel(self) -> None:
        """End the statement that runs now, from any thread; without one nothing happens."""
        interrupt = self._interrupt
        if interrupt is not None:
            interrupt.cancel()

    # --- idle transactions --------------------------------------------------------------------

    def rest(self) -> None:
        """No statement runs now; an open transaction has so long as ``idle_in_transaction_session_timeout`` says."""
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
            # What others might wait for goes now; the rest with the next statement.
            self.transaction.end()

    def resume(self) -> None:
        """A statement begins.

        Raises:
            IdleInTransactionTimeout: the transaction that it was meant for is over; said once.
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
        """The session has read or written at ``ts``: strong session serializable reads are never earlier again."""
        self.seen_ts = max(self.seen_ts, ts)

    def notice(self, message: str, *, severity: str = "NOTICE", hint: str | None = None) -> None:
        """Remember something for the client, unless ``client_min_messages`` asks for graver things alone."""
        least = self.get("client_min_messages")
        if (least == "warning" and severity == "NOTICE") or least == "error":
            return
        self.notices.append(Notice(severity, message, hint))

    def take_notices(self) -> list[Notice]:
        """The notices since the last call."""
        taken, self.notices = self.notices, []
        return taken
