"""DDL about databases, schemas, clusters, roles, names and comments: each statement is one compare-and-append on the catalog.

Promise: as in `mzsql.adapter.statements.ddl`, a statement is refused before anything durable changes, and names are resolved inside the
compare-and-append. Objects dropped with a schema, database or cluster are cleaned up as by a DROP of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mzsql.adapter.dataflows.dataflows import Dataflows
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.session.catalog import SessionCatalog
from mzsql.adapter.session.session import Session
from mzsql.adapter.session.staging import Staged
from mzsql.adapter.statements.tables import Define, Definers
from mzsql.adapter.statements.targets import holder
from mzsql.catalog.change import NOTHING, Change, Owned, entry
from mzsql.catalog.commands import (
    clusters,
    default_privileges,
    privileges,
    renames,
    roles,
    schemas,
)
from mzsql.catalog.commands.comments import comment, item_comment_key
from mzsql.catalog.commands.items import live, without_orphans
from mzsql.catalog.commands.settings import alter_role
from mzsql.catalog.objects import Item, Object, Table
from mzsql.catalog.settings import variable
from mzsql.catalog.state import CatalogState, removed
from mzsql.frontend import parse_statements, plan_statement
from mzsql.frontend.catalog import SYSTEM_SCHEMAS, FullName, is_temporary
from mzsql.frontend.plan import catalog_plans as cp
from mzsql.frontend.plan import ddl_plans
from mzsql.frontend.plan import plans as p
from mzsql.repr.errors import (
    DependentObjects,
    DuplicateObject,
    InvalidParameter,
    SqlError,
    UndefinedObject,
    UndefinedTable,
)

Command = Callable[[CatalogState], Change]
#: The change that an ALTER or COMMENT makes to a catalog, by class of plan.
Alters = Mapping[type[cp.AlteringPlan], Callable[[CatalogState, Any], Change]]
_SYSTEM_PREFIXES = ("mz_", "pg_")


class CatalogStatements:
    """Carries out these statements.

    Args:
        env, planner, dataflows: the coordinator's.
        clean_up: removes the dataflows, plans and shards of objects that were dropped.
    """

    def __init__(
        self,
        env: Environment,
        planner: Planner,
        dataflows: Dataflows,
        clean_up: Callable[[list[Item]], None],
    ) -> None:
        self._env = env
        self._planner = planner
        self._dataflows = dataflows
        self._clean_up = clean_up
        self._alters: Alters = {
            cp.RenamePlan: self._rename,
            cp.SwapPlan: self._swap,
            cp.SetSchemaPlan: self._set_schema,
            cp.SetClusterPlan: _set_cluster,
            cp.SetOwnerPlan: _set_owner,
            cp.AlterRolePlan: _alter_role,
            cp.AlterRoleVariablePlan: _set_role_variable,
            cp.CommentPlan: _comment,
        }

    def runs(self) -> Definers:
        """The functions that carry out these statements, by class of plan."""
        runs: dict[type[p.Plan], Define] = {
            cp.CreateSchemaPlan: self._create_schema,
            cp.CreateDatabasePlan: self._create_database,
            cp.CreateRolePlan: self._create_role,
            cp.CreateClusterPlan: self._create_cluster,
            cp.CreateReplicaPlan: self._create_replica,
            cp.DropNamedPlan: self._drop,
            cp.AlterClusterPlan: self._alter_cluster,
            **dict.fromkeys(self._alters, self._alter),
            cp.AlterRoleVariablePlan: self._alter_role_variable,
        }
        return {plan: partial(self._where_writable, run) for plan, run in runs.items()}

    def _where_writable(self, run: Define, session: Session, plan: p.Plan) -> None:
        self._env.require_writable()
        run(session, plan)

    def _transact(self, command: Command) -> None:
        self._env.define(lambda state: (command(state), None))
        self._env.sync()

    # --- CREATE -------------------------------------------------------------------------------

    def _create_schema(self, session: Session, plan: cp.CreateSchemaPlan) -> None:
        _refuse_reserved("schema", plan.name)
        self._made(
            session,
            lambda state: schemas.create_schema(state, plan.database, plan.name),
            skip=plan.if_not_exists,
        )

    def _create_database(self, session: Session, plan: cp.CreateDatabasePlan) -> None:
        self._made(
            session,
            lambda state: schemas.create_database(state, plan.name),
            skip=plan.if_not_exists,
        )

    def _create_role(self, _session: Session, plan: cp.CreateRolePlan) -> None:
        _refuse_reserved("role", plan.name)
        self._transact(lambda state: roles.create_role(state, plan.name))

    def _create_cluster(self, session: Session, plan: cp.CreateClusterPlan) -> None:
        _refuse_reserved("cluster", plan.name)
        _note_ignored(session, plan.options.ignored)
        self._made(
            session,
            lambda state: clusters.create_cluster(state, plan.name, plan.options),
            skip=plan.if_not_exists,
        )

    def _create_replica(self, session: Session, plan: cp.CreateReplicaPlan) -> None:
        _note_ignored(session, plan.ignored)
        self._made(
            session,
            lambda state: clusters.create_replica(state, plan.cluster, plan.replica),
            skip=plan.if_not_exists,
        )
        # A new cluster has nothing to run yet; what its cluster runs, a new replica runs too.
        self._dataflows.catch_up()

    def _made(self, session: Session, command: Command, *, skip: bool) -> None:
        try:
            self._transact(command)
        except DuplicateObject as taken:
            if not skip:
                raise
            session.notice(f"{taken.message}, skipping")

    # --- DROP ---------------------------------------------------------------------------------

    def _drop(self, session: Session, plan: cp.DropNamedPlan) -> None:
        missing: list[str] = []

        def command(state: CatalogState) -> tuple[Change, list[Item]]:
            missing.clear()  # a command runs again where another process was faster
            change = NOTHING
            for target in dict.fromkeys(plan.targets):
                try:
                    change |= _DROPS[plan.kind](session, state, target, plan.cascade)
                except (UndefinedObject, UndefinedTable):
                    if not target.if_exists:
                        raise
                    missing.append(str(target))
            return without_orphans(state, change), removed(state, change)

        self._clean_up(self._env.define(command))
        for name in missing:
            session.notice(f'{plan.kind} "{name}" does not exist, skipping')

    # --- ALTER, COMMENT -----------------------------------------------------------------------

    def _alter_cluster(self, session: Session, plan: cp.AlterClusterPlan) -> None:
        _note_ignored(session, plan.options.ignored)
        target = cp.Target("cluster", (plan.name,), None, plan.if_exists)
        self._change(
            session, target, lambda state: clusters.alter_cluster(state, plan.name, plan.options)
        )

    def _alter(self, session: Session, plan: cp.AlteringPlan) -> None:
        alter = self._alters[type(plan)]
        self._change(session, plan.target, lambda state: alter(state, plan))

    def _alter_role_variable(self, session: Session, plan: cp.AlterRoleVariablePlan) -> None:
        self._alter(session, plan)
        if plan.values is not None and not variable(plan.variable).heeded:
            session.notice(f"{plan.variable} has no effect")

    def _change(self, session: Session, target: cp.Target, command: Command) -> None:
        """Change one thing, or note that it does not exist where IF EXISTS lets it be missing."""
        missing = target.is_item and target.item is None
        if not missing:
            try:
                self._transact(command)
            except (UndefinedObject, UndefinedTable):
                # The statement may name something else that does not exist.
                if not target.if_exists or self._exists(target):
                    raise
                missing = True
        if missing:
            _note_missing(session, target)
        else:
            self._dataflows.catch_up()

    def stage(self, session: Session, plan: cp.AlteringPlan, state: CatalogState) -> Change:
        """The change that an ALTER or COMMENT would make to the catalog ``state``; nothing is written.

        Raises:
            SqlError: it cannot be made.
        """
        self._env.require_writable()
        target = plan.target
        if not (target.is_item and target.item is None):
            try:
                return self._alters[type(plan)](state, plan)
            except (UndefinedObject, UndefinedTable):
                if not target.if_exists:
                    raise
        _note_missing(session, target)
        return NOTHING

    def commit(self, staged: Staged) -> None:
        """Write a transaction's staged changes as one.

        Raises:
            TransactionError: what they change was changed meanwhile; nothing was written.
        """

        def command(state: CatalogState) -> Change:
            staged.check(state)
            return staged.change

        self._transact(command)
        self._dataflows.catch_up()

    def _exists(self, target: cp.Target) -> bool:
        try:
            holder(self._env.catalog.state, target)
        except (UndefinedObject, UndefinedTable):
            return False
        return True

    # --- names --------------------------------------------------------------------------------

    def _rename(self, state: CatalogState, plan: cp.RenamePlan) -> Change:
        target, to = plan.target, plan.to
        if target.item is not None:
            old = renames.name_of(live(state, target.item.id))
            new = FullName(old.database, old.schema, to)
            return renames.rename_items(state, {target.item.id: new}, partial(self._check, state))
        _refuse_reserved(target.kind, to)
        if target.kind == "cluster replica":
            cluster, name = target.name
            return clusters.rename_replica(state, cluster, name, to)
        return self._renamed(state, target, {target.name[-1]: to})

    def _swap(self, state: CatalogState, plan: cp.SwapPlan) -> Change:
        one, other = plan.target.name[-1], plan.other.name[-1]
        return self._renamed(state, plan.target, {one: other, other: one})

    def _renamed(self, state: CatalogState, target: cp.Target, names: dict[str, str]) -> Change:
        """Schemas of the target's database, or clusters, by their old names, under their new ones."""
        if target.kind == "cluster":
            return renames.rename_clusters(state, names)
        return renames.rename_schemas(state, target.name[0], names, partial(self._check, state))

    def _set_schema(self, state: CatalogState, plan: cp.SetSchemaPlan) -> Change:
        item = plan.target.item
        assert item is not None
        assert plan.to is not None
        return renames.set_schema(state, item.id, plan.to, partial(self._check, state))

    def _check(self, base: CatalogState, before: Item, after: Item, then: CatalogState) -> None:
        """Refuse a rename that would change the meaning of a definition that uses the name."""
        if before.create_sql == after.create_sql:
            return
        if isinstance(before, Table) and not before.depends_on:
            return  # nothing in it names anything
        old = self._meaning(base, before)
        try:
            same = self._meaning(then, after) == old
        except SqlError:
            same = False
        if not same:
            raise DependentObjects(
                f'cannot rename: the definition of {before.noun} "{before.full_name}" would change its meaning',
                detail=f"It would be: {after.create_sql}",
                hint="Drop it, rename, and create it again.",
            )

    def _meaning(self, state: CatalogState, item: Item) -> object:
        catalog = SessionCatalog(state, self._planner.descriptions, stored=True)
        (statement,) = parse_statements(item.create_sql)
        plan = plan_statement(statement, catalog)
        assert isinstance(plan, ddl_plans.CreatingPlan), (
            "what the catalog keeps of an object is what creates it"
        )
        return plan.meaning


