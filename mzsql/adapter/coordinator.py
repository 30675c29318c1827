"""The coordinator: takes texts, returns results, for every session of this process.

Promise: a statement sees the catalog as it is when the statement starts, including what other processes did. Outside
BEGIN each statement is its own transaction, also where a text holds several (unlike PostgreSQL, which makes a
multi-statement text one transaction). A failed statement leaves nothing half-done. A bug of mzsql surfaces as
`InternalError`. See docs/architecture.md, "The way of a SELECT".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, copy_context

import pyarrow as pa
from pyspark.sql import SparkSession

from mzsql.adapter.commit.group_commit import GroupCommit
from mzsql.adapter.dataflows.dataflows import Dataflows
from mzsql.adapter.dataflows.reports import DataflowReports
from mzsql.adapter.environment.closing import close_all
from mzsql.adapter.environment.dropped import remove_orphaned
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.peek.explaining import Explainer
from mzsql.adapter.peek.plans import PeekPlans
from mzsql.adapter.peek.queries import Queries
from mzsql.adapter.planning.features import SystemFeatures
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.planning.statements import StatementPlanner
from mzsql.adapter.session.prepared import PreparedStatements
from mzsql.adapter.session.session import Session, Transaction
from mzsql.adapter.statements.catalog import CatalogStatements
from mzsql.adapter.statements.copy_from import CopyIn
from mzsql.adapter.statements.cursors import CursorStatements
from mzsql.adapter.statements.ddl import Definitions
from mzsql.adapter.statements.defining import Defining
from mzsql.adapter.statements.dml import Changes
from mzsql.adapter.statements.privileges import PrivilegeStatements
from mzsql.adapter.statements.result import Result
from mzsql.adapter.statements.selects import Selects
from mzsql.adapter.statements.sequencing import Sequencer
from mzsql.adapter.statements.session import SessionStatements
from mzsql.adapter.statements.transactions import Transactions
from mzsql.adapter.subscribe.subscription import Subscribes
from mzsql.adapter.system.activity import Activity
from mzsql.adapter.system.relations import SystemRelations
from mzsql.adapter.system.source import READER, Source
from mzsql.catalog.builtin import Builtin
from mzsql.catalog.commands.settings import session_defaults
from mzsql.catalog.durable import DurableCatalog
from mzsql.compute.peek.execute import Peeker
from mzsql.compute.peek.index import IndexReads
from mzsql.compute.peek.inputs import Inputs
from mzsql.compute.peek.outflow import Limits
from mzsql.compute.peek.spark import Peeks
from mzsql.compute.replica.dataflows.dataflow import Renderings
from mzsql.expr.engines import shortage
from mzsql.frontend import RecentTexts, bind_parameters, parse_statements, plan_statement
from mzsql.frontend.parse import statements as st
from mzsql.frontend.plan import dml_plans, session_plans
from mzsql.frontend.plan import plans as p
from mzsql.location import Indeterminate, LocationError
from mzsql.repr.errors import (
    IdleInTransactionTimeout,
    InvalidParameter,
    SqlError,
    TransactionError,
    internal_error,
)
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import Interrupt, running
from mzsql.repr.types import RelationDesc

Parameters = Sequence[object] | Mapping[str, object] | None


_SESSION: ContextVar[Session] = ContextVar("session whose statement runs")


def _tell_lacking(number: int) -> None:
    """Tell the session whose statement runs that it was answered without so many plans."""
    session = _SESSION.get(None)
    message = f"{number} of the running dataflows are shown without their plans, which the expression cache does not have"
    if session is not None and all(one.message != message for one in session.notices):
        hint = "The process that runs them writes them there; each such statement makes some of the others."
        session.notice(message, hint=hint)


class _StoredDefaults:
    """The defaults of sessions' variables as an environment's catalog has them."""

    def __init__(self, catalog: DurableCatalog) -> None:
        self._catalog = catalog

    def of(self, role: str) -> Mapping[str, str]:
        """The system's settings as last read, with those of a role over them."""
        return session_defaults(self._catalog.state, role)


