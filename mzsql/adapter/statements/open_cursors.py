"""DECLARE, FETCH, CLOSE: results returned piece by piece.

Promise: a cursor lives until the end of the transaction that declared it or, in a multi-statement text outside BEGIN,
of the text. Its query runs at the first FETCH, at the transaction's one timestamp; a SUBSCRIBE starts then. A FETCH
returns at most `FETCH_ROWS` rows, of a SUBSCRIBE about ``max_query_result_size`` bytes; the rest comes with the next
one. From a SUBSCRIBE it waits for one row and returns what else is there; with a timeout it collects until it has the
requested number of rows or the time is over.
"""

from __future__ import annotations

import time
import weakref

import pyarrow as pa

from mzsql.adapter.session.session import Session, Transaction, seconds
from mzsql.adapter.statements.selects import Selects
from mzsql.adapter.subscribe.subscription import Subscribes, Subscription
from mzsql.frontend.plan import cursor_plans
from mzsql.frontend.plan import plans as p
from mzsql.frontend.plan.cursors import DeclarePlan, FetchPlan
from mzsql.repr.errors import DuplicateObject, InvalidParameter, SqlError, TransactionError
from mzsql.repr.interrupt import current
from mzsql.repr.tables import piece, pieces
from mzsql.repr.types import RelationDesc

#: At most so many rows are returned by one FETCH.
FETCH_ROWS = 1_000_000


class Cursor:
    """A declared cursor."""

    def __init__(
        self, plan: p.SelectPlan | cursor_plans.SubscribePlan, owner: Transaction | None
    ) -> None:
        self.plan = plan
        self.owner = owner
        self.desc: RelationDesc | None = None
        self.rows: pa.Table | None = None  # fetched from below and not handed out yet
        self.stream: Subscription | None = None

    def take(self, count: int, size: int | None = None) -> pa.Table:
        """Remove and return up to ``count`` of the buffered rows, and up to ``size`` bytes unless the first row is
        larger.
        """
        assert self.rows is not None
        taken = piece(self.rows, 0, count)
        if size is not None:
            taken = next(pieces(taken, count, size), taken)
        self.rows = piece(self.rows, taken.num_rows)
        return taken

    def close(self) -> None:
        """Release the rows and the subscription. Idempotent."""
        self.rows = None
        if self.stream is not None:
            self.stream.close()


class Cursors:
    """The cursors of the sessions of one process."""

    def __init__(self, selects: Selects, subscribes: Subscribes) -> None:
        self._selects = selects
        self._subscribes = subscribes
        self._open: weakref.WeakKeyDictionary[Session, dict[str, Cursor]] = (
            weakref.WeakKeyDictionary()
        )

    def _of(self, session: Session) -> dict[str, Cursor]:
        return self._open.setdefault(session, {})

    def reap(self, session: Session, *, text_is_over: bool = True) -> None:
        """Close the cursors of ended transactions and, where ``text_is_over``, of the ended text."""
        cursors = self._of(session)
        for name, cursor in list(cursors.items()):
            over = text_is_over if cursor.owner is None else cursor.owner is not session.transaction
            if over:
                del cursors[name]
                cursor.close()

    def declare(
        self, session: Session, transaction: Transaction, plan: DeclarePlan, *, alone: bool
    ) -> None:
        """DECLARE; ``alone``: the statement is the only one of its text.

        Raises:
            TransactionError: there is no transaction for it to live in (25P01).
            DuplicateObject: the session has a cursor of this name (42P03).
        """
        if not transaction.begun and alone:
            raise TransactionError(
                "DECLARE CURSOR can only be used in transaction blocks",
                hint="BEGIN first.",
                sqlstate="25P01",
            )
        cursors = self._of(session)
        if plan.name in cursors:
            raise DuplicateObject(f'cursor "{plan.name}" already exists', sqlstate="42P03")
        cursors[plan.name] = Cursor(plan.plan, transaction if transaction.begun else None)

    def close(self, session: Session, name: str | None) -> None:
        """CLOSE a cursor; None: all of the session's.

        Raises:
            SqlError: there is no such cursor (34000).
        """
        cursors = self._of(session)
        for one in list(cursors) if name is None else [name]:
            self._named(session, one).close()
            del cursors[one]

    def _named(self, session: Session, name: str) -> Cursor:
        found = self._of(session).get(name)
        if found is None:
            raise SqlError(f'cursor "{name}" does not exist', sqlstate="34000")
        return found

    def fetch(
        self, session: Session, transaction: Transaction, plan: FetchPlan
    ) -> tuple[RelationDesc, pa.Table]:
        """FETCH: the columns and the rows.

        Raises:
            SqlError: there is no such cursor (34000), or its query fails.
        """
        cursor = self._named(session, plan.name)
        wanted = FETCH_ROWS if plan.count is None else min(plan.count, FETCH_ROWS)
        timeout = None if plan.timeout is None else _timeout(plan.timeout)
        if isinstance(cursor.plan, cursor_plans.SubscribePlan):
            if cursor.stream is None:
                if cursor.plan.as_of is None:
                    transaction.enter("subscribe")
                cursor.stream = self._subscribes.start(session, cursor.plan)
                cursor.desc = cursor.stream.desc
            return cursor.stream.desc, self._gather(session, cursor, cursor.stream, wanted, timeout)
        if cursor.rows is None:
            cursor.desc, cursor.rows = self._selects.rows(session, transaction, cursor.plan)
        assert cursor.desc is not None
        return cursor.desc, cursor.take(wanted)

    def _gather(
        self,
        session: Session,
        cursor: Cursor,
        stream: Subscription,
        wanted: int,
        timeout: float | None,
    ) -> pa.Table:
        """Rows of a subscription, as the module's docstring says."""
        end = None if timeout is None else time.monotonic() + timeout
        found: list[pa.Table] = []
        have = size = 0
        while have < wanted:
            if cursor.rows is None or not cursor.rows.num_rows:
                left = end - time.monotonic() if end is not None else 0.0 if have else None
                cursor.rows = stream.next_batch(left if left is None else max(0.0, left))
                if cursor.rows is None or not cursor.rows.num_rows:
                    break
                current().check()
            found.append(cursor.take(wanted - have, session.result_size - size))
            have += found[-1].num_rows
            size += found[-1].nbytes
            if size >= session.result_size:
                break
        return pa.concat_tables(found) if found else stream.no_rows()


def _timeout(text: str) -> float:
    """FETCH's timeout in seconds; a bare number is seconds, as in an interval (elsewhere it is milliseconds)."""
    plain = text.strip()
    found = seconds(f"{plain} s" if plain.replace(".", "", 1).isdigit() else plain, "timeout")
    if found < 0:
        raise InvalidParameter(f'invalid value for parameter "timeout": "{text}"')
    return found