def _set_cluster(state: CatalogState, plan: cp.SetClusterPlan) -> Change:
    assert plan.target.item is not None
    return renames.set_cluster(state, plan.target.item.id, plan.cluster)


def _set_owner(state: CatalogState, plan: cp.SetOwnerPlan) -> Change:
    role = roles.role_named(state, plan.role)
    key, owned = holder(state, plan.target)
    assert isinstance(owned, Owned)  # a replica's owner is its cluster's
    return entry(key, privileges.owned_by(owned, role.id))


def _alter_role(state: CatalogState, plan: cp.AlterRolePlan) -> Change:
    roles.role_named(state, plan.target.name[-1])
    return NOTHING


def _set_role_variable(state: CatalogState, plan: cp.AlterRoleVariablePlan) -> Change:
    return alter_role(state, plan.target.name[-1], plan.variable, plan.values)


def _comment(state: CatalogState, plan: cp.CommentPlan) -> Change:
    _, one = holder(state, plan.target)
    if isinstance(one, Object):
        return comment(state, item_comment_key(one, plan.column), plan.text)
    return comment(state, f"{type(one).__name__.lower()}/{one.id}", plan.text)


# --- DROP of one thing ------------------------------------------------------------------------


def _drop_schema(
    _session: Session, state: CatalogState, target: cp.Target, cascade: bool
) -> Change:
    database, name = target.name
    if name in SYSTEM_SCHEMAS or is_temporary(name):
        raise InvalidParameter(f"system schema '{name}' cannot be modified", sqlstate="42501")
    return schemas.drop_schemas(state, [(database, name)], cascade=cascade)