class Coordinator:
    """Serves sessions on one environment. Thread-safe; a session is used by one thread at a time.

    Args:
        env: the environment, which the caller closes.
        spark: creates the Spark session at first use; None: this process runs neither dataflows nor large queries.
        lead: whether to run the controllers where no other process does.
        limits: how many rows and bytes a query may bring into this process.
    """

    def __init__(
        self,
        env: Environment,
        *,
        spark: Callable[[], SparkSession] | None,
        lead: bool = True,
        limits: Limits | None = None,
    ) -> None:
        self.env = env
        self._texts = RecentTexts()
        features = SystemFeatures(env)
        self.planner = Planner(
            lambda: env.catalog.state,
            env.cache,
            features.in_force,
            Renderings(env.collections),
            env.collections.estimated_rows,
            env.plan_files,
        )
        prior = not env.read_only
        env.cache.reconcile_when_opened(features.current, remove_prior_versions=prior)
        limits = limits or Limits()
        if not env.read_only:
            remove_orphaned(env)
        self._dataflows = Dataflows(
            env,
            self.planner,
            spark,
            lead=lead and spark is not None,
            reconcile_cache=lambda: env.cache.reconcile(
                features.current, remove_prior_versions=True
            ),
        )
        self.reports = reports = DataflowReports(env, self.planner, self._dataflows, _tell_lacking)
        self._activity = Activity()
        system = SystemRelations(
            Source(
                env,
                self.planner.descriptions.builtin_desc,
                reports.running,
                reports.arrangements,
                self._dataflows.replicas.trouble,
                self._dataflows.replicas.usage,
                self._activity,
            )
        )
        self.inputs = Inputs(env.collections, env.manager, system, reports.who, limits)
        indexes = IndexReads(
            env.collections,
            lambda: env.catalog.state,
            self.planner,
            self.inputs.kept,
            limits,
        )
        peeks = None if spark is None else Peeks(spark, env.collections, env.transient_ids)
        self._peeker = Peeker(self.inputs, indexes, peeks, self._dataflows.step_engine)
        plans = PeekPlans(env, self.planner, indexes)
        self._queries = Queries(env, self.planner, plans, self.inputs, self._peeker, self._activity)
        self._commits = GroupCommit(env)
        changes = Changes(env, self._queries, self._commits, limits)
        definitions = self._definitions = Definitions(
            env, self.planner, self._queries, self._dataflows
        )
        namespaces = CatalogStatements(env, self.planner, self._dataflows, definitions.clean_up)
        privileges = PrivilegeStatements(env, definitions.clean_up)
        families = definitions.runs(), namespaces.runs(), privileges.runs()
        defining = Defining(*families, first=self._dataflows.begin)
        self._transactions = Transactions(env, changes, defining, namespaces)
        self._statements = StatementPlanner(env, self.planner)
        selects = Selects(env, self._queries)
        explainer = Explainer(self.planner, plans, self._dataflows.deployed)
        subscribes = Subscribes(env, self.planner, self._queries, self.inputs, self._activity)
        prepared = PreparedStatements()
        self._streams = CursorStatements(subscribes, selects, prepared, definitions.forget_session)
        self._sequencer = Sequencer(
            (
                {p.SelectPlan: selects.run},
                changes.runs(),
                {dml_plans.CopyFromPlan: CopyIn(env, changes).run},
                self._transactions.runs(),
                SessionStatements(env, self._queries, explainer, self._dataflows).runs(),
                self._streams.runs(),
                defining.runs(),
            ),
            self._transactions,
            prepared,
            self._statements,
        )

    # --- what others ask ----------------------------------------------------------------------

    @property
    def dataflows(self) -> Dataflows:
        """The dataflows that this process maintains."""
        return self._dataflows

    @property
    def commits(self) -> GroupCommit:
        """Group commit, with its counts."""
        return self._commits

    @property
    def subscriptions(self) -> int:
        """The number of SUBSCRIBEs that run in this process."""
        return self._streams.subscribes.running

    def session(self) -> Session:
        """A new session, with its variables at the defaults of its role and of the system."""
        made = Session(_StoredDefaults(self.env.catalog))
        self._activity.connected(made)
        return made

    def disconnected(self, session: Session) -> None:
        """A session was closed: it is no longer listed. Idempotent."""
        self._activity.disconnected(session)

    def builtin_desc(self, builtin: Builtin) -> RelationDesc:
        """A builtin relation's columns."""
        return self.planner.builtin_desc(builtin)

    def read_relation(self, gid: GlobalId, as_of: Timestamp | None = None) -> pa.Table:
        """All rows of any relation, at ``as_of`` or at a fresh timestamp."""
        self.env.sync()
        return self._queries.read_relation(self.session(), gid, as_of).rows

    def cached_plans(self) -> tuple[int, int]:
        """Of the dataflow plans requested so far: how many came from the expression cache, and how many were requested.
        Waits for the first ones, which are requested once the environment is open.

        Raises:
            Fenced: a higher deploy generation was promoted.
        """
        self._dataflows.begin()
        counts = self.env.cache.counts
        return counts.hits, counts.hits + counts.misses

    # --- statements ---------------------------------------------------------------------------

    def execute(self, session: Session, text: str, parameters: Parameters = None) -> list[Result]:
        """Run the statements of a text one after another.

        Args:
            session: runs them.
            text: any number of statements.
            parameters: values for the text's placeholders.

        Returns:
            A result for each statement.

        Raises:
            SqlError: a statement failed; those before it in the text have been carried out.
        """
        # In a copied context, so that context variables set for a statement (its time limit) end with it, even where
        # Ctrl-C interrupts the reset.
        return copy_context().run(self._execute_text, session, text, parameters)

    def _execute_text(self, session: Session, text: str, parameters: Parameters) -> list[Result]:
        """As `execute`, with every failure turned into an SQL error and the session's transaction marked as failed."""
        try:
            session.resume()
            try:
                with running(session.begin()) as interrupt:
                    return self._interruptible(session, text, parameters, interrupt)
            finally:
                session.end()
                self._streams.end_text(session)
        except IdleInTransactionTimeout:
            self._transactions.abandon(session)
            if _only_rolls_back(text):
                return [Result(session_plans.RollbackPlan.command)]  # it has what it asks for
            raise
        except SqlError:
            self._transactions.fail(session)
            raise
        except (KeyboardInterrupt, SystemExit):
            self._transactions.fail(session)
            raise
        except RecursionError as deep:
            self._transactions.fail(session)
            raise InvalidParameter("statement is too deeply nested", sqlstate="54001") from deep
        except Exception as bug:
            self._transactions.fail(session)
            told = shortage(bug)
            if told is not None:
                raise told from bug
            if type(bug).__module__.split(".")[0] not in _ENGINES and not isinstance(bug, _BUGS):
                raise
            raise internal_error(bug) from bug
        finally:
            session.rest()

    def _interruptible(
        self, session: Session, text: str, parameters: Parameters, interrupt: Interrupt
    ) -> list[Result]:
        """As `_execute`. Where a backend gave up because the statement was canceled or ran out of time, the error says
        that instead.
        """
        try:
            return self._execute(session, text, parameters, interrupt)
        except Indeterminate:
            raise  # what may have been done is more than that it took long
        except LocationError as failure:
            interrupt.trouble = failure
            over = interrupt.error()
            if over is None:
                raise
            raise over from failure

    def _execute(
        self, session: Session, text: str, parameters: Parameters, interrupt: Interrupt
    ) -> list[Result]:
        if self._dataflows.fenced is not None:
            raise self._dataflows.fenced
        bound = text if parameters is None else bind_parameters(text, parameters)
        statements = self._texts.parse(bound)
        self._streams.begin_text(session, len(statements))
        results: list[Result] = []
        try:
            for statement in statements:
                kind, source = type(statement).__name__, statement.source
                with self._activity.statement(session, kind, source) as told:
                    result = self._statement(session, statement, interrupt)
                    results.append(result)
                    told.answered(result.ts, result.rows, result.size)
        except BaseException:
            # The caller gets an error instead of these results, so nobody else closes them.
            for result in results:
                result.close()
            raise
        return results

    def _statement(self, session: Session, statement: st.Statement, interrupt: Interrupt) -> Result:
        interrupt.begin(session.limit(lengthy=statement.lengthy))
        interrupt.check()
        if session.transaction is None:
            session.transaction = Transaction(implicit=True)
        transaction = session.transaction
        if transaction.failed and not statement.ends:
            raise TransactionError(
                "current transaction is aborted, commands ignored until end of transaction block",
                sqlstate="25P02",
            )
        transaction.synced = self.env.clock.monotonic()
        self.env.sync()
        READER.set(session.temporary)
        _SESSION.set(session)
        scope = self._statements.scope(session)
        plan = plan_statement(statement, scope.catalog, table_keys=scope.table_keys)
        term = self.env.oracle.term
        result = self._sequencer.run(session, transaction, plan)
        try:
            if result.desc is not None and not plan.writes:
                # An oracle served from memory may have lost leadership meanwhile; results read at its timestamps are
                # then not linearizable.
                self.env.oracle.confirm_leadership(term)
            if not transaction.begun:
                session.end_transaction(committed=True)
            self._streams.end_statement(session)
        except BaseException:
            result.close()
            raise
        return result

    def abandon(self, session: Session) -> None:
        """The session ends: roll back its open transaction, close its cursors and drop its temporary objects, even where a
        backend fails.
        """
        try:
            self._transactions.abandon(session)
        finally:
            session.end_transaction(committed=False)
            self._streams.end_text(session)
            if not self.env.fenced:
                self._definitions.forget_session(session)

    def close(self) -> None:
        """Stop leading and maintaining, whichever part fails. Idempotent."""
        steps = (
            self._streams.close,
            self._commits.close,
            self._dataflows.close,
            self._peeker.close,
            self.planner.close,
        )
        close_all(steps, self.env.clock)


#: Modules whose exceptions reach a user only through a bug of mzsql.
_ENGINES = frozenset(
    {"builtins", "mzsql", "duckdb", "pyarrow", "sqlglot", "msgspec", "pyspark", "py4j", "_duckdb"}
)
_BUGS = (AssertionError, LookupError, TypeError, ValueError, AttributeError, RuntimeError)


def _only_rolls_back(text: str) -> bool:
    """Whether a text is a single ROLLBACK."""
    try:
        statements = parse_statements(text)
    except SqlError:
        return False
    return [one.rolls_back for one in statements] == [True]
