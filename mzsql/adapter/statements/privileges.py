"""GRANT and REVOKE, default privileges, REASSIGN and DROP OWNED: each is one compare-and-append on the catalog.

Promise: roles and things are resolved inside the compare-and-append, so that nothing is granted on what was dropped
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.session.session import Session
from mzsql.adapter.statements.tables import Definers
from mzsql.adapter.statements.targets import holder
from mzsql.catalog.change import NOTHING, Change, Owned, entry
from mzsql.catalog.commands import default_privileges, privileges, roles, schemas
from mzsql.catalog.commands.items import without_orphans
from mzsql.catalog.objects import DefaultPrivilege, Item, Object, Schema
from mzsql.catalog.state import CatalogState, applied, removed
from mzsql.frontend.parse.privileges import PRIVILEGES
from mzsql.frontend.plan import catalog_plans as cp
from mzsql.repr.errors import UndefinedObject


class PrivilegeStatements:
    """Carries out these statements.

    Args:
        env: the environment.
        clean_up: removes the dataflows, plans and shards of objects that were dropped.
    """

    def __init__(self, env: Environment, clean_up: Callable[[list[Item]], None]) -> None:
        self._env = env
        self._clean_up = clean_up

    def runs(self) -> Definers:
        """The functions that carry out these statements, by class of plan."""
        return {
            cp.MembershipPlan: lambda _, plan: self._transact(_membership, plan),
            cp.PrivilegesPlan: lambda _, plan: self._transact(_granted, plan),
            cp.DefaultPrivilegesPlan: lambda _, plan: self._transact(_granted_ahead, plan),
            cp.OwnedPlan: self._owned,
        }

    def _transact(
        self, command: Callable[[CatalogState, cp.PlanT], Change], plan: cp.PlanT
    ) -> None:
        self._env.require_writable()
        self._env.define(lambda state: (command(state, plan), None))
        self._env.sync()

    def _owned(self, _session: Session, plan: cp.OwnedPlan) -> None:
        if plan.to is not None:
            self._transact(_reassigned, plan)
            return
        self._env.require_writable()

        def command(state: CatalogState) -> tuple[Change, list[Item]]:
            change = _owned_dropped(state, plan)
            return change, removed(state, change)

        self._clean_up(self._env.define(command))


# --- roles --------------------------------------------------------------------------------------------


def _membership(state: CatalogState, plan: cp.MembershipPlan) -> Change:
    change = NOTHING
    for role in plan.roles:
        for member in plan.members:
            then = applied(state, change)
            change |= roles.grant(then, role, member, revoke=plan.revoke)
    return change


def _reassigned(state: CatalogState, plan: cp.OwnedPlan) -> Change:
    assert plan.to is not None
    return privileges.reassign(state, plan.roles, plan.to)


def _owned_dropped(state: CatalogState, plan: cp.OwnedPlan) -> Change:
    change = privileges.drop_owned(state, plan.roles, cascade=plan.cascade)
    then = applied(state, change)
    ids = {roles.role_named(then, role).id for role in plan.roles}
    change |= default_privileges.without_roles(then, ids)
    return without_orphans(state, change)


# --- privileges ---------------------------------------------------------------------------------------


def _letters(words: Collection[str]) -> str:
    return "".join(PRIVILEGES[word] for word in words)


def _granted(state: CatalogState, plan: cp.PrivilegesPlan) -> Change:
    modes = None if plan.privileges is None else _letters(plan.privileges)
    change = NOTHING
    grantees = [privileges.grantee_id(state, role) for role in plan.roles]
    if plan.kind == "system":
        for grantee in grantees:
            then = applied(state, change)
            change |= privileges.grant_on_system(then, grantee, modes, revoke=plan.revoke)
        return change
    for key, one in _held(state, plan):
        after = one
        for grantee in grantees:
            after = privileges.changed(after, grantee, modes, revoke=plan.revoke)
        change |= entry(key, after)
    return change


def _held(state: CatalogState, plan: cp.PrivilegesPlan) -> Iterator[tuple[str, Owned]]:
    """The catalog entries that a GRANT or REVOKE is about."""
    if plan.places is None:
        for target in dict.fromkeys(plan.targets):
            key, one = holder(state, target)
            assert isinstance(one, Owned)
            yield key, one
        return
    databases = {one.id: one.name for one in state.databases.values()}
    for key, one in privileges.holders(state):
        place: tuple[str, ...] = ()
        if isinstance(one, Object):
            place = (one.database, one.schema)
        elif isinstance(one, Schema):
            place = (databases[one.database],)
        within = not plan.places or any(place[: len(named)] == named for named in plan.places)
        if within and plan.kind in (privileges.kind_of(one), privileges.granted_as(one)):
            yield key, one


def _granted_ahead(state: CatalogState, plan: cp.DefaultPrivilegesPlan) -> Change:
    said = plan.privileges
    modes = privileges.letters(plan.kind) if said is None else _letters(said)
    makers = [privileges.PUBLIC]
    if plan.makers is not None:
        makers = [roles.role_named(state, name).id for name in plan.makers]
    grantees = [privileges.grantee_id(state, name) for name in plan.roles]
    altered = [
        DefaultPrivilege(maker, plan.kind, grantee, modes, *place)
        for maker in makers
        for place in [_ids_of(state, place) for place in plan.places] or [(None, None)]
        for grantee in grantees
    ]
    return default_privileges.alter_default(state, altered, revoke=plan.revoke)


def _ids_of(state: CatalogState, place: tuple[str, ...]) -> tuple[str | None, str | None]:
    """The ids of a database and, where ``place`` names one, of a schema in it.

    Raises:
        UndefinedObject: there is none of this name.
    """
    database = schemas.database_named(state, place[0])
    if len(place) == 1:
        return database.id, None
    found = state.schema(*place)
    if found is None:
        raise UndefinedObject(f"unknown schema '{place[1]}'", sqlstate="3F000")
    return database.id, found[1].id
