"""BEGIN, COMMIT, ROLLBACK, and SET within a transaction.

Promise: however a transaction ends without a commit, nothing of it is left: batches written ahead are deleted, read
holds released, variables set back. DDL in a transaction is carried out by COMMIT, so that ROLLBACK can omit it; its
names are resolved when the statement is given, and its preconditions are checked again at COMMIT.
"""

from __future__ import annotations

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.session.commit_batches import discard_batch
from mzsql.adapter.session.session import Session, Transaction
from mzsql.adapter.session.staging import Staged
from mzsql.adapter.statements.catalog import CatalogStatements
from mzsql.adapter.statements.defining import Defining
from mzsql.adapter.statements.dml import Changes
from mzsql.adapter.statements.result import Result
from mzsql.adapter.statements.tables import Runs
from mzsql.catalog.change import NOTHING
from mzsql.catalog.objects import CATALOG_CLUSTER
from mzsql.catalog.settings import variable
from mzsql.frontend.plan import plans as p
from mzsql.frontend.plan import session_plans
from mzsql.frontend.plan.catalog_plans import AlteringPlan
from mzsql.persist import Batch
from mzsql.repr.errors import TransactionError


class Transactions:
    """The transactions of one process's sessions.

    Args:
        env: the environment.
        changes: commits buffered writes.
        defining: carries out one DDL statement.
        namespaces: stages and commits the DDL of which a transaction may hold several statements.
    """

    def __init__(
        self,
        env: Environment,
        changes: Changes,
        defining: Defining,
        namespaces: CatalogStatements,
    ) -> None:
        self._env = env
        self._changes = changes
        self._defining = defining
        self._namespaces = namespaces

    def runs(self) -> Runs:
        """The functions that carry out these statements, by class of plan."""
        return {
            session_plans.BeginPlan: self._begin,
            session_plans.CommitPlan: self._commit,
            session_plans.RollbackPlan: self._rollback,
            session_plans.SetVariablePlan: self._set,
            session_plans.SetTransactionPlan: self._set_transaction,
        }

    def _begin(
        self, session: Session, transaction: Transaction, plan: session_plans.BeginPlan
    ) -> Result:
        if transaction.begun:
            session.notice("there is already a transaction in progress", severity="WARNING")
            transaction.set_mode(read_only=plan.read_only)
        else:
            transaction.begin(read_only=plan.read_only)
        if plan.isolation is not None:
            session.set("transaction_isolation", (plan.isolation,), local=True)
        return Result(plan.tag_text)

    def _rollback(self, session: Session, transaction: Transaction, _plan: p.Plan) -> Result:
        _note_unless_begun(session, transaction)
        self.discard(transaction)
        session.end_transaction(committed=False)
        # Of a COMMIT too, where the transaction has failed.
        return Result(session_plans.RollbackPlan.command)

    def _commit(
        self, session: Session, transaction: Transaction, plan: session_plans.CommitPlan
    ) -> Result:
        if transaction.failed:
            return self._rollback(session, transaction, plan)
        _note_unless_begun(session, transaction)
        defined = transaction.staged is not None or transaction.ddl is not None
        try:
            if transaction.staged is not None:
                self._namespaces.commit(transaction.staged)
            elif transaction.ddl is not None:
                self._defining.run(session, transaction.ddl)
            else:
                self._changes.commit(session, transaction)
        except BaseException:
            self.discard(transaction)
            session.end_transaction(committed=False)
            raise
        session.end_transaction(committed=True)
        return Result(plan.tag_text, defined=defined)

    def defer(self, session: Session, transaction: Transaction, plan: p.Plan) -> None:
        """Keep a DDL statement for COMMIT.

        Raises:
            TransactionError: the transaction cannot hold another such statement.
        """
        if not plan.stageable or transaction.ddl is not None:
            if transaction.staged is not None:
                raise TransactionError(
                    "this transaction can only execute a single statement",
                    detail="Beside others there may be statements that rename, swap and comment on things.",
                    sqlstate="25001",
                )
            transaction.enter("ddl")
            transaction.ddl = plan
            return
        transaction.enter("ddl")
        now = self._env.catalog.state
        staged = transaction.staged or Staged(now, now, NOTHING)
        staged.check(now)
        assert isinstance(plan, AlteringPlan), "what can be staged is said of one thing"
        transaction.staged = staged.then(self._namespaces.stage(session, plan, staged.state))

    def fail(self, session: Session) -> None:
        """A statement failed: an implicit transaction ends, an explicit one accepts only its end from now on."""
        transaction = session.transaction
        if transaction is not None:
            self.discard(transaction)
            if transaction.begun:
                transaction.failed = True
                transaction.end()
                return
        session.end_transaction(committed=False)

    def abandon(self, session: Session) -> None:
        """Roll the transaction back, whatever state it is in."""
        if session.transaction is not None:
            self.discard(session.transaction)
        session.end_transaction(committed=False)

    def discard(self, transaction: Transaction) -> None:
        """Delete the batches written ahead for a transaction that will never commit."""
        for gid, writes in transaction.writes.items():
            for write in writes:
                if isinstance(write, Batch):
                    discard_batch(self._env, gid, write)
        transaction.writes.clear()

    def _set(
        self, session: Session, transaction: Transaction, plan: session_plans.SetVariablePlan
    ) -> Result:
        if plan.local and not transaction.begun:
            session.notice("SET LOCAL can only be used in transaction blocks", severity="WARNING")
        if plan.name == "all" and plan.values is None:
            session.reset_all()
            return Result(plan.tag_text)
        if plan.name == "cluster" and plan.values is not None:
            self._note_unknown_cluster(session, plan.values)
        session.set(plan.name, plan.values, local=plan.local)
        told = not variable(plan.name).heeded
        if told and session.get(plan.name) != session.default(plan.name):
            session.notice(f"{plan.name} has no effect")
        return Result(plan.tag_text)

    def _note_unknown_cluster(self, session: Session, values: tuple[str, ...]) -> None:
        names = {c.name for c in self._env.catalog.state.clusters.values()}
        if values and values[0] not in names | {CATALOG_CLUSTER.name}:
            session.notice(
                f'cluster "{values[0]}" does not exist',
                hint="Create the cluster with CREATE CLUSTER or pick an extant cluster with SET CLUSTER = name.",
            )

    def _set_transaction(
        self, session: Session, transaction: Transaction, plan: session_plans.SetTransactionPlan
    ) -> Result:
        if plan.of_session:
            if plan.read_only is not None:
                raise TransactionError(
                    "SET SESSION CHARACTERISTICS cannot make transactions read-only or read-write",
                    hint="Say it of each transaction: BEGIN READ ONLY.",
                    sqlstate="0A000",
                )
        elif not transaction.begun:
            session.notice(
                "SET TRANSACTION can only be used in transaction blocks", severity="WARNING"
            )
        if plan.isolation is not None:
            local = not plan.of_session
            session.set("transaction_isolation", (plan.isolation,), local=local)
        transaction.set_mode(read_only=plan.read_only)
        return Result(plan.tag_text)


def _note_unless_begun(session: Session, transaction: Transaction) -> None:
    if not transaction.begun:
        session.notice("there is no transaction in progress", severity="WARNING")