def _drop_database(
    _session: Session, state: CatalogState, target: cp.Target, cascade: bool
) -> Change:
    return schemas.drop_database(state, target.name[-1], cascade=cascade)


def _drop_cluster(
    _session: Session, state: CatalogState, target: cp.Target, cascade: bool
) -> Change:
    return clusters.drop_clusters(state, [target.name[-1]], cascade=cascade)


def _drop_replica(
    _session: Session, state: CatalogState, target: cp.Target, _cascade: bool
) -> Change:
    cluster, name = target.name
    return clusters.drop_replicas(state, [(cluster, name)])


def _drop_role(session: Session, state: CatalogState, target: cp.Target, _cascade: bool) -> Change:
    name = target.name[-1]
    role = state.role(name)
    granted: tuple[str, ...] = ()
    if role is not None:
        ahead = default_privileges.granted_ahead_to(state, role)
        granted = (*privileges.granted_to(state, role), *ahead)
    return roles.drop_role(state, name, session.user, granted)


#: What drops a thing, by its kind.
_DROPS: Mapping[str, Callable[[Session, CatalogState, cp.Target, bool], Change]] = {
    "schema": _drop_schema,
    "database": _drop_database,
    "cluster": _drop_cluster,
    "cluster replica": _drop_replica,
    "role": _drop_role,
}


# --- what messages say ------------------------------------------------------------------------


def _refuse_reserved(kind: str, name: str) -> None:
    """Refuse the names that are kept for the system's schemas, clusters and roles."""
    own = {"schema": SYSTEM_SCHEMAS, "role": ("public",), "cluster": ()}.get(kind)
    if own is None or not (name in own or name.startswith(_SYSTEM_PREFIXES)):
        return
    message = f'{kind} name "{name}" is reserved'
    if kind == "schema":
        message = f"unacceptable schema name '{name}'"
    prefixes = 'The role "public" and the prefixes' if kind == "role" else "The prefixes"
    raise InvalidParameter(
        message,
        detail=f'{prefixes} "mz_" and "pg_" are reserved for system {kind}s.',
        sqlstate="42939",
    )


def _note_ignored(session: Session, options: tuple[str, ...]) -> None:
    for option in options:
        session.notice(f"{option} has no effect")


def _note_missing(session: Session, target: cp.Target) -> None:
    session.notice(f'{target.kind} "{target}" does not exist, skipping')
