"""The statements whose results are streams, or that keep something under a name: SUBSCRIBE, cursors, prepared
statements, COPY … TO, DISCARD.

Promise: this dispatches to the modules that implement them. A subscription that a session started and nobody closed
ends at the latest with the coordinator.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from mzsql.adapter.session.prepared import PreparedStatements
from mzsql.adapter.session.session import Session, Transaction
from mzsql.adapter.statements.copy_to import CopyOut, check_allowed, to_files
from mzsql.adapter.statements.open_cursors import Cursors
from mzsql.adapter.statements.result import Result
from mzsql.adapter.statements.selects import Selects
from mzsql.adapter.statements.tables import Runs
from mzsql.adapter.subscribe.subscription import Subscribes
from mzsql.compute.peek.rows import as_columns
from mzsql.frontend.plan import cursor_plans
from mzsql.frontend.plan.cursors import (
    ClosePlan,
    DeallocatePlan,
    DeclarePlan,
    DiscardPlan,
    FetchPlan,
)
from mzsql.repr.errors import TransactionError


class CursorStatements:
    """Carries out these statements for the sessions of one process.

    Args:
        subscribes: starts subscriptions.
        selects: runs queries.
        prepared: the prepared statements.
        forget_temporary: drops a session's temporary objects.
    """

    def __init__(
        self,
        subscribes: Subscribes,
        selects: Selects,
        prepared: PreparedStatements,
        forget_temporary: Callable[[Session], None],
    ) -> None:
        self._forget_temporary = forget_temporary
        self.subscribes = subscribes
        self._selects = selects
        self._cursors = Cursors(selects, subscribes)
        self._prepared = prepared
        self._texts: weakref.WeakKeyDictionary[Session, int] = weakref.WeakKeyDictionary()

    def begin_text(self, session: Session, statements: int) -> None:
        """A text of so many statements is about to run."""
        self._texts[session] = statements

    def end_text(self, session: Session) -> None:
        """The text ended or was given up: its cursors are closed."""
        self._cursors.reap(session)

    def end_statement(self, session: Session) -> None:
        """A statement of the text ended: the cursors of an ended transaction are closed."""
        self._cursors.reap(session, text_is_over=False)

    def runs(self) -> Runs:
        """The functions that carry out these statements, by class of plan."""
        return {
            cursor_plans.SubscribePlan: self._subscribe,
            DeclarePlan: self._declare,
            FetchPlan: self._fetch,
            ClosePlan: self._close,
            cursor_plans.PreparePlan: self._prepare,
            DeallocatePlan: self._deallocate,
            DiscardPlan: self._discard,
            cursor_plans.CopyToPlan: self._copy_to,
        }

    def _subscribe(
        self, session: Session, transaction: Transaction, plan: cursor_plans.SubscribePlan
    ) -> Result:
        if plan.as_of is None:
            transaction.enter("subscribe")
        stream = self.subscribes.start(session, plan)
        return Result(plan.tag_text, stream.desc, ts=stream.as_of, stream=stream)

    def _declare(self, session: Session, transaction: Transaction, plan: DeclarePlan) -> Result:
        alone = self._texts.get(session, 1) == 1
        self._cursors.declare(session, transaction, plan, alone=alone)
        return Result(plan.tag_text)

    def _fetch(self, session: Session, transaction: Transaction, plan: FetchPlan) -> Result:
        desc, rows = self._cursors.fetch(session, transaction, plan)
        return Result(plan.counted(rows.num_rows), desc, rows, rows.num_rows)

    def _close(self, session: Session, _transaction: Transaction, plan: ClosePlan) -> Result:
        self._cursors.close(session, plan.name)
        return Result(plan.tag_text)

    def _prepare(
        self, session: Session, _transaction: Transaction, plan: cursor_plans.PreparePlan
    ) -> Result:
        self._prepared.prepare(session, plan)
        return Result(plan.tag_text)

    def _deallocate(
        self, session: Session, _transaction: Transaction, plan: DeallocatePlan
    ) -> Result:
        self._prepared.deallocate(session, plan.name)
        return Result(plan.tag_text)

    def _discard(self, session: Session, transaction: Transaction, plan: DiscardPlan) -> Result:
        if not plan.everything:
            self._forget_temporary(session)
            return Result(plan.tag_text)
        if transaction.begun:
            raise TransactionError(
                "DISCARD ALL cannot run inside a transaction block", sqlstate="25001"
            )
        self._cursors.close(session, None)
        self._prepared.deallocate(session, None)
        self._forget_temporary(session)
        session.reset_all()
        return Result(plan.tag_text)

    def _copy_to(
        self, session: Session, transaction: Transaction, plan: cursor_plans.CopyToPlan
    ) -> Result:
        if isinstance(plan.plan, cursor_plans.SubscribePlan):
            stream = self._subscribe(session, transaction, plan.plan).stream
            assert stream is not None
            return Result(
                plan.tag_text,
                stream.desc,
                stream=stream,
                copy=CopyOut(plan, stream.desc, stream.batches(), stream.close),
            )
        if plan.path is not None:
            check_allowed(plan.path, session.copy_paths)
        desc, rows = self._selects.rows(session, transaction, plan.plan)
        rows = as_columns(rows, desc)
        if plan.path is None:
            return Result(plan.tag_text, desc, copy=CopyOut(plan, desc, iter([rows])))
        count = to_files(plan, plan.path, desc, rows, session.copy_paths)
        return Result(plan.counted(count), count=count)

    def close(self) -> None:
        """Close every subscription. Idempotent."""
        self.subscribes.close()
